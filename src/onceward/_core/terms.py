"""
The terms of an operation: every choice, its default, and why it is that.

A gate has terms; an operation may override them one by one. `onceward contract` prints them. Terms are made when an
operation is declared, so that a bad choice is refused there and not at three in the morning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypedDict

from onceward._core.classifier import DEFAULT, Classifier
from onceward._core.durations import SECOND, microseconds
from onceward._core.errors import ConfigurationError
from onceward._core.flow import Raised, Returned
from onceward._core.record import Guarantee
from onceward._core.resilience import ResiliencePart, check_resilience_option, resilience_of

Seconds: TypeAlias = float | timedelta
InFlightPolicy: TypeAlias = Literal["wait", "refuse", "accept"]
AfterExpiry: TypeAlias = Literal["refuse", "run"]
Remember: TypeAlias = Literal["success", "all"] | Callable[[Returned | Raised], bool]


class Options(TypedDict, total=False):
    """What may be said about an operation (or, as a default, about a gate). Durations are seconds or timedelta."""

    guarantee: Literal["atomic", "repeatable", "keyed", "probed", "blind"]
    lease: Seconds
    lease_max: Seconds
    in_flight: InFlightPolicy
    wait: Seconds
    keyed_for: Seconds
    retain: Seconds
    tombstone: Seconds
    after_expiry: AfterExpiry
    remember: Remember
    result_bytes_max: int
    before: type[BaseException] | tuple[type[BaseException], ...]
    classifier: Classifier
    relaxed_settle: bool
    claim: Literal["first", "last"]
    settle: Literal["gate", "inside"]
    takeover: Literal["holder", "lease"]
    retry: ResiliencePart | None
    breaker: ResiliencePart | None
    budget: ResiliencePart | None


class CallOptions(Options, total=False):
    """What may be said about one call."""

    request: Any
    """What the key stands for: a retry must bring an equal one."""
    name: str | None
    """The operation's name in events and records; the function's own by default."""
    probe: Callable[..., Any] | None
    """For guarantee="probed": given the operation, returns Found(result) or NOT_FOUND."""
    marked: bool | None
    """Whether the function marks its effect; found out by reading its code unless said."""


LEASE_FLOOR = 1_000
"""A millisecond: shorter leases lapse before the store has answered."""

LEASE_CEILING = 24 * 3_600 * SECOND
"""A day: a holder that needs longer wants a workflow, not a lease."""

WAITERS_MAX = 1_000
"""Waiters per process: past that a waiter is refused, because a thousand waiting callers is already an outage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Choices with their defaults. Durations are microseconds."""

    guarantee: str = Guarantee.BLIND.value
    """What kind of effect it is. Default blind: nothing is assumed about an effect that you say nothing about."""
    lease: int = 60 * SECOND
    """How long a claim holds without renewal: enough for a slow API, and a dead holder is noticed within a minute."""
    lease_max: int = 3_600 * SECOND
    """How long a claim holds in all, renewals included: a function that hangs gives up its key after that."""
    in_flight: str = "wait"
    """While another caller runs it: `wait` for its result, `refuse` at once, or `accept` (a pending outcome)."""
    wait: int = 30 * SECOND
    """How long to wait for another caller before `InFlight` is raised."""
    keyed_for: int = 24 * 3_600 * SECOND
    """For `keyed`: how long the downstream honours a key (Stripe: 24 h). After that, the operation is in doubt."""
    retain: int = 24 * 3_600 * SECOND
    """How long a stored result is replayed. Callers rely on it, so publish it."""
    tombstone: int = 30 * 24 * 3_600 * SECOND
    """How long after that a late retry is still refused as `Expired`, and not run again."""
    after_expiry: str = "refuse"
    """What happens to a retry after `retain`: `refuse` it, or `run` the operation again (no tombstone is kept)."""
    remember: Remember = "success"
    """What is stored: `success`, `all` (failures, too), or what a function of Returned or Raised chooses."""
    result_bytes_max: int = 1_048_576
    """A larger result is not stored: a retry is then refused as `NotReplayable`, and does not run again."""
    before: tuple[type[BaseException], ...] = ()
    """Exception types that prove that the effect did not take place."""
    classifier: Classifier = DEFAULT
    """Judges what a marked effect raises: if it was not sent, or rejected, the key is released."""
    relaxed_settle: bool = False
    """Let a settle skip the disk sync. After a power cut it may be in doubt (blind) or sent again (keyed)."""

    claim: str = "first"
    """In atomic mode, when the key is written: `first` (a second caller waits before it works), or `last`."""
    settle: str = "gate"
    """Who stores the result: the `gate`, or the function, `inside` its own transaction (with `atomic`)."""
    takeover: str = "holder"
    """When another caller may take over: once the `holder` is proved dead on this host, or only after the `lease`."""
    retry: ResiliencePart | None = None
    """A `Retry` policy: several attempts under one claim. Default none: you say what may be retried."""
    breaker: ResiliencePart | None = None
    """A `Breaker`: while it is open, stored results are replayed, and nothing new is claimed."""
    budget: ResiliencePart | None = None
    """A `Budget`: every attempt after the first is paid from it, also in a later call with the same key."""

    @property
    def forget(self) -> int:
        """How long a settled record is kept at all."""
        return self.retain if self.after_expiry == "run" else self.retain + self.tombstone

    @property
    def remember_release(self) -> int:
        """How long a released record is kept: with its fingerprint, and so that its fence never repeats."""
        return self.retain if self.after_expiry == "run" else self.tombstone


def remembers_always(remember: Remember, value: object) -> bool:
    """
    Whether a returned value is stored, known without a question. A function is asked once, by the flow, unless it has
    an attribute `always`: values of exactly this type are stored.
    """
    return not callable(remember) or type(value) is getattr(remember, "always", None)


DEFAULT_TERMS = Terms()

DURATIONS = {
    "lease": False,
    "lease_max": False,
    "wait": True,
    "keyed_for": False,
    "retain": False,
    "tombstone": False,
}
"""Which terms are durations, and whether zero is a sensible one."""

_CHOICES = {
    "guarantee": tuple(guarantee.value for guarantee in Guarantee),
    "in_flight": ("wait", "refuse", "accept"),
    "after_expiry": ("refuse", "run"),
    "claim": ("first", "last"),
    "settle": ("gate", "inside"),
    "takeover": ("holder", "lease"),
}

_NAMES = frozenset(field.name for field in fields(Terms))


def apply_options(base: Terms, changes: Mapping[str, Any]) -> Terms:
    """The terms that follow from some with changes, in the user's units; refused if they cannot work."""
    checked: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in _NAMES:
            raise ConfigurationError(f"there is no option {name!r}; the options are {', '.join(sorted(_NAMES))}")
        checked[name] = _check(name, value)
    terms = replace(base, **checked)
    if not LEASE_FLOOR <= terms.lease <= LEASE_CEILING:
        raise ConfigurationError("a lease is between a millisecond and a day; a longer job renews its lease")
    if terms.lease_max > LEASE_CEILING:
        raise ConfigurationError("lease_max is at most a day")
    if terms.lease_max < terms.lease:
        raise ConfigurationError("lease_max is how long a claim may hold in all, so it cannot be less than lease")
    if terms.guarantee == Guarantee.KEYED and terms.keyed_for <= terms.lease:
        raise ConfigurationError(
            "keyed_for is how long the downstream honours a key; it must be longer than the lease, because a call may "
            "be sent at any time while the lease holds"
        )
    if terms.claim == "last" and terms.guarantee != Guarantee.ATOMIC:
        raise ConfigurationError(
            "claim='last' is for gate.atomic only: any other effect could happen twice before the key is written"
        )
    if terms.settle == "inside":
        _check_inside(terms)
    composed = resilience_of(terms.retry, terms.breaker, terms.budget)
    if composed is not None and terms.guarantee == Guarantee.ATOMIC and (composed.repeats or terms.settle != "inside"):
        raise ConfigurationError(
            "an atomic effect lives in one transaction, which a retry cannot restart: put the policy, the breaker "
            "or the budget around the whole transaction"
        )
    return terms


def _check_inside(terms: Terms) -> None:
    """What goes together with a function that settles by itself."""
    if terms.guarantee != Guarantee.ATOMIC:
        raise ConfigurationError(
            "settle='inside' goes with guarantee='atomic': the function settles in the transaction that writes its rows"
        )
    if terms.claim == "last":
        raise ConfigurationError("with settle='inside' the gate claims before your function runs: leave claim out")
    if terms.remember != "success":
        raise ConfigurationError(
            "with settle='inside' what your function settles is remembered, and nothing else: remember='success'"
        )


def _check(name: str, value: Any) -> Any:
    if name in DURATIONS:
        return microseconds(value, name, zero=DURATIONS[name])
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise ConfigurationError(f"{name} is one of {', '.join(_CHOICES[name])}, not {str(value)[:40]!r}")
        return str(value)
    if name == "remember" and not (value in ("success", "all") or callable(value)):
        raise ConfigurationError("remember is 'success', 'all' or a function of Returned or Raised")
    if name == "result_bytes_max" and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ConfigurationError("result_bytes_max is a number of bytes, zero or more")
    if name == "before":
        return _check_before(value)
    if name == "classifier" and not isinstance(value, Classifier):
        raise ConfigurationError("classifier is a Classifier, for example Classifier().extended({CardDeclined: ...})")
    if name in ("retry", "breaker", "budget"):
        return check_resilience_option(name, value)
    if name == "relaxed_settle" and not isinstance(value, bool):
        raise ConfigurationError("relaxed_settle is True or False")
    return value


def _check_before(value: Any) -> tuple[type[BaseException], ...]:
    types = value if isinstance(value, tuple) else (value,)
    for one in types:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise ConfigurationError("before takes exception types that prove that the effect did not take place")
        if one in (BaseException, Exception):
            raise ConfigurationError(
                f"before={one.__name__} would call every failure harmless; name the types that your code raises "
                "before its effect, or mark the effect with `with operation.effect():`"
            )
    return types
