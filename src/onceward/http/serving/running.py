"""
How a handler's ending is told to the gate.

    answered below 400          settled: stored and replayed
    answered 4xx                released: the key may be used again, for this request
    answered 5xx, or raised     blind: in doubt. atomic: released. keyed, probed, repeatable: run or asked again
    remember="all"              settled, whatever it was

An answer that cannot be kept (too long, or a stream that was) has been given all the same: the record says that it ran.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from onceward._core.flow import Raised, Returned
from onceward._core.reply import Reply
from onceward.http.serving.profile import Profile


class Unkept(NamedTuple):
    """An answer that was given and is not kept: it has no stored form, so the record says executed, not replayable."""

    status: int
    reason: Any
    """Not data, on purpose."""


class FailedAnswer(Exception):
    """The handler answered with a status that is not remembered and not harmless. `reply` is that answer."""

    def __init__(self, reply: Reply | Unkept) -> None:
        super().__init__(f"the handler answered {reply.status}")
        self.reply = reply


class RolledBack(FailedAnswer):
    """The same, on a route that says that its effects roll back with it."""


class RaisedAndRolledBack(Exception):
    """The handler of such a route raised; that is the cause."""


def remembers(profile: Profile, status: int) -> bool:
    """Whether an answer with this status is stored."""
    if profile.remember == "all":
        return True
    if profile.remember == "success":
        return status < 400
    return bool(profile.remember(status))


def ended(profile: Profile, reply: Reply | Unkept) -> Reply | Unkept:
    """The handler answered: what the gate's function returns, or raises."""
    if reply.status >= 500 and not remembers(profile, reply.status):
        raise RolledBack(reply) if profile.guarantee == "atomic" else FailedAnswer(reply)
    return reply


def gate_options(profile: Profile) -> dict[str, Any]:
    """A profile as options of the gate's `call`."""
    said = {
        "retain": profile.retain,
        "tombstone": profile.tombstone,
        "after_expiry": profile.after_expiry,
        "keyed_for": profile.keyed_for,
        "lease": profile.lease,
        "lease_max": profile.lease_max,
        "result_bytes_max": profile.result_bytes_max,
    }
    options: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    options |= {"in_flight": profile.in_flight, "wait": profile.wait, "remember": _remember(profile)}
    # A handler that rolls back with its transaction says so by failing. That it died says nothing: its COMMIT may have
    # landed. So the claim itself is blind, and only a failure that was seen releases it.
    options["guarantee"] = "blind" if profile.guarantee == "atomic" else profile.guarantee
    if profile.guarantee == "atomic":
        options["before"] = (RolledBack, RaisedAndRolledBack)
    return options


def _remember(profile: Profile) -> Callable[[Returned | Raised], bool]:
    def remember(ending: Returned | Raised) -> bool:
        if isinstance(ending, Raised):
            return False  # Exceptions that are remembered were made answers before.
        status = getattr(ending.value, "status", 200)
        return remembers(profile, status)

    return remember
