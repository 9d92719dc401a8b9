"""
What the user's function is handed (`Operation`), and what the caller gets back (`Outcome`).
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from types import TracebackType
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from onceward._core.classifier import Classifier
from onceward._core.downstream_keys import downstream_key
from onceward._core.errors import (
    BudgetExhausted,
    CircuitOpen,
    ConfigurationError,
    DeadlineExceeded,
    InFlight,
    OncewardError,
)
from onceward._core.first_call import is_about_the_first_call
from onceward._core.keys import bare_key, digest_of
from onceward._core.record import Record
from onceward._core.verdict import Certainty
from onceward._core.verdict_tables.onceward_errors import STOP_ATTRIBUTE

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_datetime(micros: int) -> datetime:
    """An instant of a store's clock, as a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


class Outcome(NamedTuple, Generic[T]):
    """What a gated call came to."""

    value: T
    replayed: bool
    """True: this is the stored result of an earlier run; the effect did not run now."""
    first_at_us: int
    attempt: int
    """Which attempt at this operation gave the result."""
    fence: int
    """Rises with every claim of this key: hand it to a resource that can refuse the lower one."""
    replayable: bool = True
    """False: it ran, and its result could not be kept; a retry is refused as `NotReplayable`."""
    pending: bool = False
    """True (only with in_flight="accept"): another holder is running it; ask again after `retry_after_seconds`."""
    retry_after_seconds: float | None = None

    @property
    def first_at(self) -> datetime:
        """When this operation was first claimed, on the store's clock, in UTC."""
        return to_datetime(self.first_at_us)

    @property
    def answer(self) -> T:
        """The value; or `InFlight` if there is none yet (with in_flight="accept")."""
        if self.pending:
            busy = InFlight(retry_after_seconds=self.retry_after_seconds)
            raise busy.about(fence=self.fence, first_at=self.first_at)
        return self.value


class Found(NamedTuple):
    """A probe's or a person's answer: it did happen, and this is its result."""

    value: Any


class _NotFound:
    """A probe's or a person's answer: it did not happen."""

    def __repr__(self) -> str:
        return "NOT_FOUND"


NOT_FOUND: Final = _NotFound()
"""What a probe returns if the effect did not take place."""
NotFound = _NotFound
"""The type of `NOT_FOUND`, for annotations."""


class Operation:
    """
    One run of one operation, as its function sees it.

    Take it by naming a parameter `operation`. Mark the effect with `with operation.effect():`, pass
    `operation.downstream_key("stripe")` on, hand `operation.fence` to a resource that can refuse a lower one.
    """

    __slots__ = (
        "__weakref__",
        "_began",
        "_broke",
        "_done",
        "_doubtful",
        "_given",
        "_resting",
        "_since",
        "claimed_at",
        "confirmed_until",
        "held_until",
        "inside",
        "lost",
        "record",
        "started",
    )

    def __init__(self, record: Record, given: str | None = None) -> None:
        self.record = record
        """The claim, as it landed."""
        self._given = given
        self._began = False
        self._done = False
        self._broke: tuple[BaseException, ...] = ()
        self._doubtful = False
        self._resting = False
        self._since = next(_judgements)
        self.started = False
        """Whether the function was entered."""
        self.held_until = 0.0
        """Until when (on this process's monotonic clock) the claim holds, as far as this process knows."""
        self.claimed_at = 0.0
        """When the claim was sent, on this host's clock that counts suspension."""
        self.confirmed_until = 0.0
        """Until when, on the same clock, nobody else can have had it: from when the last confirmed lease was sent."""
        self.lost = False
        """Whether a renewal found that another caller has taken over, or that the store forgot: stop if you can."""
        self.inside: TransactionSettler | None = None
        """With settle="inside": how its function settles it, and what is known of that."""

    def confirm(self, sent: float, lease: int) -> None:
        """The store has said that the claim holds for a lease (microseconds), asked at `sent`."""
        self.claimed_at = self.claimed_at or sent
        until = sent + lease / 1e6
        if until > self.confirmed_until:
            self.confirmed_until = until

    @property
    def key(self) -> str:
        """The key, as the caller gave it: what your own tables know it by (a step's is "plan / step")."""
        return self._given if self._given is not None else bare_key(self.record.scope, self.record.key)

    @property
    def stored_key(self) -> str:
        """The key as records show it: under a scope such as live:acme it carries the environment, live:charge:1."""
        return self.record.key

    @property
    def scope(self) -> str:
        """Who the key belongs to."""
        return self.record.scope

    @property
    def id(self) -> bytes:
        """The record's id: a digest of kind, scope and key."""
        return self.record.id

    @property
    def digest(self) -> str:
        """The short digest that logs and errors show in place of the key."""
        return digest_of(self.record.id)

    @property
    def fence(self) -> int:
        """Rises with every claim of this key."""
        return self.record.fence

    @property
    def attempt(self) -> int:
        """1 on the first run."""
        return self.record.attempt

    @property
    def first_at(self) -> datetime:
        """When this operation was first claimed (kept while an earlier attempt may have had its effect)."""
        return to_datetime(self.record.first_at)

    def downstream_key(self, profile: str = "stripe") -> str:
        """The key to send on: the same on every attempt, and within the provider's limits."""
        return downstream_key(self.record.id, profile)

    def effect(self) -> _EffectMark:
        """Mark the effect: what raises before this block releases the key, what raises after it never does."""
        return _EffectMark(self)

    def settle_inside(self, connection: Any, value: Any) -> None:
        """
        Settle this operation inside your own transaction: the answer commits with your rows, or not at all.

        For operations with settle="inside". Call it last, in the transaction that wrote the rows, on its connection or
        session; then commit. If it raises, let that through: your transaction must be undone.
        """
        self._settler().settle(connection, value)

    async def settle_inside_async(self, connection: Any, value: Any) -> None:
        """Settle inside the function's own transaction, on a connection or session that is awaited."""
        await self._settler().settle_async(connection, value)

    def _settler(self) -> TransactionSettler:
        if self.inside is None:
            raise ConfigurationError(
                "this operation is settled by the gate, with what its function returns; to settle it inside your own "
                "transaction, declare it with guarantee='atomic', settle='inside'"
            )
        return self.inside

    def spared(
        self, error: BaseException, harmless: tuple[type[BaseException], ...], *, marked: bool, classifier: Classifier
    ) -> bool:
        """
        Whether it is proved that nothing happened, although the function raised `error`.

        `harmless` are the types that say so; `marked` is whether the function marks its effect at all. What comes out
        of a marked effect is also judged by its verdict: not sent, or rejected. Anywhere else a verdict is about some
        call or other, and proves nothing, unless that was the first call that the function made.
        """
        if not self.started:
            return True
        if self._done or self._doubtful:
            return False
        if self._resting:
            return True
        if not self._began:
            proved = marked or isinstance(error, harmless) or was_not_sent(error, classifier)
            return marked or (proved and not self._spoke_for_another(error))
        # Several blocks may have broken: one that may have had its effect is enough for doubt.
        return self._broke[-1:] == (error,) and all(
            isinstance(broke, harmless)
            or (classifier.judge(broke).happened is False and not self._spoke_for_another(broke))
            for broke in self._broke
        )

    # --- several attempts under one claim ---

    def rest(self) -> None:
        """No attempt is under way, and none has left anything behind: stopped here, nothing has happened."""
        self._resting = True

    def begin_attempt(self) -> None:
        """The function is about to be called, for the first time or again."""
        self._resting = self._began = self._done = False
        self._broke = ()

    def attempt_failed(
        self, error: BaseException, harmless: tuple[type[BaseException], ...], *, marked: bool, classifier: Classifier
    ) -> bool:
        """An attempt has raised: whether it is proved that nothing happened. If not, no later attempt changes that."""
        clean = self.spared(error, harmless, marked=marked, classifier=classifier)
        if clean:
            self.rest()
        else:
            self._doubtful = True
        return clean

    def clear(self) -> None:
        """A probe has been asked, and found nothing: what earlier attempts may have done, they have not."""
        self._doubtful = False
        self.rest()

    def _spoke_for_another(self, error: BaseException) -> bool:
        """Whether it came through an operation inside this one: then it was about that."""
        judged: int = getattr(error, _JUDGED, 0)
        return judged > self._since

    def __repr__(self) -> str:
        return f"<Operation {self.digest} attempt {self.attempt} fence {self.fence}>"


class TransactionSettler:
    """With settle="inside": how the function of an operation settles it, and what is known of that."""

    __slots__ = ("astray", "called", "nested")

    def __init__(self) -> None:
        self.called = False
        """Whether the answer was put into a transaction: if that is committed, it stands."""
        self.nested = False
        """Whether that was done in a savepoint of the function's own, which can be undone by itself."""
        self.astray = False
        """Whether it was tried where rows and record cannot commit together: rows may stand alone."""

    def settle(self, connection: Any, value: Any) -> None:
        """Put the answer into the transaction of this connection."""
        raise NotImplementedError

    async def settle_async(self, connection: Any, value: Any) -> None:
        """Store the result and end the claim, and await that."""
        raise NotImplementedError


class _EffectMark:
    """The block in which the effect takes place."""

    __slots__ = ("_operation",)

    def __init__(self, operation: Operation) -> None:
        self._operation = operation

    def __enter__(self) -> None:
        self._operation._began = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if error is None:
            self._operation._done = True
        else:
            self._operation._broke = (*self._operation._broke, error)
        return False


_JUDGED = "_onceward_judged"
_judgements = count(1)


def mark_judged(error: BaseException) -> None:
    """
    An operation has ended with this error. On its way through an outer operation it says nothing of that one.

    Operations and judgements are numbered in one row: what was judged after an operation began came from inside it
    (in whatever thread). An exception object that is raised again and again stays believable.
    """
    with suppress(Exception):
        setattr(error, _JUDGED, next(_judgements))


def was_not_sent(error: BaseException, classifier: Classifier) -> bool:
    """
    Whether an error proves, by itself, that its function has done nothing: it was refused before anything was sent, and
    that was the first thing which the function did.

    Ours are the refusals of a breaker, a budget or a deadline; others' are those of which the classifier knows that the
    request never left. What a policy inside the function has tried more than once is not looked through.
    """
    stop = getattr(error, STOP_ATTRIBUTE, None)
    attempts = 0 if stop is None else stop.attempts
    if isinstance(error, OncewardError):
        if not isinstance(error, CircuitOpen | BudgetExhausted | DeadlineExceeded) or attempts > 1:
            return False
        cause = error.__cause__
        if attempts and (cause is None or not was_not_sent(cause, classifier)):
            return False
        return classifier.judge(error).happened is False and is_about_the_first_call(error)
    if attempts > 1 or not isinstance(error, Exception):
        return False
    return classifier.judge(error).certainty is Certainty.NOT_SENT and is_about_the_first_call(error)


class AtomicOperation(Operation):
    """
    The operation of a `with gate.atomic(...)` block, which says itself what is stored.

    `replayed` tells whether the block is only shown an earlier answer (`value`); if not, it must call `settle`.
    """

    __slots__ = ("_settled", "_value", "replayed")

    def __init__(self, record: Record, given: str | None = None) -> None:
        super().__init__(record, given)
        self.replayed = False
        self._settled = False
        self._value: Any = None

    @property
    def value(self) -> Any:
        """The stored answer of a replay, or what was settled."""
        if not (self.replayed or self._settled):
            raise ConfigurationError("nothing is settled yet. Call operation.settle(value) first")
        return self._value

    @property
    def settled(self) -> bool:
        """Whether `settle` was called."""
        return self._settled

    def settle(self, value: Any) -> None:
        """Say what is stored for this operation, to be committed with the caller's rows."""
        if self.replayed:
            raise ConfigurationError(
                "this operation is a replay and is settled already: check operation.replayed before doing the work"
            )
        if self._settled and self._value != value:
            raise ConfigurationError("this block has settled already, with another value. Call settle once")
        self._settled = True
        self._value = value

    def show(self, value: Any) -> None:
        """Show an earlier answer (called by the gate)."""
        self.replayed = True
        self._value = value


class UnclaimedOperation(AtomicOperation):
    """In atomic mode with claim="last": the key is written after the function has run, so there is no fence yet."""

    __slots__ = ()

    @property
    def fence(self) -> int:
        """Not known."""
        raise ConfigurationError("with claim='last' there is no fence while the function runs")

    @property
    def first_at(self) -> datetime:
        """Not known."""
        raise ConfigurationError("with claim='last' there is no first_at while the function runs")

    def __repr__(self) -> str:
        return f"<Operation {self.digest} attempt {self.attempt} unclaimed>"
