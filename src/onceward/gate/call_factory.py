"""
`CallFactory` turns a call into a `PreparedCall`: key, fingerprint, terms and function. No I/O; both gates share it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import copy
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias

from onceward._core.canonical import canonical_bytes
from onceward._core.capabilities import capabilities_of
from onceward._core.codec import Restorer
from onceward._core.dead_letters import DeadLetter
from onceward._core.errors import ConfigurationError, OncewardError
from onceward._core.events import Event, EventType, Listener
from onceward._core.fingerprint import fingerprint_canonical, fingerprint_form
from onceward._core.finish_flow import outcome_of
from onceward._core.keys import (
    ENVIRONMENTS,
    KEY_PARTS,
    bare_key,
    check_key,
    check_scope,
    digest_of,
    environment_key,
    record_id,
)
from onceward._core.operation import Operation, Outcome
from onceward._core.operation_flow import OperationRequest
from onceward._core.record import Claimant, Guarantee, new_tuple, replays
from onceward._core.record_types import PeekResult, PurgeResult
from onceward._core.resilience import resilience_of
from onceward._core.sealing import Sealer, opened_peek
from onceward._core.settle_inside_flow import INSIDE
from onceward._core.terms import DEFAULT_TERMS, Options, Seconds, Terms, apply_options
from onceward._core.unrun_results import refuse_generator
from onceward.gate.function_inspection import (
    CallingConvention,
    FunctionDeclaration,
    function_name,
    inspect_declaration,
    inspect_function,
    is_async,
    shown_name,
)
from onceward.runtime.environment import REAL, Environment
from onceward.runtime.event_stream import EVENT_STREAM, hand_to
from onceward.runtime.failpoints import ARMED

KEY = "key"
STEP = "step"
WINDOW = "window"
"""Kinds of records: part of the id, so that a plan's step can never collide with a key."""

Invoke: TypeAlias = Callable[[Operation], Any]

_LABELS = tuple(f"{environment}:" for environment in ENVIRONMENTS)
_ATOMIC = Guarantee.ATOMIC.value
_PARTICULAR = (_ATOMIC, Guarantee.PROBED.value)
"""Guarantees that not every function can be run under."""
_log = logging.getLogger("onceward")


class CallSpec(NamedTuple):
    """What the caller of `call`, `hold`, `atomic` or `step` gives, besides the key and options."""

    fn: Callable[..., Any]
    request: Any = None
    name: str | None = None
    probe: Callable[..., Any] | None = None
    marked: bool | None = None


class RecordName(NamedTuple):
    """Which record a call is about."""

    id: bytes
    kind: str
    parts: tuple[str, ...]
    """The parts of the key, as they are stored."""
    family: bytes | None
    given: str | None
    """The key as the caller gave it; None if only the stored one is known."""


class PreparedCall(NamedTuple):
    """A call that is ready to run: what the flow needs to know, and the functions that it may call."""

    request: OperationRequest
    invoke: Invoke
    probe: Callable[..., Any] | None = None


class CallFactory:
    """Prepares the calls of one scope: it has the scope's terms and listeners."""

    def __init__(
        self,
        scope: str | None,
        *,
        environment: Environment | None,
        listeners: Iterable[Listener],
        terms: Terms = DEFAULT_TERMS,
        store: object = None,
        sealer: Sealer | None = None,
    ) -> None:
        capabilities = capabilities_of(store)
        self._quick_look = capabilities.peek
        self._awaited_look = capabilities.look
        self._sealer = sealer
        self._use_scope(check_scope(scope))
        self._relaxes = capabilities.relaxes
        self._joins = store is None or capabilities.joins is not None
        self.terms = self._checked(terms)
        self.environment = environment or REAL
        self._listeners: list[Listener] = list(listeners)
        self._agreed: dict[tuple[tuple[str, ...], tuple[Any, ...], tuple[type, ...]], Terms] = {}
        self._peeks = capabilities.peek is not None

    def _use_scope(self, scope: str) -> None:
        self.scope = scope
        # A scope such as live:acme says which environment it is; its keys then carry it too, and can never meet.
        label, colon, _ = scope.partition(":")
        self._label = label if colon and label in ENVIRONMENTS else None
        self._before, self._names = ("", ()) if self._label is None else (f"{self._label}:", _LABELS)
        """What goes in front of a key, and beginnings of keys that name an environment by themselves."""
        look = self._quick_look
        self._peek = look if look is None or self._sealer is None else opened_peek(look, self._sealer, scope)

    def scoped(self, scope: str | None) -> CallFactory:
        """The same for another scope: same terms, same listeners."""
        twin = copy(self)
        twin._use_scope(check_scope(scope))
        return twin

    # --- events ---

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every event from now on; returns the function that stops it."""
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def tell(self, event: Event) -> None:
        """Hand an event to every listener: this gate's own, and those of the whole process. None is told twice."""
        told = tuple(self._listeners)  # As they are now: one may stop, or begin to listen, while it is told.
        everywhere = EVENT_STREAM.listeners
        if everywhere:
            told += tuple(one for one in everywhere if one not in told)
        hand_to(told, event)

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens; no event is made otherwise."""
        return bool(self._listeners or EVENT_STREAM.listeners)

    def purged(self, result: PurgeResult, limit: int) -> PurgeResult:
        """Tell of a purge. One that came to its limit (of both kinds, or of either) may have left some for later."""
        if self.is_heard:
            count = result.forgotten + result.shrunk
            full = count >= limit
            self.tell(Event(EventType.PURGED, "", self.scope, "", 0, 0, "full" if full else "", count))
        return result

    def dead_lettered(self, letter: DeadLetter) -> DeadLetter:
        """Tell of a call that was given up and kept."""
        if self.is_heard:
            happening = EventType.DEAD_LETTERED
            self.tell(Event(happening, letter.digest, self.scope, letter.name, letter.attempts, 0, letter.reason))
        return letter

    # --- preparing calls ---

    def agreed(self, options: Mapping[str, Any]) -> Terms:
        """The gate's terms with an operation's own. Remembered: most calls repeat the same few."""
        if not options:
            return self.terms
        try:
            # With its type: True equals 1, and is refused where 1 is a second.
            values = tuple(options.values())
            changes = (tuple(options), values, tuple(map(type, values)))
            terms = self._agreed.get(changes)
        except TypeError:
            return self._checked(apply_options(self.terms, options))
        if terms is None:
            terms = self._checked(apply_options(self.terms, options))
            if len(self._agreed) < 1_000:
                self._agreed[changes] = terms
        return terms

    def _checked(self, terms: Terms) -> Terms:
        """Refuse what the store does not offer: a choice that silently does nothing is no choice."""
        if terms.relaxed_settle and not self._relaxes:
            raise ConfigurationError(
                "relaxed_settle needs a store that was opened for it (sqlite:///agent.db?settle=relaxed, "
                "postgresql://host/db?onceward_settle=relaxed): a power cut may then lose the last settles"
            )
        if terms.settle == INSIDE and not self._joins:
            raise ConfigurationError(
                "settle='inside' needs a store that can share your transaction, and this gate's cannot; open "
                "the gate on "
                "the database of your rows, with sqlite:/// or postgresql://"
            )
        return terms

    def stored_key(self, key: str) -> str:
        """The key as it is stored: checked, and carrying the scope's environment if it has one."""
        if type(key) is str and not key.startswith(self._names):  # The usual key: it names no environment by itself.
            return self._before + check_key(key)
        return check_key(key) if self._label is None else environment_key(self._label, key)

    def request_for(
        self,
        parts: tuple[str, ...],
        request: Any,
        terms: Terms,
        *,
        kind: str = KEY,
        operation: str = "",
        marked: bool = False,
        probes: bool = False,
        family: bytes | None = None,
        given: str | None = None,
    ) -> OperationRequest:
        """One call, ready for its flow. `parts` are the checked parts of the key; `given` is the caller's own."""
        name = self._named(parts, kind, family, given)
        fingerprint = fingerprint_canonical(request)
        return self._prepared(name, fingerprint, terms, operation, unreachable, None, marked, probes=probes).request

    def _prepared(
        self,
        name: RecordName,
        fingerprint: bytes,
        terms: Terms,
        operation: str,
        invoke: Invoke,
        probe: Callable[..., Any] | None = None,
        marked: bool = False,
        restore: Restorer | None = None,
        *,
        probes: bool = False,
    ) -> PreparedCall:
        id, kind, parts, family, given = name
        # fmt: off
        claimant: Claimant = new_tuple(Claimant, (
            id, kind, self.scope, parts[0] if len(parts) == 1 else KEY_PARTS.join(parts), operation,
            family, terms.guarantee, fingerprint, terms.lease, terms.keyed_for, probes or probe is not None,
            self.environment.process(), terms.takeover == "lease",
        ))
        # fmt: on
        retry, breaker, budget = terms.retry, terms.breaker, terms.budget
        around = None if retry is breaker is budget is None else resilience_of(retry, breaker, budget)
        listening = bool(self._listeners or EVENT_STREAM.listeners)
        told = (claimant, terms, restore, marked, listening, self._peeks, given, around)
        return new_tuple(PreparedCall, (new_tuple(OperationRequest, told), invoke, probe))  # type: ignore[no-any-return]

    def _named(
        self, parts: tuple[str, ...], kind: str = KEY, family: bytes | None = None, given: str | None = None
    ) -> RecordName:
        return RecordName(record_id(kind, self.scope, *parts), kind, parts, family, given)

    def _replayed(
        self,
        id: bytes,
        key: str,
        fingerprint: bytes,
        operation: str,
        restore: Restorer | None,
        seen: PeekResult | None = None,
    ) -> Outcome[Any] | None:
        """
        The stored outcome, if a quick look finds it (or has `seen` it). Not while failpoints are armed. `key` is the
        stored one.
        """
        if seen is None:
            if self._peek is None or ARMED:
                return None
            seen = self._peek(id)
        if seen is None or not replays(seen, fingerprint):
            return None
        if self._listeners or EVENT_STREAM.listeners:
            about = (EventType.REPLAYED, digest_of(id), self.scope, operation, seen.attempt, seen.fence, "", None)
            self.tell(new_tuple(Event, about))
        try:
            return outcome_of(seen, restore)
        except OncewardError as error:
            # A look reads neither the key nor the operation: they are what this caller asked for.
            raise error.about(key=bare_key(self.scope, key), digest=digest_of(id), operation=operation)  # noqa: B904

    async def _after_look(
        self,
        looking: Awaitable[PeekResult | None],
        name: RecordName,
        fingerprint: bytes,
        terms: Terms,
        operation: str,
        invoke: Invoke,
        probe: Callable[..., Any] | None,
    ) -> PreparedCall | Outcome[Any]:
        """The stored outcome, if a look that is under way finds it; otherwise the call, prepared."""
        seen, id = await looking, name.id
        if seen is not None and self._sealer is not None:
            seen = self._sealer.opened_peek(seen, self.scope, id)
        if seen is not None:
            outcome = self._replayed(id, name.parts[0], fingerprint, operation, None, seen)
            if outcome is not None:
                return outcome
        return self._prepared(name, fingerprint, terms, operation, invoke, probe)

    def about(self, parts: tuple[str, ...], kind: str = KEY, *, retain: Seconds | None = None) -> PreparedCall:
        """Only the name of a record, for deciding it."""
        terms = self.agreed({} if retain is None else {"retain": retain})
        return PreparedCall(self.request_for(parts, None, terms, kind=kind), unreachable)

    def prepare(
        self,
        parts: tuple[str, ...],
        call: CallSpec,
        options: Mapping[str, Any],
        *,
        awaits: bool,
        kind: str = KEY,
        family: bytes | None = None,
        inside: bool = False,
        given: str | None = None,
    ) -> PreparedCall:
        """
        One call of a plain function, refused here if it cannot work.

        `parts` are the checked parts of the key, `given` is the key as the caller gave it. `inside`: whether the
        function may settle inside its own transaction.
        """
        terms = self.agreed(options)
        fn, request, operation, probe, marked = call
        convention = inspect_function(fn)
        check_convention(fn, convention, terms, awaits=awaits, probe=probe, inside=inside)
        name = self._named(parts, kind, family, given)
        return self._prepared(
            name,
            fingerprint_canonical(request),
            terms,
            function_name(fn) if operation is None else operation,
            convention.bind(fn),
            probe,
            convention.marked if marked is None else marked,
        )

    def prepare_or_replay(self, key: str, call: CallSpec, terms: Terms, *, awaits: bool) -> PreparedCall | Outcome[Any]:
        """One call under a key, on terms that are agreed; or the stored outcome, if a quick look finds it."""
        fn, request, operation, probe, marked = call
        convention = inspect_function(fn)
        if (
            convention.generates
            or convention.awaits is not awaits
            or probe is not None
            or terms.guarantee in _PARTICULAR
        ):
            check_convention(fn, convention, terms, awaits=awaits, probe=probe, inside=True)
        stored = self.stored_key(key)
        id, fingerprint = record_id(KEY, self.scope, stored), fingerprint_canonical(request)
        if operation is None:
            operation = shown_name(fn.__qualname__) if type(fn) is FunctionType else function_name(fn)
        outcome = self._replayed(id, stored, fingerprint, operation, None)
        if outcome is not None:
            return outcome
        name = new_tuple(RecordName, (id, KEY, (stored,), None, key))
        if marked is None:
            marked = convention.marked
        return self._prepared(name, fingerprint, terms, operation, convention.bind(fn), probe, marked)

    def prepare_known(
        self,
        key: str,
        invoke: Invoke,
        request: bytes,
        operation: str,
        terms: Terms,
        probe: Callable[..., Any] | None,
        *,
        awaits: bool,
    ) -> Any:
        """
        The same for a function of our own: it takes the operation, marks nothing, and need not be looked at. The key
        has passed `check_key`, and the request is a hash. If a look is worth waiting for, it is a coroutine of either.
        """
        if probe is not None:
            check_runnable(probe, awaits=awaits)
            check_probe(terms, probe)
        stored = self.stored_key(key) if key.startswith(self._names) else self._before + key
        id, fingerprint = record_id(KEY, self.scope, stored), fingerprint_form(canonical_bytes(request))
        name: RecordName = new_tuple(RecordName, (id, KEY, (stored,), None, key))
        look = self._awaited_look
        looking = None if look is None or ARMED else look(id)
        if looking is not None:
            return self._after_look(looking, name, fingerprint, terms, operation, invoke, probe)
        outcome = self._replayed(id, stored, fingerprint, operation, None)
        if outcome is not None:
            return outcome
        return self._prepared(name, fingerprint, terms, operation, invoke, probe)

    def prepare_requeue(
        self, key: str, fingerprint: bytes, operation: str, terms: Terms, invoke: Invoke, *, marked: bool
    ) -> PreparedCall:
        """One call of an operation that was given up, under its own stored key and fingerprint."""
        if terms.guarantee == Guarantee.ATOMIC:
            raise ConfigurationError("an atomic effect shares your transaction: register a gated=True handler for it")
        check_probe(terms, None)
        return self._prepared(self._named((key,)), fingerprint, terms, operation, invoke, None, marked)

    def prepare_joined(
        self,
        parts: tuple[str, ...],
        call: CallSpec,
        options: Mapping[str, Any],
        *,
        awaits: bool,
        kind: str = KEY,
        family: bytes | None = None,
        given: str | None = None,
    ) -> PreparedCall:
        """One call in the caller's own transaction; `unreachable` as its function stands for a block."""
        request = self.joined_request(parts, call, options, kind=kind, family=family, given=given)
        if call.fn is unreachable:
            return PreparedCall(request, unreachable)
        convention = inspect_function(call.fn)
        if convention.generates:
            refuse_generator(call.fn, function_name(call.fn))
        if not awaits and convention.awaits:
            raise _is_async_error(call.fn)
        return PreparedCall(request, convention.bind(call.fn))

    def joined_request(
        self,
        parts: tuple[str, ...],
        call: CallSpec,
        options: Mapping[str, Any],
        *,
        kind: str = KEY,
        family: bytes | None = None,
        given: str | None = None,
    ) -> OperationRequest:
        """What a flow in the caller's own transaction is told, whatever function it calls."""
        terms = self.agreed({**options, "guarantee": _ATOMIC})
        if terms.settle == INSIDE:
            raise ConfigurationError(
                "settle='inside' cannot be used here: in your transaction the gate settles by itself. It is "
                "for call, run, "
                "once and step, whose functions open transactions of their own"
            )
        if callable(terms.remember):
            raise ConfigurationError("in atomic mode remember is 'success' or 'all'")
        if terms.in_flight == "accept":
            raise ConfigurationError("in atomic mode in_flight is 'wait' or 'refuse'")
        is_block = call.fn is unreachable
        operation = call.name if call.name is not None else ("" if is_block else function_name(call.fn))
        return self.request_for(parts, call.request, terms, kind=kind, operation=operation, family=family, given=given)

    def prepare_declared(
        self,
        declared: FunctionDeclaration,
        terms: Terms,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        probe: Callable[..., Any] | None,
    ) -> tuple[PreparedCall | Outcome[Any], dict[str, Any]]:
        """One call of a declared function, or its stored outcome if a quick look finds it; and its arguments."""
        arguments = declared.arguments(args, kwargs)
        given = declared.key(arguments)
        key = self.stored_key(given)
        id, fingerprint = record_id(KEY, self.scope, key), fingerprint_canonical(declared.request_of(arguments))
        if declared.connection is None:
            outcome = self._replayed(id, key, fingerprint, declared.name, declared.restore)
            if outcome is not None:
                return outcome, arguments
        prepared = self._prepared(
            new_tuple(RecordName, (id, KEY, (key,), None, given)),
            fingerprint,
            terms,
            declared.name,
            lambda operation: declared.invoke(operation, args, kwargs),
            probe,
            declared.marked,
            declared.restore,
        )
        return prepared, arguments

    def declare(
        self,
        fn: Callable[..., Any],
        key: str | Callable[..., str],
        *,
        terms: Terms,
        awaits: bool,
        name: str | None,
        exclude: tuple[str, ...],
        connection: str | None,
        marked: bool | None,
        probe: Callable[..., Any] | None,
    ) -> FunctionDeclaration:
        """Take a function apart for `once`, refusing here what could only fail later."""
        for one in (fn, probe) if probe is not None else (fn,):
            check_runnable(one, awaits=awaits)
        check_probe(terms, probe)
        joins = terms.guarantee == Guarantee.ATOMIC and terms.settle != INSIDE
        if joins != (connection is not None):
            raise ConfigurationError(
                "guarantee='atomic' and connection='name of the parameter that carries your connection' go together: "
                "the record is written on that connection, in your transaction. If the function opens a transaction of "
                "its own, say settle='inside', and no connection"
            )
        return inspect_declaration(fn, key, name=name, exclude=exclude, connection=connection, marked=marked)


def default_terms(options: Options) -> Terms:
    """The terms of a gate whose operations say nothing else."""
    terms = apply_options(DEFAULT_TERMS, options)
    if terms.guarantee == Guarantee.ATOMIC:
        raise ConfigurationError(
            "guarantee='atomic' cannot be a gate's default; use it per call, where the connection is named"
        )
    return terms


def check_convention(
    fn: Callable[..., Any],
    convention: CallingConvention,
    terms: Terms,
    *,
    awaits: bool,
    probe: Callable[..., Any] | None,
    inside: bool,
) -> None:
    """Refuse a function that this gate, or these terms, cannot run."""
    if convention.generates:
        refuse_generator(fn, function_name(fn))
    if not awaits and convention.awaits:
        raise _is_async_error(fn)
    if probe is not None:
        check_runnable(probe, awaits=awaits)
    if terms.guarantee == Guarantee.ATOMIC and not (inside and terms.settle == INSIDE):
        raise ConfigurationError(
            "an atomic effect shares your transaction: use gate.atomic(connection, key, function)"
            + ("; or settle='inside', if the function opens a transaction of its own" if inside else "")
        )
    if probe is not None or terms.guarantee == Guarantee.PROBED:
        check_probe(terms, probe)


def check_runnable(fn: Callable[..., Any], *, awaits: bool) -> None:
    """Refuse a function that would not run when a gate of this colour calls it."""
    refuse_generator(fn, function_name(fn))
    if not awaits:
        check_blocking(fn)


def check_blocking(fn: Callable[..., Any]) -> None:
    """An async function under a blocking gate would never run."""
    if is_async(fn):
        raise _is_async_error(fn)


def _is_async_error(fn: Callable[..., Any]) -> ConfigurationError:
    return ConfigurationError(f"{function_name(fn)} is async and this gate blocks; use AsyncGate for async functions")


def refuse_accept(options: Mapping[str, Any]) -> None:
    """Whoever wants the value alone cannot be told that there is none yet."""
    if options.get("in_flight") == "accept":
        raise ConfigurationError("in_flight='accept' returns a pending Outcome, so it is for gate.call only")


def check_probe(terms: Terms, probe: Callable[..., Any] | None) -> None:
    """A probe belongs to `probed`, and `probed` needs one."""
    if (terms.guarantee == Guarantee.PROBED) != (probe is not None):
        raise ConfigurationError(
            "guarantee='probed' and probe=function go together: the probe is given the operation and returns "
            "Found(result) or NOT_FOUND"
        )


def unreachable(operation: Operation) -> Any:
    """Stands in for the function in flows that call none."""
    raise ConfigurationError("this flow calls no function")


SCAN_PAGE = 500
"""Records per page of a scan."""

PURGE_BATCH = 1_000
"""Rows per purge that somebody asks for."""


def log_purge_failure() -> None:
    """Note that a purge raised what no store should raise: the operation that it followed is not affected."""
    _log.exception("onceward: a purge failed; the operation is not affected")


class PurgeSchedule:
    """
    Every so many fresh runs a gate purges a little, so that the table is kept in bounds without anybody's doing.

    A purge that finds nothing is still a trip to the store, and takes the interpreter from a caller. So each in vain
    doubles the way to the next, up to a limit, and the first that finds something takes it back.
    """

    PURGE_EVERY = 50
    PURGE_EVERY_MAX = 800
    """Runs between two purges while nothing is due. As many rows may be left over when that ends."""
    PURGE_LIMIT = 100
    """Rows per purge: twice what comes in, and few enough not to be noticed (0.1 ms a row in a table of a million)."""

    def __init__(self) -> None:
        self._every = self.PURGE_EVERY
        # Processes that live for a few runs only must purge, too.
        self.left = 10
        """Runs until the next purge: whoever runs a function takes one off."""

    def is_due(self) -> bool:
        """Whether it is time for a purge."""
        if self.left > 0:
            return False
        self.left = self._every
        return True

    def found(self, result: PurgeResult) -> None:
        """A purge is done."""
        in_vain = not (result.forgotten or result.shrunk)
        before = self._every
        self._every = min(2 * self._every, self.PURGE_EVERY_MAX) if in_vain else self.PURGE_EVERY
        self.left += self._every - before
