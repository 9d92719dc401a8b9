"""
Which response settles a key, which releases it, and which leaves it in doubt.

    status below 400            settled: stored and replayed
    status 4xx                  released: a retry runs again. Settled if the application is known to have committed
                                something by then (Django), or with remember="4xx"
    status 5xx, or raised       blind: in doubt. atomic: released. keyed, repeatable: run again. probed: probed
    remember="all"              settled, whatever it was

On a transactional route the handler settles, inside its own database transaction, with
`current_operation().settle_inside(session, Reply.json(...))`:

    settled and committed       that is the response, whatever the handler returned
    settled and rolled back     released; the handler's own 4xx or 5xx is sent, otherwise 500 `not_settled`
    not settled, 4xx or 5xx     released, and sent as it is: the handler's rows are rolled back
    not settled, below 400      in doubt: rows may have been committed without their record
    raised                      released, unless the commit went through: then the next request gets the response

A response that is too long to be stored is sent all the same; the record says that the operation ran. If its client
leaves, the handler is stopped in the middle. That is a failure, whatever was sent so far. With atomic it is in doubt,
too: the handler may have rolled back, or committed before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from onceward._core.flow import Raised, Returned
from onceward._core.operation import Operation
from onceward._core.reply import Reply
from onceward.http.server.profile import Profile


class UnstoredResponse(NamedTuple):
    """A response that was sent and cannot be stored: the record says that it ran, and is not replayable."""

    status: int
    reason: Any
    """Anything that no codec can encode, so that the gate cannot store it."""
    transient: bool = False
    """Whether its key is released."""


class TransientResponse(Reply):
    """A response that is sent, not stored; its key is released."""

    __slots__ = ()


class FailedResponse(Exception):
    """The handler returned a 5xx that is not stored. `reply` is that response."""

    def __init__(self, reply: Reply | UnstoredResponse) -> None:
        super().__init__(f"the handler returned {reply.status}")
        self.reply = reply
        self.status = reply.status
        """For classifiers: breakers and retry policies judge it like any other response."""


class CommittedResponse(FailedResponse):
    """The handler returned a 5xx, and what it wrote was committed all the same."""

    def __str__(self) -> str:
        return (
            f"the view returned {self.reply.status}, and ATOMIC_REQUESTS commits whatever a view returns. "
            "To roll back, raise an exception"
        )


class RolledBackResponse(FailedResponse):
    """The handler returned a 5xx on an atomic route: its effects were rolled back."""


class RolledBackError(Exception):
    """The handler of an atomic route raised: its effects were rolled back. The cause is what it raised."""


class ClientLeft(Exception):
    """The client has left, the response is too long to be stored, and its handler was stopped in the middle."""


def remembers(profile: Profile, status: int) -> bool:
    """Whether a response with this status is stored. A transactional route stores only what its handler settled."""
    if profile.transactional:
        return False
    if profile.remember == "success":
        return status < 400
    if profile.remember == "4xx" or profile.remember == "all":
        # A 429 asks for a retry: a stored one would refuse every retry.
        return status != 429 and (status < 500 or profile.remember == "all")
    return bool(profile.remember(status))


def handler_result(
    profile: Profile, reply: Reply | UnstoredResponse, operation: Operation | None = None, *, committed: bool = False
) -> Reply | UnstoredResponse:
    """
    The handler's response is complete: what the gate's function returns, or raises.

    On a transactional route give `operation`, after the handler has returned and so has committed or not. `committed`
    says that a write of the application was seen to be committed while the handler ran.
    """
    if profile.transactional:
        if reply.status >= 400 and not has_settled(operation) and not committed:
            raise RolledBackResponse(reply)
        return reply
    kept = remembers(profile, reply.status) or (committed and reply.status < 500)
    if kept and not (reply.status >= 400 and _is_in_doubt(operation)):
        return reply
    if reply.status >= 500:
        raise RolledBackResponse(reply) if profile.guarantee == "atomic" and not committed else FailedResponse(reply)
    return reply._replace(transient=True) if isinstance(reply, UnstoredResponse) else TransientResponse(*reply)


def has_settled(operation: Operation | None) -> bool:
    """Whether a handler has settled, inside a transaction that may be committed or not."""
    return operation is not None and operation.inside is not None and operation.inside.called


def _is_in_doubt(operation: Operation | None) -> bool:
    """Whether an earlier attempt may have had its effect. A 4xx says nothing about earlier attempts."""
    return operation is not None and bool(operation.record.doubt)


def is_own_refusal(reply: Reply | UnstoredResponse | None) -> bool:
    """
    Whether a handler that settled and rolled back (`NotSettled`) returned an error.

    Then that is sent. If not, its response claims a success that was rolled back, and a 500 is sent in its place.
    """
    return reply is not None and reply.status >= 400


def gate_options(profile: Profile) -> dict[str, Any]:
    """A profile as options of the gate's `call`."""
    given = {
        "retain": profile.retain,
        "tombstone": profile.tombstone,
        "after_expiry": profile.after_expiry,
        "keyed_for": profile.keyed_for,
        "lease": profile.lease,
        "lease_max": profile.lease_max,
        "result_bytes_max": profile.result_bytes_max,
        "retry": profile.retry,
        "breaker": profile.breaker,
        "budget": profile.budget,
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    options |= {"in_flight": profile.in_flight, "wait": profile.wait}
    if profile.transactional:
        # The handler's own commit is what settles, so a handler that died has done nothing.
        return options | {"guarantee": "atomic", "settle": "inside", "remember": "success"}
    options["remember"] = REMEMBERED
    # An atomic handler that fails has rolled back. One that died may have committed before. So the claim itself is
    # blind, and only a failure that was seen releases it.
    options["guarantee"] = "blind" if profile.guarantee == "atomic" else profile.guarantee
    if profile.guarantee == "atomic":
        options["before"] = (RolledBackResponse, RolledBackError)
    return options


class RememberedResponses:
    """
    The gate's `remember` for a handler: what `handler_result` decided. Remembered exceptions are responses by now.

    `always` spares a caller the question: a result of exactly this type is stored, whatever else there is to know.
    """

    always = Reply

    def __call__(self, ending: Returned | Raised) -> bool:
        """Whether the gate stores this result."""
        if isinstance(ending, Raised):
            return False
        value = ending.value
        if isinstance(value, UnstoredResponse):
            return not value.transient
        return not isinstance(value, TransientResponse)


REMEMBERED = RememberedResponses()
