"""
Atomic mode on the caller's own psycopg connection, of either colour.

With no transaction open, one is opened and ended by us. Inside the caller's transaction a savepoint is used, and the
caller commits. A connection in autocommit with no transaction open is refused: the record would commit alone.

Statements that follow one another are sent together (psycopg's pipeline mode), so that atomic mode adds few round
trips: begin and claim are one, settle and commit are one. What is sent, and what its answers mean, is told once, in
`_Statements`: a generator that yields what to send. The two classes below it send.

Under READ COMMITTED a racer waits at the constraint, as long as the store's lock timeout allows, and replays the
winner. Above that level, on a deadlock and on a lock timeout, the caller has to run its transaction again:
`RetryTransaction`.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.numeric import Int8

from onceward._core.errors import ConfigurationError, IllegalMove, RetryTransaction
from onceward._core.record import Record, Standing, Write
from onceward.gate.joining import ENDED
from onceward.stores import _postgres_rows as rows
from onceward.stores._postgres_errors import DRIVER_ERRORS, meaning_of
from onceward.stores.postgres import AsyncPostgresStore, PostgresStore

T = TypeVar("T")
_Connection: TypeAlias = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

ASKS = 10
"""Of a put whose snapshot was too old: under READ COMMITTED the second knows."""

_RUN_AGAIN = frozenset(("40001", "40P01", "55P03"))
"""Serialization failure, deadlock, lock timeout."""
_FAILED = "25P02"
"""The transaction has failed already: somebody swallowed an error."""
_NO_SAVEPOINT = "3B001"
_NOT_LANDED, _NOT_OURS = "22012", "2201F"
"""Division by zero, root of a negative number: how an ending stops what was sent after it."""
_SWALLOWED = "a statement of your transaction had failed, so it can only be rolled back; let the error through"

_XID = ", CASE WHEN landed.fence IS NOT NULL THEN txid_current() END"
"""Last in the answer of a claim: which transaction it is in. If the function ends that, it is found out by this."""
_OR_STOP = (
    ", sqrt(CASE WHEN %(xid)s::bigint IS NULL OR txid_current() = %(xid)s::bigint THEN 1 ELSE -1 END)"
    ", 1 / CASE WHEN landed.fence IS NOT NULL THEN 1 ELSE 0 END"
)
"""Last in the answer of an ending: an error unless it is in our transaction and landed, so that no commit follows."""
_CLAIM = rows.claim_statement(rows.JOINED_CLOCK, rows.RESTORED + _XID)
_SWAP = rows.swap_statement(rows.JOINED_CLOCK, rows.RESTORED + _XID)
_END_FRESH = rows.claim_statement(rows.JOINED_CLOCK, rows.RESTORED + _OR_STOP)
_END = rows.swap_statement(rows.JOINED_CLOCK, rows.RESTORED + _OR_STOP)
_PEEK = (
    b"WITH found AS (%s) SELECT CASE WHEN found.state IS DISTINCT FROM 'settled' THEN txid_current() END, found.* "
    b"FROM (SELECT 1) AS one LEFT JOIN found ON true" % rows.FIND
)
_BECAME = b"SELECT txid_status(%(xid)s::bigint)"
_NOTHING: Mapping[str, Any] = {}
_verified: weakref.WeakKeyDictionary[_Connection, tuple[Any, ...]] = weakref.WeakKeyDictionary()
"""Connections that have been looked at and found good, and what they are connected to."""


class _Statement(NamedTuple):
    sql: bytes
    parameters: Mapping[str, Any] = _NOTHING
    is_command: bool = False
    """Answers nothing."""


def _savepoint(verb: bytes, name: bytes) -> _Statement:
    return _Statement(b"%b %b" % (verb, name), is_command=True)


class _Send(NamedTuple):
    """Send these, in one round trip if the driver can; the answer is the rows of each."""

    statements: Sequence[_Statement]
    begin: bytes | None
    """What opens the transaction, if it is to be opened."""


class _Failed(Exception):
    """One of several statements failed, and those after it were not carried out."""

    def __init__(self, number: int, error: BaseException) -> None:
        self.number = number
        self.error = error
        self.code: str | None = error.sqlstate if isinstance(error, psycopg.Error) else None


class _Identify:
    """Which database the gate's store is."""


_IDENTIFY: Final = _Identify()
_Flow: TypeAlias = Generator[_Send | _Identify, Any, T]
_COMMIT = _Statement(b"COMMIT", is_command=True)
_ROLLBACK = _Statement(b"ROLLBACK")
"""
Always sent alone, and so is a rollback to a savepoint: psycopg then drops what it has prepared, which in a pipeline
would hit what is prepared there.
"""


class _Opened(NamedTuple):
    """What a `begin` opened: a savepoint of that name, or (None) the transaction itself."""

    savepoint: bytes | None


class _Statements:
    """What is sent on one connection for one call."""

    def __init__(self, connection: _Connection, store: PostgresStore | AsyncPostgresStore) -> None:
        self._connection = connection
        self._target = store.target
        self._opened: list[_Opened] = []
        """Innermost last."""
        self._unsent = False
        """Whether the first `begin` is still to be sent: it goes along with the statement after it."""
        self._xid: int | None = None
        """The transaction that we opened, once something in it is ours to lose."""
        self._parted = False
        """Whether the function has committed that transaction by itself."""

    @property
    def _status(self) -> TransactionStatus:
        return TransactionStatus(self._connection.pgconn.transaction_status)

    def begin(self) -> _Flow[bool]:
        connection = self._connection
        if connection.pgconn.pipeline_status != PipelineStatus.OFF:
            raise ConfigurationError(
                "this connection is in pipeline mode, where errors arrive late; use gate.atomic outside of "
                "connection.pipeline()"
            )
        if self._status == TransactionStatus.INERROR:
            raise IllegalMove(_SWALLOWED)
        opens = self._status == TransactionStatus.IDLE
        if opens and connection.autocommit:
            raise ConfigurationError(
                "this connection is in autocommit, so the record would commit alone; use connection.transaction(), or "
                "a connection that is not in autocommit"
            )
        ours = yield _IDENTIFY  # Before anything else: it makes the tables if they are not there.
        if not self._opened:
            self._unsent, self._xid, self._parted = True, None, False
        self._opened.append(_Opened(None if opens else b"onceward_%d" % len(self._opened)))
        if not self._unsent:
            yield from self._send(_savepoint(b"SAVEPOINT", self._opened[-1].savepoint or b""))
        elif _verified.get(connection) != ours:
            yield from self._verify(ours)
        return opens

    def _verify(self, ours: tuple[Any, ...]) -> _Flow[None]:
        """Once for each connection: that its rows and our records are in one database, and its path leads to them."""
        [[theirs]] = yield from self._send(_Statement(rows.IDENTITY))
        if tuple(theirs) != ours:
            yield from self.rollback()
            info = self._connection.info
            raise ConfigurationError(
                "atomic mode needs your rows and the gate's records in one database: your connection is open on "
                f"{info.dbname} at {info.host}, the gate's store is {self._target.name}"
            )
        _verified[self._connection] = ours

    def put(self, write: Write, expect: bytes | None) -> _Flow[Standing]:
        statement = self._put(_CLAIM if expect is None else _SWAP, write, expect)
        for _ in range(ASKS):
            [[row]] = yield from self._send(statement)
            standing = rows.standing_of(row, write, expect)
            if standing is not None:
                if standing.landed and self._opened[0].savepoint is None:
                    self._xid = row[-1]
                return standing
        raise RetryTransaction("your transaction cannot see who won; roll it back and run it again with the same key")

    def load(self, id: bytes) -> _Flow[Record | None]:
        [[row]] = yield from self._send(_Statement(_PEEK, {"id": id}))
        if self._opened[0].savepoint is None:
            self._xid = row[0]
        return None if row[2] is None else rows.record_of(row[1], row[2:])

    def extend(self, family: bytes, replay: int, forget: int) -> _Flow[int]:
        lives = {"family": family, "replay": Int8(replay), "forget": Int8(forget)}
        [extended] = yield from self._send(_Statement(rows.JOINED_EXTEND, lives))
        return len(extended)

    def finish(self, write: Write, expect: bytes | None) -> _Flow[Standing]:
        if self._status == TransactionStatus.IDLE:
            raise IllegalMove(ENDED)
        ending = self._put(_END_FRESH if expect is None else _END, write, expect)
        try:
            [[row], _] = yield from self._sent(ending, self._ending())
        except _Failed as failed:
            if failed.number == 0 and failed.code == _NOT_OURS:
                raise IllegalMove(ENDED) from None
            if failed.number or failed.code != _NOT_LANDED:
                raise self._meaning(failed) from failed.error
            return (yield from self._not_landed(write))
        self._opened.pop()
        return Standing(True, rows.standing_of(row, write, expect).record)  # type: ignore[union-attr] # Else it stops.

    def _not_landed(self, write: Write) -> _Flow[Standing]:
        if not write.rise:
            raise IllegalMove(ENDED)  # Nobody but the function itself could have taken away our claim.
        savepoint = self._opened.pop().savepoint
        find = _Statement(rows.FIND, {"id": write.id})
        undone, [found] = yield from self._undo(savepoint, find)
        if not undone:
            self._parted = True
            raise IllegalMove(ENDED)
        return Standing(False, rows.record_of(found[0][0], found[0][1:]) if found else None)

    def commit(self) -> _Flow[None]:
        if self._status == TransactionStatus.IDLE and not self._unsent:
            raise IllegalMove(ENDED)
        yield from self._send(self._ending())
        self._opened.pop()

    def _ending(self) -> _Statement:
        savepoint = self._opened[-1].savepoint
        return _COMMIT if savepoint is None else _savepoint(b"RELEASE SAVEPOINT", savepoint)

    def rollback(self) -> _Flow[bool]:
        if not self._opened:
            return not self._parted
        savepoint = self._opened.pop().savepoint
        if self._unsent or self._is_closed():
            self._unsent = False
            return True  # Nothing was sent; or the server has undone it.
        undone, _ = yield from self._undo(savepoint)
        return undone

    def _undo(self, savepoint: bytes | None, *more: _Statement) -> _Flow[tuple[bool, list[Any]]]:
        """Undo, then look. False: somebody else had ended it."""
        try:
            if savepoint is None:
                return (yield from self._roll_back(*more))
            return (yield from self._roll_back_to(savepoint, *more))
        except _Failed as failed:
            if self._is_closed():
                return True, [[] for _ in more]
            raise self._meaning(failed) from failed.error

    def _is_closed(self) -> bool:
        return self._connection.closed

    def _roll_back(self, *more: _Statement) -> _Flow[tuple[bool, list[Any]]]:
        """The transaction that we opened; or whatever the function has opened in its place."""
        if self._status != TransactionStatus.IDLE:
            yield _Send((_ROLLBACK,), None)
        if self._xid is None and not more:
            return True, []
        became = _Statement(_BECAME, {"xid": None if self._xid is None else Int8(self._xid)})
        [[(was,)], *found, _] = yield _Send((became, *more, _COMMIT), b"BEGIN")
        return self._xid is None or was == "aborted", found

    def _roll_back_to(self, savepoint: bytes, *more: _Statement) -> _Flow[tuple[bool, list[Any]]]:
        if self._status == TransactionStatus.IDLE:
            return False, [[] for _ in more]
        try:
            yield _Send((_Statement(b"ROLLBACK TO SAVEPOINT %b" % savepoint),), None)
        except _Failed as failed:
            if failed.code != _NO_SAVEPOINT:
                raise
            # Not the transaction we were given: at least what has been begun since can be undone.
            yield _Send((_ROLLBACK,), None)
            return False, [[] for _ in more]
        [_, *found] = yield _Send((_savepoint(b"RELEASE SAVEPOINT", savepoint), *more), None)
        return True, found

    def _put(self, sql: bytes, write: Write, expect: bytes | None) -> _Statement:
        parameters = rows.put_parameters(write, expect, self._target.lock_timeout, relaxed=False)
        parameters["xid"] = self._xid
        # One type for all numbers, whatever their size: each set of types is a prepared statement of its own.
        return _Statement(sql, {name: Int8(one) if type(one) is int else one for name, one in parameters.items()})

    def _send(self, *statements: _Statement) -> _Flow[list[Any]]:
        try:
            return (yield from self._sent(*statements))
        except _Failed as failed:
            raise self._meaning(failed) from failed.error

    def _sent(self, *statements: _Statement) -> _Flow[list[Any]]:
        answers: list[Any]
        if not self._unsent:
            answers = yield _Send(statements, None)
            return answers
        self._unsent = False
        savepoint = self._opened[-1].savepoint
        if savepoint is None:
            answers = yield _Send(statements, _begin_statement(self._connection))
            return answers
        answers = yield _Send((_savepoint(b"SAVEPOINT", savepoint), *statements), None)
        return answers[1:]

    def _meaning(self, failed: _Failed) -> BaseException:
        """Turn what PostgreSQL says about our own statements into our errors; the caller's are not run here."""
        code, error = failed.code, failed.error
        if code in _RUN_AGAIN:
            return RetryTransaction(f"{error}; roll back and run your transaction again with the same key")
        if code == _FAILED:
            return IllegalMove(_SWALLOWED)
        if code == _NO_SAVEPOINT:
            return IllegalMove(ENDED)
        if code is not None and code.startswith("23"):
            return error  # A constraint of the caller's own that is checked at commit.
        return meaning_of(error, self._target.name)


def _begin_statement(connection: _Connection) -> bytes:
    """How the caller has set up its transactions."""
    words = ["BEGIN"]
    if connection.isolation_level is not None:
        words.append(f"ISOLATION LEVEL {psycopg.IsolationLevel(connection.isolation_level).name.replace('_', ' ')}")
    if connection.read_only is not None:
        words.append("READ ONLY" if connection.read_only else "READ WRITE")
    if connection.deferrable is not None:
        words.append("DEFERRABLE" if connection.deferrable else "NOT DEFERRABLE")
    return " ".join(words).encode()


# Sending.


def join(connection: Any, store: object) -> JoinedPsycopg:
    """See `onceward.gate.joining.join`."""
    if not isinstance(store, PostgresStore):
        raise ConfigurationError(
            "this gate's store is not a PostgreSQL database, so the record could not share your transaction; open the "
            "gate on the same database: Gate('postgresql://...', ...)"
        )
    if not isinstance(connection, psycopg.Connection):
        raise ConfigurationError(
            f"atomic mode of a Gate knows psycopg.Connection, not {type(connection).__name__}; for an AsyncConnection "
            "use AsyncGate"
        )
    return JoinedPsycopg(connection, store)


def join_async(connection: Any, store: object) -> AsyncJoinedPsycopg:
    """See `onceward.gate.joining.join_async`."""
    if not isinstance(store, AsyncPostgresStore):
        raise ConfigurationError(
            "this gate's store is not a PostgreSQL database, so the record could not share your transaction; open the "
            "gate on the same database: AsyncGate('postgresql://...', ...)"
        )
    if not isinstance(connection, psycopg.AsyncConnection):
        raise ConfigurationError(
            f"atomic mode of an AsyncGate knows psycopg.AsyncConnection, not {type(connection).__name__}: waiting for "
            "a racer would stop the event loop; for a blocking connection use Gate"
        )
    return AsyncJoinedPsycopg(connection, store)


class JoinedPsycopg:
    """The caller's `psycopg.Connection`."""

    def __init__(self, connection: psycopg.Connection[Any], store: PostgresStore) -> None:
        self._connection = connection
        self._store = store
        self._statements = _Statements(connection, store)

    def begin(self) -> bool:
        """See `Joined.begin`."""
        return self._run(self._statements.begin())

    def put(self, write: Write, expect: bytes | None) -> Standing:
        """See `Joined.put`."""
        return self._run(self._statements.put(write, expect))

    def load(self, id: bytes) -> Record | None:
        """Look at a record inside the transaction."""
        return self._run(self._statements.load(id))

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """See `Joined.extend`."""
        return self._run(self._statements.extend(family, replay, forget))

    def finish(self, write: Write, expect: bytes | None) -> Standing:
        """Put and commit in one round trip; if it does not land, roll back."""
        return self._run(self._statements.finish(write, expect))

    def commit(self) -> None:
        """See `Joined.commit`."""
        self._run(self._statements.commit())

    def rollback(self) -> bool:
        """See `Joined.rollback`."""
        return self._run(self._statements.rollback())

    def _run(self, flow: _Flow[T]) -> T:
        try:
            effect = next(flow)
            while True:
                try:
                    answer = self._store.identity if isinstance(effect, _Identify) else self._send(effect)
                except _Failed as failed:
                    effect = flow.throw(failed)
                else:
                    effect = flow.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value

    def _send(self, effect: _Send) -> list[Any]:
        """On cursors of our own kind: the caller's rows may be made into anything."""
        connection = self._connection
        cursors: list[psycopg.Cursor[Any] | None] = []
        try:
            if _goes_together(effect):
                with connection.pipeline() as pipeline:
                    if effect.begin is not None:
                        _send_command(pipeline, effect.begin)
                    for sql, parameters, is_command in effect.statements:
                        if is_command:
                            _send_command(pipeline, sql)
                            cursors.append(None)
                        else:
                            cursors.append(cursor := psycopg.Cursor(connection, row_factory=tuple_row))
                            cursor.execute(sql, parameters or None, binary=True, prepare=bool(parameters))
            else:
                for sql, parameters, _ in effect.statements:
                    cursors.append(cursor := psycopg.Cursor(connection, row_factory=tuple_row))
                    cursor.execute(sql, parameters or None, binary=True)
        except DRIVER_ERRORS as error:
            raise _Failed(_done(cursors), error) from error
        return [[] if cursor is None or not _has_rows(cursor) else cursor.fetchall() for cursor in cursors]


class AsyncJoinedPsycopg:
    """The caller's `psycopg.AsyncConnection`."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], store: AsyncPostgresStore) -> None:
        self._connection = connection
        self._store = store
        self._statements = _Statements(connection, store)

    async def begin(self) -> bool:
        """See `Joined.begin`."""
        return await self._run(self._statements.begin())

    async def put(self, write: Write, expect: bytes | None) -> Standing:
        """See `Joined.put`."""
        return await self._run(self._statements.put(write, expect))

    async def load(self, id: bytes) -> Record | None:
        """Look at a record inside the transaction."""
        return await self._run(self._statements.load(id))

    async def extend(self, family: bytes, replay: int, forget: int) -> int:
        """See `Joined.extend`."""
        return await self._run(self._statements.extend(family, replay, forget))

    async def finish(self, write: Write, expect: bytes | None) -> Standing:
        """Put and commit in one round trip; if it does not land, roll back."""
        return await self._run(self._statements.finish(write, expect))

    async def commit(self) -> None:
        """See `Joined.commit`."""
        await self._run(self._statements.commit())

    async def rollback(self) -> bool:
        """See `Joined.rollback`."""
        return await self._run(self._statements.rollback())

    async def _run(self, flow: _Flow[T]) -> T:
        try:
            effect = next(flow)
            while True:
                try:
                    if isinstance(effect, _Identify):
                        answer: Any = await self._store.identify()
                    else:
                        answer = await self._send(effect)
                except _Failed as failed:
                    effect = flow.throw(failed)
                else:
                    effect = flow.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value

    async def _send(self, effect: _Send) -> list[Any]:
        connection = self._connection
        cursors: list[psycopg.AsyncCursor[Any] | None] = []
        try:
            if _goes_together(effect):
                async with connection.pipeline() as pipeline:
                    if effect.begin is not None:
                        _send_command(pipeline, effect.begin)
                    for sql, parameters, is_command in effect.statements:
                        if is_command:
                            _send_command(pipeline, sql)
                            cursors.append(None)
                        else:
                            cursors.append(cursor := psycopg.AsyncCursor(connection, row_factory=tuple_row))
                            await cursor.execute(sql, parameters or None, binary=True, prepare=bool(parameters))
            else:
                for sql, parameters, _ in effect.statements:
                    cursors.append(cursor := psycopg.AsyncCursor(connection, row_factory=tuple_row))
                    await cursor.execute(sql, parameters or None, binary=True)
        except DRIVER_ERRORS as error:
            raise _Failed(_done(cursors), error) from error
        return [[] if cursor is None or not _has_rows(cursor) else await cursor.fetchall() for cursor in cursors]


def _goes_together(effect: _Send) -> bool:
    """Whether there is more than one statement, and libpq (from 14) can send them together."""
    return (effect.begin is not None or len(effect.statements) > 1) and psycopg.Pipeline.is_supported()


def _send_command(pipeline: psycopg.Pipeline | psycopg.AsyncPipeline, command: bytes) -> None:
    """
    Send a command along with the rest, and leave its answer to the end of the pipeline.

    psycopg would send a BEGIN by itself and wait for its answer; and after every statement it looks whether an earlier
    one has failed, and then says so in the log.
    """
    pipeline.pgconn.send_query_params(command, None)
    pipeline.result_queue.append(None)


def _has_rows(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> bool:
    """Cheaper than the cursor's `description`, which is made anew each time."""
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


def _done(cursors: Sequence[psycopg.Cursor[Any] | psycopg.AsyncCursor[Any] | None]) -> int:
    """How many statements with an answer were answered before one failed."""
    return sum(cursor is not None and cursor.pgresult is not None for cursor in cursors)
