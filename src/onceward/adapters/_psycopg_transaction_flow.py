"""
What atomic mode sends on the caller's psycopg connection, written once for both colours.

    begin and claim | the caller's function | settle and commit

`PsycopgTransactionFlow` yields statements, to be sent together if the driver can, and gets their rows. What a row or an
error means is decided here. The class in `_psycopg_transaction_async.py` sends them, by way of `_psycopg_pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from onceward._core.errors import ConfigurationError, IllegalMove
from onceward._core.record import PutResult, Record, Write
from onceward.adapters._postgres_record_database import (
    PUT_TRIES,
    STALE_STATEMENT,
    PostgresRecordDatabase,
    snapshot_too_old,
)
from onceward.adapters._psycopg_pipeline import (
    BoundStatement,
    Connection,
    PreparableStatement,
    SendRollback,
    SendStatements,
    forget_prepared,
    preparable,
    would_garble_text,
)
from onceward.adapters._registry import NO_ENCODING, TRANSACTION_ENDED
from onceward.adapters.record_database import TRANSACTION_FAILED
from onceward.stores import _postgres_rows as rows
from onceward.stores._postgres_errors import DRIVER_ERRORS, translate_error
from onceward.stores._postgres_wire import (
    Value,
    ending_values,
    int8,
    new_claim_values,
    put_values,
    settling_values,
)
from onceward.stores.postgres import AsyncPostgresStore, PostgresStore

T = TypeVar("T")

_IDLE, _ACTIVE = int(TransactionStatus.IDLE), int(TransactionStatus.ACTIVE)
_FAILED, _NO_PIPELINE = int(TransactionStatus.INERROR), int(PipelineStatus.OFF)
_NO_SAVEPOINT = "3B001"
NOT_LANDED, NOT_OURS = "22012", "2201F"
"""
Division by zero, root of a negative number: with these errors an ending statement stops the COMMIT sent after it.
"""
_RELAXED = len(Write._fields)
"""Its index among the values of a put."""
_PIPELINED = (
    "your function left the connection in pipeline mode, so what was sent there cannot be told from what is sent now, "
    "and the connection was closed; end connection.pipeline() before the function ends"
)
_BUSY = (
    "this connection is in the middle of a statement (a COPY, a stream, or one of another thread); end that first, or "
    "use another connection"
)

_XID = ", CASE WHEN landed.fence IS NOT NULL THEN txid_current() END"
"""Last column of a claim: the id of its transaction. With it we notice if the function ends that transaction."""
STOP_UNLESS_OURS = ", sqrt(CASE WHEN %(xid)s::bigint IS NULL OR txid_current() = %(xid)s::bigint THEN 1 ELSE -1 END)"
STOP_UNLESS_LANDED = ", 1 / CASE WHEN landed.fence IS NOT NULL THEN 1 ELSE 0 END"
_OR_STOP = STOP_UNLESS_OURS + STOP_UNLESS_LANDED
"""Last columns of an ending: an error, which stops the commit, unless it landed and is in our transaction."""
_NEW_CLAIM = rows.joined_new_claim_statement(rows.RESTORED + _XID)
_INSERT = rows.claim_or_row_statement(rows.JOINED_CLOCK, rows.RESTORED + _XID)
_SWAP = rows.swap_statement(rows.JOINED_CLOCK, rows.RESTORED + _XID)
END_FRESH = rows.claim_statement(rows.JOINED_CLOCK, rows.RESTORED + _OR_STOP)
END_OVER = rows.swap_statement(rows.JOINED_CLOCK, rows.RESTORED + _OR_STOP)
END, SETTLE = rows.end_statement(_OR_STOP), rows.settle_statement(_OR_STOP)
"""An ending with claim="last": of a key under which nothing stood, or over what stood there. And those of a claim."""
_PEEK = (
    b"WITH found AS (%s) SELECT CASE WHEN found.state IS DISTINCT FROM 'settled' OR found.forget_at <= found.now "
    b"THEN txid_current() END, found.* FROM (SELECT 1) AS one LEFT JOIN found ON true" % rows.FIND
)
"""A record, and the transaction's id unless the record is settled: a replay or a refusal needs no such id."""
_BECAME, _IDENTITY = preparable(b"SELECT txid_status(%(xid)s::bigint)"), preparable(rows.IDENTITY)


@cache
def _within(schema: str, sql: bytes) -> PreparableStatement:
    """A statement about our tables, with their schema, so that the search path does not matter."""
    return preparable(rows.qualified(schema, sql), prepares=True)


class StatementFailed(Exception):
    """A statement failed; those sent after it were not carried out."""

    def __init__(self, number: int, error: BaseException) -> None:
        self.number = number
        self.error = error
        self.code: str | None = error.sqlstate if isinstance(error, psycopg.Error) else None


class IdentifyStore:
    """Asks which database the gate's store is in."""


_IDENTIFY: Final = IdentifyStore()
Flow: TypeAlias = Generator[SendStatements | SendRollback | IdentifyStore, Any, T]
_COMMIT, _ROLLBACK = BoundStatement(PreparableStatement(b"COMMIT")), SendRollback(b"ROLLBACK")


def _savepoint(verb: bytes, name: bytes) -> BoundStatement:
    return BoundStatement(PreparableStatement(b"%b %b" % (verb, name)))


class TransactionLevel(NamedTuple):
    """What a `begin` opened: a savepoint of that name, or (None) the transaction itself."""

    savepoint: bytes | None


class PsycopgTransactionFlow:
    """What is sent on one connection for one call."""

    def __init__(self, connection: Connection, database: PostgresRecordDatabase) -> None:
        self._connection = connection
        self._database = database
        self._opened: list[TransactionLevel] = []
        """Innermost last."""
        self._unsent = False
        """Whether the first `begin` has not been sent yet: it is sent together with the next statement."""
        self._xid: int | None = None
        """The id of our transaction; None until the caller's function may have been called."""
        self._parted = False
        """Whether the function itself has committed that transaction."""
        self._schema = ""
        """Where the tables are: the function may change the search path."""

    @property
    def _status(self) -> int:
        return self._connection.pgconn.transaction_status

    def begin(self) -> Flow[bool]:
        """Open a transaction (True) or, inside the caller's own, a savepoint (False)."""
        if self._status == _ACTIVE:
            raise IllegalMove(_BUSY)
        opens = check_connection(self._connection, "the record")
        # Before anything else: to ask makes the tables if they are not there.
        self._schema = (self._database.known_address or (yield _IDENTIFY))[-1]
        if not self._opened:
            self._unsent, self._xid, self._parted = True, None, False
        self._opened.append(TransactionLevel(None if opens else b"onceward_%d" % len(self._opened)))
        if not self._unsent:
            yield from self._send(_savepoint(b"SAVEPOINT", self._opened[-1].savepoint or b""))
        elif not self._database.knows(self._connection):
            yield from self._verify()
        return opens

    def _verify(self) -> Flow[None]:
        """Check, once for each connection, that its search path leads to our records in the same database."""
        [[theirs]] = yield from self._send(BoundStatement(_IDENTITY))
        try:
            info = self._connection.info
            self._database.check_identity(tuple(theirs), f"{info.dbname} at {info.host}")
        except ConfigurationError:
            yield from self.rollback()
            raise
        self._database.remember(self._connection)

    def put(self, write: Write, expect: bytes | None) -> Flow[PutResult]:
        """Write a record in this transaction if its current version is `expect`."""
        first = _NEW_CLAIM if rows.is_new_claim(write) else _INSERT
        statement = self._ours(first if expect is None else _SWAP, self._values(write, expect))
        for _ in range(PUT_TRIES):
            try:
                [[row]] = yield from self._sent(statement)
            except StatementFailed as failed:
                raise self._meaning(failed) from failed.error
            result = rows.landed_or_row(row, write) if expect is None else rows.put_result_of(row, write, expect)
            if result is not None:
                if result.landed:
                    self._xid = row[-1]
                return result
        raise snapshot_too_old()

    def load(self, id: bytes) -> Flow[Record | None]:
        """Look at a record inside the transaction."""
        [[row]] = yield from self._send(self._ours(_PEEK, [id]))
        if self._opened:
            self._xid = row[0]
        return None if row[2] is None else rows.record_of(row[1], row[2:])

    def extend(self, family: bytes, replay: int, forget: int) -> Flow[int]:
        """Let the settled records of a family replay for longer, in this transaction; how many there were."""
        lives = [family, int8(replay), int8(forget), self._database.lock_timeout.encode()]
        [[(many, _)]] = yield from self._send(self._ours(rows.JOINED_EXTEND, lives))
        return int(many)

    def finish(self, write: Write, expect: bytes | None) -> Flow[PutResult]:
        """Put and commit in one round trip; if it does not land, roll back."""
        if self._has_ended():
            raise IllegalMove(TRANSACTION_ENDED)
        ending = self._end(write, expect)
        try:
            [[row], _] = yield from self._sent(ending, self._ending())
        except StatementFailed as failed:
            if failed.number == 0 and failed.code == NOT_OURS:
                raise IllegalMove(TRANSACTION_ENDED) from None
            if failed.number or failed.code != NOT_LANDED:
                raise self._meaning(failed, committing=failed.number > 0) from failed.error
            return (yield from self._not_landed(write))
        self._opened.pop()
        return PutResult(True, rows.landed_record(write, *row[:3]))  # Else it stops.

    def _not_landed(self, write: Write) -> Flow[PutResult]:
        if not write.rise:
            raise IllegalMove(TRANSACTION_ENDED)  # Nobody but the function itself could have taken away our claim.
        if not (yield from self._undo(self._opened.pop().savepoint)):
            self._parted = True
            raise IllegalMove(TRANSACTION_ENDED)
        return PutResult(False, None)

    def commit(self) -> Flow[None]:
        """Commit what the last `begin` opened; `IllegalMove` if something else has ended it."""
        if self._has_ended() and not self._unsent:
            raise IllegalMove(TRANSACTION_ENDED)
        try:
            yield from self._sent(self._ending())
        except StatementFailed as failed:
            raise self._meaning(failed, committing=True) from failed.error
        self._opened.pop()

    def _ending(self) -> BoundStatement:
        savepoint = self._opened[-1].savepoint
        return _COMMIT if savepoint is None else _savepoint(b"RELEASE SAVEPOINT", savepoint)

    def rollback(self) -> Flow[bool]:
        """Undo what the last `begin` opened; False if somebody else has ended it."""
        if not self._opened:
            return not self._parted
        savepoint = self._opened.pop().savepoint
        if self._is_in_a_pipeline():
            # We cannot read that pipeline's results. Closing the connection makes the server roll back what is open;
            # whether the transaction had been ended before is not known.
            self._connection.pgconn.finish()
            return False
        if self._unsent or self._is_closed():
            sent, self._unsent = not self._unsent, False
            # Nothing was sent; or the connection broke, and the server has undone it. If it was closed in good order,
            # nobody can say what went before: psycopg's `with connection:` commits and closes.
            return not sent or self._connection.broken
        return (yield from self._undo(savepoint))

    def _undo(self, savepoint: bytes | None) -> Flow[bool]:
        """Roll back; False if somebody else had ended it."""
        try:
            if savepoint is None:
                return (yield from self._roll_back())
            return (yield from self._roll_back_to(savepoint))
        except StatementFailed as failed:
            if self._is_closed():
                return True
            raise self._meaning(failed) from failed.error

    def _is_in_a_pipeline(self) -> bool:
        return self._connection.pgconn.pipeline_status != _NO_PIPELINE and not self._is_closed()

    def _is_closed(self) -> bool:
        return self._connection.closed

    def _has_ended(self) -> bool:
        """Whether the function has ended the transaction, or has closed the connection normally."""
        return self._status == _IDLE or (self._connection.closed and not self._connection.broken)

    def _roll_back(self) -> Flow[bool]:
        """Roll back the transaction that we opened, or the one that the function has opened in its place."""
        if self._status != _IDLE:
            yield _ROLLBACK
        return self._xid is None or (yield from self._was_aborted(self._xid))

    def _roll_back_to(self, savepoint: bytes) -> Flow[bool]:
        if self._status != _IDLE:
            try:
                yield _undo_to(savepoint)
            except StatementFailed as failed:
                if failed.code != _NO_SAVEPOINT:
                    raise
                # Not the transaction we were given, or we were interrupted when we had released it already: at least
                # what has been begun since can be undone.
                yield _ROLLBACK
            else:
                yield SendStatements((_savepoint(b"RELEASE SAVEPOINT", savepoint),))
                return True
        return self._xid is None or (yield from self._was_aborted(self._xid))

    def _was_aborted(self, xid: int) -> Flow[bool]:
        [[(was,)], _] = yield SendStatements((BoundStatement(_BECAME, [int8(xid)]), _COMMIT), b"BEGIN")
        return bool(was == "aborted")

    def _end(self, write: Write, expect: bytes | None) -> BoundStatement:
        """The statement that ends an operation, or fails, so that the commit sent after it is not carried out."""
        xid = None if self._xid is None else int8(self._xid)
        if expect is None:
            return self._ours(END_FRESH, [*self._values(write, None), xid])
        if write.rise:
            return self._ours(END_OVER, [*self._values(write, expect), xid])
        if rows.is_usual_settle(write):
            return self._ours(SETTLE, [*self._values(write, spelled=settling_values), expect, xid])
        return self._ours(END, [*self._values(write), expect, xid])

    def _values(
        self, write: Write, *expect: bytes | None, spelled: Callable[[Write], list[Value]] = ending_values
    ) -> list[Value]:
        """The values of a put; without a version to expect, those of an ending of our own claim."""
        try:
            if not expect:
                return spelled(write)
            if expect[0] is None and rows.is_new_claim(write):
                return [*new_claim_values(write), self._database.lock_timeout.encode()]
            values = put_values(write, expect[0], self._database.lock_timeout, relaxed=False)
        except DRIVER_ERRORS as error:
            raise translate_error(error, self._database.name) from error
        del values[_RELAXED]  # The caller's transaction is as durable as the caller wants it.
        return values

    def _ours(self, sql: bytes, values: Sequence[Value]) -> BoundStatement:
        """A statement about our tables, with its values."""
        return BoundStatement(_within(self._schema, sql), values)

    def _send(self, *statements: BoundStatement) -> Flow[list[Any]]:
        try:
            return (yield from self._sent(*statements))
        except StatementFailed as failed:
            raise self._meaning(failed) from failed.error

    def _sent(self, *statements: BoundStatement) -> Flow[list[Any]]:
        results: list[Any]
        if self._is_in_a_pipeline():
            raise IllegalMove(_PIPELINED)
        if not self._unsent:
            results = yield SendStatements(statements)
            return results
        self._unsent = False
        savepoint = self._opened[-1].savepoint
        opening = _begin_statement(self._connection) if savepoint is None else b"SAVEPOINT %b" % savepoint
        try:
            results = yield SendStatements(statements, opening)
        except StatementFailed as failed:
            if failed.code not in STALE_STATEMENT:
                raise
            # Nothing of the caller's has run since the opening. What is sent again is prepared anew.
            yield _ROLLBACK if savepoint is None else _undo_to(savepoint)
            results = yield SendStatements(statements, opening if savepoint is None else None)
        return results

    def _meaning(self, failed: StatementFailed, *, committing: bool = False) -> BaseException:
        """Our error for one of PostgreSQL's about our own statements. The caller's statements are not run here."""
        return self._database.meaning(failed.error, committing=committing) or failed.error


def check_connection(connection: Connection, what: str) -> bool:
    """Refuse a connection on which `what` cannot join the caller's rows; True if no transaction has begun on it."""
    if connection.pgconn.pipeline_status != _NO_PIPELINE and not connection.closed:
        raise ConfigurationError(
            "this connection is in pipeline mode, where errors arrive late; end connection.pipeline() before this"
        )
    if would_garble_text(connection):
        raise ConfigurationError(NO_ENCODING)
    status = connection.pgconn.transaction_status
    if status == _FAILED:
        raise IllegalMove(TRANSACTION_FAILED)
    opens = status == _IDLE
    if opens and connection.autocommit:
        raise ConfigurationError(
            f"this connection is in autocommit, so {what} would commit alone; use connection.transaction(), or a "
            "connection that is not in autocommit"
        )
    return opens


def _undo_to(savepoint: bytes) -> SendRollback:
    return SendRollback(b"ROLLBACK TO SAVEPOINT %b" % savepoint)


def _begin_statement(connection: Connection) -> bytes:
    """The BEGIN for the connection's settings: isolation level, read only, deferrable."""
    level, read_only, deferrable = connection.isolation_level, connection.read_only, connection.deferrable
    if level is None and read_only is None and deferrable is None:
        return b"BEGIN"
    words = ["BEGIN"]
    if level is not None:
        words.append(f"ISOLATION LEVEL {psycopg.IsolationLevel(level).name.replace('_', ' ')}")
    if read_only is not None:
        words.append("READ ONLY" if read_only else "READ WRITE")
    if deferrable is not None:
        words.append("DEFERRABLE" if deferrable else "NOT DEFERRABLE")
    return " ".join(words).encode()


def postgres_database_of(store: object, gate: str) -> PostgresRecordDatabase:
    """The database of a gate's store; raises if it is not PostgreSQL. `gate` is the name of the gate's class."""
    awaits = gate == "AsyncGate"  # A blocking connection can join an awaiting store's database, if that is known.
    if isinstance(store, AsyncPostgresStore) or (isinstance(store, PostgresStore) and not awaits):
        return PostgresRecordDatabase(store)
    raise ConfigurationError(
        "this gate's store is not a PostgreSQL database, so the record could not share your transaction; open the gate "
        f"on the same database: {gate}('postgresql://...', ...)"
    )


def transaction_has_ended(connection: Connection) -> bool:
    """Whether the caller's transaction is over."""
    return connection.closed or connection.pgconn.transaction_status == _IDLE


def statement_failure(
    connection: Connection, effect: SendStatements | SendRollback, results: list[Any], error: BaseException
) -> StatementFailed:
    """Which of several statements failed: the one after those that have results."""
    failed = StatementFailed(len(results), error)
    if failed.code in STALE_STATEMENT:
        forget_prepared(connection, effect)
    return failed
