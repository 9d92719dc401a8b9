"""
One database of a tenant's: its file, the connection its SQL runs on, and the gates that keep its records in it.

    BEGIN IMMEDIATE
      SAVEPOINT  claim, statements, settle  RELEASE      one request, through `gate.atomic` or a plan's step
      SAVEPOINT  ...                        ROLLBACK TO  another one failed: only its own work is undone
    COMMIT                                               one sync for all of them; then they are answered

The core decides what a key means; this only carries the statements to it and the result back. The usual request (a key
that is new, or whose result is there) needs no gate: its record is looked for, and put settled, in the group's own
transaction, by the core's own rules (`KeyedScope`).
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from json import loads
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from onceward._core.codec import JSON
from onceward._core.errors import IllegalMove, OncewardError, OutcomeUnknown, RetryTransaction, StoreFull
from onceward._core.operation_flow import peeked_outcome
from onceward.gate import Gate, Sealed
from onceward.gate.call_factory import PurgeSchedule
from onceward.protocol.errors import SqlError, SqlKind
from onceward.protocol.sql_values import json_text
from onceward.runtime import failpoints
from onceward.runtime.environment import REAL, Environment
from onceward.service.sql.closed_databases import closed_error, is_closed
from onceward.service.sql.database_pages import DatabasePages
from onceward.service.sql.keyed_scope import CHANCE_BYTES, NAME, KeyedScope
from onceward.service.sql.limits import Limits
from onceward.service.sql.requests import Keyed, SqlRequest, Step
from onceward.service.sql.session import NEVER, Session, connect
from onceward.service.sql.sqlite_errors import DRIVER_ERRORS, commit_was_refused, translate_sqlite_error
from onceward.service.sql.statement_timer import StatementTimer
from onceward.service.sql.worker_errors import NotReplayed, NotRun, SliceUsed
from onceward.stores import Store
from onceward.stores._sqlite_rows import peek, put_in
from onceward.stores.sqlite import SqliteStore

T = TypeVar("T")

REQUEST = failpoints.declare("sql.request.before", "a group's transaction is open | a request of it runs")
RAN = failpoints.declare("sql.request.after", "a request and its record are written | the next one, or the commit")
COMMIT = failpoints.declare("sql.commit.before", "every request of a group is written | they are committed")
COMMITTED = failpoints.declare("sql.commit.after", "a group is committed | anybody is answered")

GATES_MAX = 256
"""Scopes whose gates are kept at hand for one database."""


class RequestResult(NamedTuple):
    """A request that was done, or whose first result was found."""

    text: bytes
    """Its result as JSON. A replay's is what was stored, byte for byte."""
    replayed: bool
    grown: int = 0
    """How many more bytes of the database are in use."""

    @property
    def document(self) -> dict[str, Any]:
        """What the text says."""
        found: dict[str, Any] = loads(self.text)
        return found


RequestOutcome: TypeAlias = RequestResult | OncewardError


class GroupObserver(Protocol):
    """Follows how far a group has come."""

    def at(self, number: int) -> None:
        """Request `number` of the group begins."""

    def committing(self) -> None:
        """From here on it is not known whether the group is committed."""

    def group_ended(self) -> None:
        """The group's transaction is over, and nothing of it is open."""


class NoGroupObserver:
    """Ignores it all."""

    def at(self, number: int) -> None:
        """Ignored."""

    def committing(self) -> None:
        """Ignored."""

    def group_ended(self) -> None:
        """Ignored."""


class WritableDatabase:
    """A database open for writing."""

    def __init__(
        self,
        path: Path,
        limits: Limits,
        options: Mapping[str, Any],
        *,
        watcher: GroupObserver | None = None,
        environment: Environment = REAL,
        timer: StatementTimer | None = None,
        quick: bool = False,
    ) -> None:
        self.path = path
        self.limits = limits
        self._options = options
        self._watcher: GroupObserver = watcher or NoGroupObserver()
        self._environment = environment
        # Creates the file if it is not there, and our tables in it, before any limit is set.
        self.store: Store = SqliteStore(path, environment=environment)
        _index_by_age(path)
        try:
            self.connection = connect(path, limits)
        except BaseException:
            self.store.close()
            raise
        self.session = Session(self.connection, limits, environment, timer=timer, quick=quick)
        self._own = self.connection.cursor()
        """For statements of ours: to make a cursor for each would cost as much as most of them."""
        self.pages = DatabasePages(self._own, limits)
        self._clock = environment.monotonic if timer is None else timer.clock
        self._group_seconds = NEVER
        if timer is not None:
            self._group_seconds = limits.slice_seconds if quick else limits.statement_seconds
        self._main_gate: Gate | None = None
        """Owns what the gates of all scopes share: closing it ends that before the store is closed."""
        self._gates: OrderedDict[str, tuple[Gate, KeyedScope]] = OrderedDict()
        self._purges = PurgeSchedule()
        self._seal: Sealed | None = None
        self._sealed_only = False
        self._seal_keys: tuple[str, ...] = ()

    def close(self) -> None:
        """Let go of the file."""
        with suppress(sqlite3.ProgrammingError):  # Closing twice is fine.
            self._own.close()  # Its statement would keep the file open.
        self.session.close()
        if self._main_gate is not None:
            self._main_gate.close()
        self.store.close()

    def seal_with(self, keys: Sequence[str], *, sealed_only: bool = False) -> None:
        """Seal records under the first of these keys from now on, and open them with all."""
        if self._seal is None:
            self._seal, self._sealed_only = Sealed(*keys), sealed_only
            self._main_gate = None
            self._gates.clear()
        elif tuple(keys) != self._seal_keys:
            self._seal.use(*keys)
        self._seal_keys = tuple(keys)

    def group(self, requests: Sequence[SqlRequest]) -> list[RequestOutcome]:
        """
        Run requests in one transaction, each in a savepoint of its own; their outcomes, once they are committed.

        A request that fails does not fail its neighbours. If one ends the transaction (a deadline or a full file does
        that to a statement that writes), or if the commit is refused (a deferred constraint), the others run again.

        A group has its time, like a request. When that is over, or a request has used up its slice (`SliceUsed`), what
        was done is committed, and the requests behind it are `NotRun`.
        """
        settled: dict[int, RequestOutcome] = {}
        todo = list(range(len(requests)))
        alone = False
        self._until = self._clock() + self._group_seconds
        try:
            while todo:
                taken = todo[:1] if alone else todo
                try:
                    settled.update(self._transaction(requests, taken))
                except _NotBegun as error:
                    settled.update(dict.fromkeys(todo, error.meaning))
                except DRIVER_ERRORS as error:
                    self._undo()
                    if not commit_was_refused(error):
                        settled.update({number: _commit_failed(requests[number], error) for number in taken})
                    elif len(taken) == 1:
                        settled[taken[0]] = translate_sqlite_error(error)
                    alone = True
                todo = self._left(todo, settled)
        finally:
            self._undo()  # Nothing is open, unless an interrupt came; then nothing must stay open.
            self._watcher.group_ended()
        self._tidy()
        return [settled[number] for number in range(len(requests))]

    def _transaction(self, requests: Sequence[SqlRequest], numbers: list[int]) -> dict[int, RequestOutcome]:
        """One transaction; the outcomes that are final. The driver's error if the commit was refused."""
        connection = self.connection
        try:
            connection.execute("BEGIN IMMEDIATE")
        except DRIVER_ERRORS as error:
            raise _NotBegun(translate_sqlite_error(error)) from error
        if is_closed(connection):
            self._undo()
            raise _NotBegun(closed_error())
        self.pages.begin()
        outcomes: dict[int, RequestOutcome] = {}
        for number in numbers:
            if outcomes and self._clock() > self._until:
                outcomes[number] = NotRun()
                break
            self._watcher.at(number)
            failpoints.hit(REQUEST)
            outcomes[number] = ended = self._outcome(requests[number])
            failpoints.hit(RAN)
            if not connection.in_transaction:
                # It has undone everybody's work. Its own error stands; without one nobody knows what it did.
                return {number: ended if isinstance(ended, OncewardError) else OutcomeUnknown()}
            if isinstance(ended, SliceUsed):
                break
        if all(isinstance(outcome, SliceUsed) for outcome in outcomes.values()):
            self._undo()
            return outcomes
        self._watcher.committing()
        failpoints.hit(COMMIT)
        connection.execute("COMMIT")
        failpoints.hit(COMMITTED)
        return outcomes

    @staticmethod
    def _left(todo: list[int], settled: dict[int, RequestOutcome]) -> list[int]:
        """What is still to be done; what stands behind one that is not to run here is not run here, either."""
        stopped = min((number for number in todo if isinstance(settled.get(number), SliceUsed | NotRun)), default=None)
        if stopped is not None:
            settled.update({number: NotRun() for number in todo if number > stopped and number not in settled})
        return [number for number in todo if number not in settled]

    def _undo(self) -> None:
        with suppress(*DRIVER_ERRORS):
            self.connection.rollback()

    def _outcome(self, request: SqlRequest) -> RequestOutcome:
        try:
            identity = request.identity
            if type(identity) is Keyed and (done := self._keyed(request, identity)) is not None:
                return done
            self.pages.allow(request.growth)
            text, replayed = self._perform(request)
            return RequestResult(text, replayed, self.pages.grown())
        except StoreFull:
            return self.pages.full()
        except SqlError as error:
            return self.pages.full(error.statement) if error.kind is SqlKind.FULL else error
        except RetryTransaction as error:
            return SqlError(SqlKind.LOCKED, str(error), retry_after_seconds=1.0)
        except OncewardError as error:
            return error
        except DRIVER_ERRORS as error:
            meant = translate_sqlite_error(error)
            return self.pages.full() if isinstance(meant, SqlError) and meant.kind is SqlKind.FULL else meant

    def _keyed(self, request: SqlRequest, identity: Keyed) -> RequestResult | None:
        """
        The first result of a key, or that of the statements if nothing stands under it; None: let the gate find out.

        The group's transaction has the file's write lock, so that nobody comes between the look and the put. Who may
        only read is asked what it may first, below.
        """
        if request.readonly or request.replay_only or self._seal is not None or failpoints.armed():
            return None
        scope = self._gate(identity.scope)[1]
        if scope.is_heard:
            return None
        named, fingerprint = scope.named(identity.key), request.fingerprint()
        seen = peek(self._own, named[1], self._environment.wall_us())
        if seen is not None:
            # Read, although it is sent as it is: what is no result must not be sent as one.
            if seen.codec != JSON or seen.result is None or peeked_outcome(seen, fingerprint, None) is None:
                return None
            return RequestResult(seen.result, True)

        def work() -> bytes:
            text = scope.kept(self.session.run(request))
            self._check_not_ended()
            write = scope.settled(named, fingerprint, text, self._environment.random(CHANCE_BYTES))
            if not put_in(self._own, write, None, self._environment.wall_us()).landed:
                raise IllegalMove("a record stands under this key that was not there before its statements ran")
            return text

        self.pages.allow(request.growth)
        text = self._in_savepoint(work)
        self._purges.left -= 1
        return RequestResult(text, False, self.pages.grown())

    def _check_not_ended(self) -> None:
        """A record that is put after the transaction has ended would commit alone."""
        if not self.connection.in_transaction:
            raise IllegalMove("the transaction of this request ended by itself")

    def _perform(self, request: SqlRequest) -> tuple[bytes, bool]:
        """What came of it as JSON, and whether it had run before."""
        ran = False

        def work() -> dict[str, Any]:
            nonlocal ran
            if request.replay_only:
                raise NotReplayed
            ran = True
            return self.session.run(request)

        if request.readonly and request.identity is not None:
            # Before the key is looked up: whoever may not do something does not learn what it came to, either.
            self.session.refuse_writes(request)
        match request.identity:
            case Keyed(scope, key):
                document: Any = self._gate(scope)[0].atomic(
                    self.connection, key, work, request=request.fingerprint_fields(), name=NAME
                )
            case Step(scope, plan, step):
                steps = self._gate(scope)[0].plan(plan)
                document = steps.step(
                    step, work, request=request.fingerprint_fields(), name=NAME, connection=self.connection
                )
            case None:
                return json_text(self._in_savepoint(work)).encode(), False
        if ran:
            self._purges.left -= 1
        return json_text(document).encode(), not ran

    def _in_savepoint(self, work: Callable[[], T]) -> T:
        connection, execute = self.connection, self._own.execute
        execute("SAVEPOINT request")
        try:
            done = work()
        except BaseException:
            if connection.in_transaction:
                execute("ROLLBACK TO request")
                execute("RELEASE request")
            raise
        execute("RELEASE request")
        return done

    def _gate(self, scope: str) -> tuple[Gate, KeyedScope]:
        """The gate of a scope, and what its usual requests need instead."""
        found = self._gates.pop(scope, None)
        if found is None:
            if self._main_gate is None:
                self._main_gate = Gate(
                    self.store,
                    scope=scope,
                    environment=self._environment,
                    in_flight="refuse",
                    result_bytes_max=self.limits.value_bytes,
                    seal=self._seal,
                    sealed_only=self._sealed_only,
                    **self._options,
                )
            gate = self._main_gate.scoped(scope)
            found = gate, KeyedScope(gate._call_factory)
            if len(self._gates) >= GATES_MAX:
                self._gates.popitem(last=False)
        self._gates[scope] = found
        return found

    def _tidy(self) -> None:
        """Purge a little, if it is time. (A gate that joins a transaction leaves that to a thread of its own.)"""
        if self._purges.is_due():
            with suppress(OncewardError):  # Tidying can wait; the callers cannot.
                self._purges.found(self.store.purge(PurgeSchedule.PURGE_LIMIT))


def _index_by_age(path: Path) -> None:
    """
    Let the file's records be listed by age without walking all of them. Other stores have no such index: they are not
    listed so, and every page that a write touches is one more to sync.
    """
    with suppress(*DRIVER_ERRORS), closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        connection.execute("CREATE INDEX IF NOT EXISTS onceward_age ON onceward_records (first_at)")


class ReadOnlyDatabase:
    """A database open for reading only."""

    def __init__(
        self,
        path: Path,
        limits: Limits,
        environment: Environment = REAL,
        *,
        timer: StatementTimer | None = None,
        quick: bool = False,
    ) -> None:
        self.path = path
        self.connection = connect(path, limits, readonly=True)
        self.session = Session(self.connection, limits, environment, timer=timer, quick=quick)

    def close(self) -> None:
        """Let go of the file."""
        self.session.close()

    def perform(self, request: SqlRequest) -> RequestOutcome:
        """Run a request in one snapshot. `readonly` says that it has to go to the writer, if the caller may write."""
        try:
            if request.batch:
                self.connection.execute("BEGIN")
            return RequestResult(json_text(self.session.run(request._replace(readonly=True))).encode(), False)
        except OncewardError as error:
            return error
        except DRIVER_ERRORS as error:
            return translate_sqlite_error(error)
        finally:
            if self.connection.in_transaction:
                with suppress(*DRIVER_ERRORS):
                    self.connection.rollback()


def _commit_failed(request: SqlRequest, error: BaseException) -> OncewardError:
    """A disk that fails while it commits: what it will say after its next start, nobody knows."""
    if request.repeatable:
        return translate_sqlite_error(error)
    return OutcomeUnknown(
        "the disk failed during the commit of this write, and it may have been written. Check whether it is; with an "
        "idempotency key it can be sent again safely"
    )


class _NotBegun(Exception):
    """The transaction could not be begun, so nobody's request was run."""

    def __init__(self, meaning: OncewardError) -> None:
        super().__init__(str(meaning))
        self.meaning = meaning
