# Made from gate_async.py by `make halves`: change that file, not this one.
"""
`Gate` runs operations once, each under its key. It performs what the flows of `_core` decide.

    gate = Gate("sqlite:///agent.db", scope="live:acme")

    @gate.once(key="charge:{order_id}", guarantee="keyed")
    def charge(operation: Operation, order_id: str, amount: Decimal) -> dict[str, str]: ...

A shell performs effects: it calls the store, the user's function, the clock. It decides nothing. A caller who is
interrupted is dealt with by the driver and the flow: before the function has begun its effect the claim is released,
from there on it is unknown what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from functools import partial, wraps
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, cast, overload

from onceward._core import advice
from onceward._core.caller_transaction import CallerTransaction
from onceward._core.capabilities import capabilities_of, check_colour
from onceward._core.dead_letters import KEEP, PAYLOAD_BYTES_MAX
from onceward._core.durations import SECOND
from onceward._core.errors import ConfigurationError, OncewardError, StoreUnavailable
from onceward._core.events import Listener
from onceward._core.flow import AfterCommit, Flow, Raised, Returned
from onceward._core.keys import check_scope
from onceward._core.operation import Found, NotFound, Operation, Outcome
from onceward._core.operation_flow import OperationRequest, reconcile
from onceward._core.record import Record, new_tuple
from onceward._core.sealing import Seal, make_sealer
from onceward._core.store_protocols import PurgeResult, Store
from onceward._core.terms import CallOptions, Options, Seconds, Terms
from onceward.adapters._transaction import join_by, run_in_transaction
from onceward.gate.atomic import AtomicBlock
from onceward.gate.atomic_line import AtomicLine
from onceward.gate.call_factory import (
    PURGE_BATCH,
    CallFactory,
    CallSpec,
    PreparedCall,
    PurgeSchedule,
    default_terms,
    log_purge_failure,
    refuse_accept,
    unreachable,
)
from onceward.gate.commit_watcher import CommitWatcher
from onceward.gate.dead_letter_box import DeadLetterBox
from onceward.gate.effect_runner import EffectRunner
from onceward.gate.function_inspection import publish_function
from onceward.gate.held_operation import HeldOperation
from onceward.gate.lease_renewer import LeaseRenewer
from onceward.gate.once_decorator import OnceDecorator
from onceward.gate.plan import Plan
from onceward.gate.purger import Purger
from onceward.gate.record_view import RecordView, view
from onceward.gate.records import Records
from onceward.gate.sealed_store import SealedStore
from onceward.gate.sequence import Sequence
from onceward.gate.straight_line import StraightLine
from onceward.gate.waiter_registry import WaiterRegistry
from onceward.gate.window import Window
from onceward.messaging.outbox.outbox import Outbox
from onceward.runtime.environment import Environment
from onceward.stores import open_store

T = TypeVar("T")


class Gate:
    """
    Operations go through once, and every caller learns the same answer.

    `store` is a URL or a store; `scope` says who is calling (environment and tenant, such as "live:acme"), and comes
    from configuration or authentication, never from a request. Any option of an operation (`lease`, `wait`, `retain`,
    `guarantee`, ...) may be given here as the default for all of them; durations are seconds or timedelta. `seal`
    encrypts what is stored of results and failures (`Sealed(key)`); `sealed_only` refuses to read any that are not.

    A gate that awaits runs async functions, and plain ones too, on its event loop; one that blocks runs plain ones.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        scope: str,
        listeners: Iterable[Listener] = (),
        environment: Environment | None = None,
        seal: Seal | None = None,
        sealed_only: bool = False,
        **options: Unpack[Options],
    ) -> None:
        # What no store could serve is refused before one is opened.
        sealer = make_sealer(seal, sealed_only=sealed_only)
        scope, terms = check_scope(scope), default_terms(options)
        opened = open_store(store) if isinstance(store, str) else check_colour(store, awaits=False)
        try:
            self._call_factory = CallFactory(
                scope,
                environment=environment,
                listeners=listeners,
                terms=terms,
                store=opened,
                sealer=sealer,
            )
        except ConfigurationError:
            if isinstance(store, str):
                opened.close()
            raise
        self.store: Store = opened if sealer is None else SealedStore(opened, sealer)
        self.environment = self._call_factory.environment
        self._waiters = WaiterRegistry(self.environment)
        self._renewer = LeaseRenewer(self.environment, self._renew)
        self._joins = capabilities_of(self.store).joins
        self._purge_schedule = PurgeSchedule()
        self._purger = Purger(self._tidy)
        tell = self._call_factory.tell
        self._commit_watcher = CommitWatcher(self.environment, self.store, tell, self._tidy)
        self._borrowed = False

    @property
    def scope(self) -> str:
        """Who the keys belong to."""
        return self._call_factory.scope

    def scoped(self, scope: str | None) -> Self:
        """
        This gate for another scope: the same store, terms and listeners.

        For services with many tenants; take the scope from who is authenticated. Close the gate it came from: closing
        this one does nothing.
        """
        twin = copy(self)
        twin._call_factory = self._call_factory.scoped(scope)
        twin._borrowed = True
        return twin

    def agreed(self, **options: Unpack[Options]) -> Terms:
        """The terms of an operation that is declared with these options; refused if they cannot work."""
        return self._call_factory.agreed(options)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every event from now on; returns the function that stops it."""
        return self._call_factory.listen(listener)

    # --- running operations ---

    def call(
        self,
        key: str,
        fn: Callable[..., Any],
        *,
        request: Any = None,
        name: str | None = None,
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Unpack[Options],
    ) -> Outcome[Any]:
        """
        Run `fn` once under `key`, and tell how that came about.

        `request` is what the key stands for: a retry must bring an equal one. `fn` takes nothing, or the operation. The
        value is what was stored, as JSON has it (a Decimal is text); `once` goes by its function's annotation.
        """
        factory = self._call_factory
        terms = factory.agreed(options) if options else factory.terms
        spec: CallSpec = new_tuple(CallSpec, (fn, request, name, probe, marked))
        prepared = factory.prepare_or_replay(key, spec, terms, awaits=False)
        if isinstance(prepared, Outcome):
            return prepared
        return self.operate(prepared)

    def call_on(
        self,
        terms: Terms,
        key: str,
        fn: Callable[..., Any],
        *,
        request: Any = None,
        name: str | None = None,
        probe: Callable[..., Any] | None = None,
    ) -> Outcome[Any]:
        """Run `fn` once under `key`, on terms that `agreed` gave: for adapters, which agree once and call often."""
        prepared = self._call_factory.prepare_or_replay(key, CallSpec(fn, request, name, probe), terms, awaits=False)
        if isinstance(prepared, Outcome):
            return prepared
        return self.operate(prepared)

    def prepare_on(
        self,
        terms: Terms,
        key: str,
        fn: Callable[[Operation], Any],
        *,
        request: bytes,
        name: str,
        probe: Callable[..., Any] | None = None,
    ) -> PreparedCall | Outcome[Any] | PreparedCall | Outcome[Any]:
        """
        The stored outcome, if a quick look finds it; otherwise a call for `operate` or `held`. For adapters whose
        function is always the same, and takes the operation; they have checked the key, and hashed the request.

        A gate that awaits gives a coroutine of either, if its store has to be waited for and has seen a result lately.
        """
        return self._call_factory.prepare_known(  # type: ignore[no-any-return]
            key, fn, request, name, terms, probe, awaits=False
        )

    def hold(
        self,
        key: str,
        *,
        request: Any = None,
        name: str = "",
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Unpack[Options],
    ) -> HeldOperation | Outcome[Any]:
        """
        Claim an operation whose work is more than one function call, such as a stream; say later how it ended.

        Returns the outcome if the operation has run before. Otherwise do the work, then call `end`, whatever happens.
        """
        terms = self._call_factory.agreed(options)
        call = CallSpec(unreachable, request, name, probe, marked)
        prepared = self._call_factory.prepare_or_replay(key, call, terms, awaits=False)
        return prepared if isinstance(prepared, Outcome) else self.held(prepared)

    def run(self, key: str, fn: Callable[..., Any], **options: Unpack[CallOptions]) -> Any:
        """Run `fn` once under `key`; the value alone."""
        if "in_flight" in options:
            refuse_accept(options)
        outcome = self.call(key, fn, **options)
        return outcome.answer if outcome.pending else outcome.value

    def once(
        self,
        *,
        key: str | Callable[..., str],
        name: str | None = None,
        exclude: tuple[str, ...] = (),
        connection: str | None = None,
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Unpack[Options],
    ) -> OnceDecorator:
        """
        Declare that a function runs once per key.

        `key` is a template over the arguments ("charge:{order_id}") or a function of them; the arguments are the
        request (`exclude` leaves some out). With guarantee="atomic", `connection` names the parameter that carries
        the connection whose transaction the record joins. `.call` on the result returns the whole outcome.
        """
        refuse_accept(options)
        terms = self._call_factory.agreed(options)

        def decorate(fn: Callable[..., Any]) -> Any:
            declared = self._call_factory.declare(
                fn,
                key,
                terms=terms,
                awaits=False,
                name=name,
                exclude=exclude,
                connection=connection,
                marked=marked,
                probe=probe,
            )

            def call(*args: Any, **kwargs: Any) -> Outcome[Any]:
                prepared, arguments = self._call_factory.prepare_declared(declared, terms, args, kwargs, probe)
                if isinstance(prepared, Outcome):
                    return prepared
                if declared.connection is not None:
                    joined = join_by(self._joins, arguments[declared.connection], self.store)
                    return self.operate_joined(prepared, joined)
                return self.operate(prepared)

            @wraps(fn)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                return call(*args, **kwargs).answer

            vars(wrapper).update(
                call=call, key_of=declared.key_of, contract=declared.contract(terms), __signature__=declared.signature
            )
            publish_function(wrapper, declared, terms)
            return wrapper

        return cast("OnceDecorator", decorate)

    @overload
    def atomic(
        self,
        connection: Any,
        key: str,
        fn: Callable[..., Any],
        *,
        request: Any = None,
        name: str | None = None,
        **options: Unpack[Options],
    ) -> Any: ...

    @overload
    def atomic(
        self, connection: Any, key: str, *, request: Any = None, name: str | None = None, **options: Unpack[Options]
    ) -> AtomicBlock: ...

    def atomic(
        self,
        connection: Any,
        key: str,
        fn: Callable[..., Any] | None = None,
        *,
        request: Any = None,
        name: str | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """
        Run `fn` once inside your own transaction: record and rows commit together, or not at all.

        With no transaction open on `connection`, one is opened and committed; inside yours, you commit. Without `fn`
        it is a block: `with gate.atomic(connection, key) as operation:`, which must call
        `operation.settle(value)` unless `operation.replayed`.
        """
        joined = join_by(self._joins, connection, self.store)
        parts = (self._call_factory.stored_key(key),)
        call = CallSpec(unreachable if fn is None else fn, request, name)
        prepared = self._call_factory.prepare_joined(parts, call, options, awaits=False, given=key)
        if fn is None:
            return AtomicBlock(prepared.request, AtomicLine(self, prepared, joined))
        return self._atomic(prepared, joined)

    def _atomic(self, prepared: PreparedCall, joined: CallerTransaction) -> Any:
        return self.operate_joined(prepared, joined).value

    def outbox(self, connection: Any) -> Outbox:
        """
        Messages that commit with your transaction on `connection`, and that a relay delivers afterwards.

        The connection is one that `atomic` knows, on this gate's database. Its tables are made when this is first
        prepared, on a connection of our own.
        """
        return Outbox(partial(run_in_transaction, connection, self.store), self.store, self.environment)

    # --- other shapes of the same idea ---

    def plan(self, plan: str, **options: Unpack[Options]) -> Plan:
        """A named series of steps, resumed step by step."""
        return Plan(self, self._call_factory, plan, options)

    def sequence(self, name: str, **options: Unpack[Options]) -> Sequence:
        """Operations numbered from 1, strictly in order, one writer at a time."""
        return Sequence(self, self._call_factory, name, options)

    def window(
        self, name: str, seconds: Seconds | None = None, *, money: bool = False, **options: Unpack[Options]
    ) -> Window:
        """Best-effort deduplication of equal requests for a while. Not for money."""
        return Window(self, self._call_factory, name, seconds, money=money, options=options)

    def dead_letters(
        self,
        *,
        payload: Literal["plain"] | Seal | None = None,
        keep: Seconds = KEEP / SECOND,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
    ) -> DeadLetterBox:
        """
        Where calls go that a retry policy gave up (`Retry(dead=gate.dead_letters())`), in this gate's store and scope.

        The arguments are left out unless `payload` says to keep them: "plain", or `Sealed(key)` for your eyes only.
        """
        return DeadLetterBox(self, self._call_factory, payload, keep, payload_bytes_max)

    # --- looking, deciding, tidying ---

    @property
    def records(self) -> Records:
        """The records of this scope: get one by its key, list them, list those in doubt."""
        return Records(self.store, self._call_factory)

    def reconcile(
        self, key: str, answer: Found | NotFound, *, fence: int | None = None, retain: Seconds | None = None
    ) -> RecordView:
        """
        Decide an in-doubt operation: `Found(result)` settles it, `NOT_FOUND` releases it.

        `fence` (the error says it) binds the answer to the attempt that was looked into. `retain` is how long the
        answer replays, if not as long as the gate's own.
        """
        about = self._call_factory.about((self._call_factory.stored_key(key),), retain=retain)
        return view(self.drive(reconcile(about.request, answer, fence), about))

    def purge(self, limit: int = PURGE_BATCH) -> PurgeResult:
        """Delete what may be forgotten and shrink what has expired, at most `limit` rows of either."""
        return self._call_factory.purged(self.store.purge(limit), limit)

    def close(self) -> None:
        """Stop renewing, let a purge that is under way end, and close the store."""
        if not self._borrowed:
            self._renewer.close()
            self._commit_watcher.close()
            self._purger.close()
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- performing effects ---

    def operate(self, prepared: PreparedCall) -> Outcome[Any]:
        """Run a prepared call once, or return its first result. For the shapes built on a gate, too."""
        try:  # As `_carry_through`, which would be one more call in the way of each.
            outcome = StraightLine(self, prepared).run()
        except OncewardError as error:
            advice.about_claimant(error, prepared.request.claimant)
            raise
        if self._purge_schedule.left <= 0 and self._purge_schedule.is_due():
            self._purger.follow()
        return outcome

    def operate_joined(self, prepared: PreparedCall, joined: CallerTransaction) -> Outcome[Any]:
        """The same in the caller's transaction."""
        return self._carry_through(prepared, AtomicLine(self, prepared, joined).run, purges=False)

    def drive(self, flow: Flow[T], prepared: PreparedCall) -> T:
        """Drive a flow to its end. For what is built on a gate and has a flow of its own (a sequence)."""
        outcome: T = self._carry_through(prepared, EffectRunner(self, prepared, None).drive, flow)
        return outcome

    def _carry_through(self, prepared: PreparedCall, way: Callable[..., T], *arguments: Any, purges: bool = True) -> T:
        """What a way to its end comes to; an error says which key it is about, and a purge follows if one is due."""
        try:
            outcome = way(*arguments)
        except OncewardError as error:
            advice.about_claimant(error, prepared.request.claimant)
            raise
        if purges and self._purge_schedule.is_due():
            self._purger.follow()
        return outcome

    def _tidy(self) -> None:
        """Purge a little, on the gate's own connection, behind the answer (`purger.py`)."""
        try:
            result = self.store.purge(PurgeSchedule.PURGE_LIMIT)
            self._purge_schedule.found(result)
            self._call_factory.purged(result, PurgeSchedule.PURGE_LIMIT)
        except StoreUnavailable:
            return
        except Exception:
            log_purge_failure()

    def _after(self, after: AfterCommit, joined: CallerTransaction | None) -> bool:
        """An atomic run has ended: count it, and tell of it after its commit. Whether a little is to be purged now."""
        self._purge_schedule.left -= 1
        tidies = self._purge_schedule.is_due()
        if after.committed:
            self._commit_watcher.committed(after)
            return tidies
        if after.events or tidies:
            self._commit_watcher.follow(after, joined, tidies=tidies)
        return False

    def held(self, prepared: PreparedCall) -> HeldOperation | Outcome[Any]:
        """Claim a prepared call whose work its caller does. For `hold`, here and in a plan."""
        around = prepared.request.resilience
        if around is not None and around.repeats:
            raise ConfigurationError(
                "gate.hold cannot retry, because you do the work yourself; give it a breaker or a budget, but no retry"
            )
        line = StraightLine(self, prepared)
        found = self._carry_through(prepared, line.hold, purges=False)
        if isinstance(found, Outcome):
            return found

        def finish(ended: Returned | Raised) -> Outcome[Any]:
            self._renewer.unwatch(found)
            return self._carry_through(prepared, line.end, ended)

        holding = HeldOperation(found, finish)
        if around is not None:
            try:
                holding.left = around.enter(found)
            except OncewardError as refused:
                return holding.end(Raised(refused))
        return holding

    def _renew(self, request: OperationRequest, flow: Flow[Record]) -> Record:
        return EffectRunner(self, PreparedCall(request, unreachable), None).drive(flow)
