"""
The effects that flows yield: everything that a rule may need done.

A *flow* is a generator that yields what it needs done (an effect) and is sent the result. It performs no I/O, reads
no clock and never sleeps, so one text serves blocking and awaiting callers. A test can play both: to crash is not to
resume a flow, to race is to choose whose flow to resume. `onceward.runtime.flow_driver` has the two loops.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from onceward._core.events import Event
from onceward._core.holders import Process
from onceward._core.record import Write

T = TypeVar("T")

new_tuple = tuple.__new__
"""Makes a `NamedTuple` from its fields' values without a call of Python code: for effects of every retry."""


class Put(NamedTuple):
    """Store, returns `PutResult`: put this record in the place of one with that version (None: where there is none)."""

    at: str
    """Where in the operation's life this is: names the failpoints on both sides."""
    write: Write
    expect: bytes | None


class PutBack(NamedTuple):
    """Store, returns `PutResult`: put this record where there is none, unless one of these erasure marks exists."""

    at: str
    write: Write
    marks: tuple[bytes, ...]


class Load(NamedTuple):
    """Store, returns `Record | None`: read one record."""

    at: str
    id: bytes


class Extend(NamedTuple):
    """Store, returns how many: lengthen the life of a family of settled records."""

    at: str
    family: bytes
    replay: int
    forget: int


class RandomBytes(NamedTuple):
    """Returns 48 unpredictable bytes (a token, and versions for the writes to come)."""


class Monotonic(NamedTuple):
    """Returns seconds on a clock that never goes back."""


class Boottime(NamedTuple):
    """Returns seconds on a clock that never goes back, and also counts while the host is suspended."""


class CheckProcess(NamedTuple):
    """Returns whether that process lives: True; False (it is proved dead); None (it cannot be told from here)."""

    process: Process


class Pause(NamedTuple):
    """Wait this long at most; less if that record is known to have changed."""

    id: bytes
    seconds: float


class Sleep(NamedTuple):
    """Wait this long. For retries, returns what `Monotonic` returns."""

    seconds: float


class CallFunction(NamedTuple):
    """Run the user's function with this operation; returns `Returned | Raised`."""

    at: str
    operation: Any


class Probe(NamedTuple):
    """Run the user's probe for this operation; returns `Returned | Raised`."""

    at: str
    operation: Any


class HandOver(NamedTuple):
    """The function is not called: whoever holds the operation (a block, a stream) does its work from here on."""

    operation: Any


class Emit(NamedTuple):
    """Send this event to the listeners."""

    event: Event


class AfterCommit(NamedTuple):
    """Atomic mode: it ran, and its record is in the transaction. Once that is committed, send these events."""

    id: bytes
    token: bytes
    """The claim's token, to recognise this run's record."""
    events: tuple[Event, ...]
    committed: bool
    """Whether it is committed; if not, the transaction is the caller's, who may still roll it back."""


class Begin(NamedTuple):
    """Atomic mode: open (or join) the caller's transaction."""

    at: str


class Commit(NamedTuple):
    """Atomic mode: end what `Begin` opened, keeping it."""

    at: str


class LoadInTransaction(NamedTuple):
    """Atomic mode, returns `Record | None`: read the record, if possible in the caller's transaction."""

    at: str
    id: bytes


class Finish(NamedTuple):
    """
    Atomic mode, returns `PutResult`: put this record and commit; if it does not land, roll back.

    One effect, because a database that can be sent several statements at once makes it one round trip.
    """

    at: str
    write: Write
    expect: bytes | None


class Rollback(NamedTuple):
    """Atomic mode: roll back what `Begin` opened; returns whether that was still possible."""

    at: str


class CheckRefusal(NamedTuple):
    """Resilience, returns an error or None: do breaker and deadline allow a claim now?"""

    resilience: Any


class PayForRerun(NamedTuple):
    """Resilience, returns whether: pay from the budget for a run that follows a failed one."""

    resilience: Any


class Clocks(NamedTuple):
    """Returns monotonic seconds, wall-clock microseconds since 1970, and a random number from 0 to 1."""


class Try(NamedTuple):
    """Retry: run the user's function once more; returns `AttemptResult`."""

    number: int
    """1 was the first."""
    timeout: float
    """Seconds that it may take."""
    ticket: int | None
    """The breaker's, to be given back if the attempt is interrupted."""


class Withdraw(NamedTuple):
    """Retry: pay for a retry from the budget; returns what it cost, or None."""

    throttled: bool


class Refund(NamedTuple):
    """Retry: give back what was paid for a retry that is not made."""

    paid: float


class Admit(NamedTuple):
    """Retry: may the call go out? Returns the breaker's ticket or `Refused`. With `peek`: takes no slot."""

    peek: bool = False


class ReportAttempt(NamedTuple):
    """Retry: tell breaker and budget how an attempt ended: "succeeded", "failed" or "ended" (says nothing)."""

    ticket: int | None
    """The breaker's, brought back."""
    end: str
    first: bool
    """Whether it was the call's first attempt."""
    paid: float | None
    """What the budget was paid for it."""


class CallHook(NamedTuple):
    """Retry: call a hook. Whatever it does, the call goes on."""

    hook: str
    what: Any


class PutDeadLetter(NamedTuple):
    """Retry: hand a call that was given up to the dead letters. Whatever that does, the call goes on."""

    stop: Any


class Returned(NamedTuple):
    """The user's function returned. A value, so that its StopIteration cannot pose as ours."""

    value: Any


class ReturnedFailure(NamedTuple):
    """Retry: the user's function returned, and what it returned counts as a failure (an error's status)."""

    value: Any


class Raised(NamedTuple):
    """The user's function raised."""

    error: BaseException


Effect: TypeAlias = (
    Put
    | PutBack
    | Load
    | Extend
    | RandomBytes
    | Monotonic
    | Boottime
    | CheckProcess
    | Pause
    | Sleep
    | CallFunction
    | Probe
    | HandOver
    | Emit
    | AfterCommit
    | Begin
    | LoadInTransaction
    | Finish
    | Commit
    | Rollback
    | CheckRefusal
    | PayForRerun
    | Clocks
    | Try
    | Withdraw
    | Refund
    | Admit
    | ReportAttempt
    | CallHook
    | PutDeadLetter
)
Flow: TypeAlias = Generator[Effect, Any, T]
AttemptResult: TypeAlias = Returned | ReturnedFailure | Raised

RANDOM_BYTES = RandomBytes()
MONOTONIC = Monotonic()
BOOTTIME = Boottime()
CLOCKS = Clocks()

INSTANT = frozenset((RandomBytes, Monotonic, Boottime, CheckProcess, Emit, Clocks, Refund, CheckRefusal))
"""Effects that take no time, so they are never awaited."""

INTERRUPTIBLE = frozenset(
    (
        Pause,
        Sleep,
        CallFunction,
        HandOver,
        Probe,
        PayForRerun,
        Try,
        Withdraw,
        Admit,
        ReportAttempt,
        CallHook,
        PutDeadLetter,
    )
)
"""Effects that a cancellation may interrupt. At any other it waits: a write is never abandoned half way."""

LEASE_BEGINS = frozenset(("claim", "renew"))
"""Where a put begins a lease: whoever performs it notes when it was sent."""

OUTSIDE_TRANSACTION = frozenset(("parted", "abandoned"))
"""Puts that go straight to the store, also in atomic mode: the caller's rollback must not undo them."""

BOUNDARIES = {
    "peek": "the record is looked at",
    "claim": "the claim is put",
    "abandoned": "what a dead holder left is put in doubt",
    "takeback.load": "an interrupted claim is looked up",
    "takeback": "an interrupted claim is released",
    "renew": "the lease is renewed",
    "probe": "the user's probe is asked",
    "call": "the user's function runs",
    "settle": "the answer is put",
    "release": "the release is put",
    "doubt": "the doubt is put",
    "putback": "what the store forgot is put back",
    "reconcile.load": "an in-doubt record is looked up",
    "reconcile": "the reconciled record is put",
    "parted.load": "a claim that the caller's function committed is looked up",
    "parted": "what the caller's function committed by itself is left in doubt, outside of its transaction",
    "inside": "the answer is put into the function's own transaction",
    "inside.load": "it is looked up whether the function's own transaction was committed",
    "begin": "the caller's transaction is opened or joined",
    "commit": "the caller's transaction is committed, or its savepoint released",
    "rollback": "the caller's transaction is undone",
    "touch": "the life of a plan's steps is lengthened",
    "mark.load": "a sequence's mark is looked up",
    "mark": "a sequence's mark is moved",
    "entry.load": "a sequence's entry is looked up",
}
"""The effects with a failpoint before and after them, by name."""
