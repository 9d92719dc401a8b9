"""
How a handler's ending is told to the gate.

    answered below 400          settled: stored and replayed
    answered 4xx                released: the key may be used again, for this request; unless it is known that the
                                application had committed something by then (Django), or remember="4xx" says so
    answered 5xx, or raised     blind: in doubt. atomic: released. keyed, probed, repeatable: run or asked again
    remember="all"              settled, whatever it was

On a transactional route the handler settles, inside its own database transaction, with
`current_operation().settle_inside(session, Reply.json(...))`:

    settled and committed       that is the answer, whatever the handler answered
    settled and undone          released; a 4xx or 5xx of the handler's own is sent, otherwise 500 `not_settled`
    not settled, 4xx or 5xx     released, and sent as it is: the handler's rows are undone with it
    not settled, below 400      in doubt: rows may stand without their record
    raised                      released, unless the commit went through: then the next request is given the answer

An answer that cannot be kept (too long, or a stream that was) has been given all the same: the record says that it ran.
If its client leaves, its handler is let go in the middle. That is a failure, whatever it has answered so far, and
atomic is in doubt, too: who was let go may have rolled back, or committed before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from onceward._core.flow import Raised, Returned
from onceward._core.operation import Operation
from onceward._core.reply import Reply
from onceward.http.server.profile import Profile


class UnstoredResponse(NamedTuple):
    """An answer that was given and is not kept: it has no stored form, so the record says executed, not replayable."""

    status: int
    reason: Any
    """Not data, on purpose."""
    transient: bool = False
    """Whether its key is released all the same."""


class TransientResponse(Reply):
    """An answer that its key is not remembered by."""

    __slots__ = ()


class FailedResponse(Exception):
    """The handler answered with a status that is not remembered and not harmless. `reply` is that answer."""

    def __init__(self, reply: Reply | UnstoredResponse) -> None:
        super().__init__(f"the handler answered {reply.status}")
        self.reply = reply
        self.status = reply.status
        """For classifiers: a breaker and a policy judge a handler's answer as they judge any other."""


class CommittedAnswer(FailedResponse):
    """The handler returned a 5xx, and what it wrote is there all the same."""

    def __str__(self) -> str:
        return f"the view returned {self.reply.status}, and ATOMIC_REQUESTS commits what returns; to roll back, raise"


class RolledBackResponse(FailedResponse):
    """The same, on a route that says that its effects roll back with it."""


class RolledBackError(Exception):
    """The handler of such a route raised; that is the cause."""


class LetGo(Exception):
    """The client of an answer that is too long to be kept has left, and its handler was let go in the middle."""


def remembers(profile: Profile, status: int) -> bool:
    """Whether an answer with this status is stored. A transactional route stores what its handler settled, only."""
    if profile.transactional:
        return False
    if profile.remember == "success":
        return status < 400
    if profile.remember == "4xx" or profile.remember == "all":
        # A 429 says that nothing was done and when to come again: who remembers it turns every retry away.
        return status != 429 and (status < 500 or profile.remember == "all")
    return bool(profile.remember(status))


def handler_result(
    profile: Profile, reply: Reply | UnstoredResponse, operation: Operation | None = None, *, committed: bool = False
) -> Reply | UnstoredResponse:
    """
    The handler answered: what the gate's function returns, or raises.

    With `operation`, on a transactional route, whose handler must be over by then: its last word is its commit.
    With `committed`, it is known that something of the application's was committed while the handler ran.
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
    """Whether an earlier attempt may have had its effect. A refusal speaks for its own attempt only."""
    return operation is not None and bool(operation.record.doubt)


def is_own_refusal(reply: Reply | UnstoredResponse | None) -> bool:
    """
    Whether the handler of a transactional route, which settled and undid that (`NotSettled`), says so by its answer.

    Then that answer is sent. If not, it says that all went well, and it did not: the error's problem is sent.
    """
    return reply is not None and reply.status >= 400


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
        "retry": profile.retry,
        "breaker": profile.breaker,
        "budget": profile.budget,
    }
    options: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    options |= {"in_flight": profile.in_flight, "wait": profile.wait}
    if profile.transactional:
        # The handler's own commit is what settles, so a handler that died has done nothing.
        return options | {"guarantee": "atomic", "settle": "inside", "remember": "success"}
    options["remember"] = _is_remembered
    # A handler that rolls back with its transaction says so by failing. That it died says nothing: its COMMIT may have
    # landed. So the claim itself is blind, and only a failure that was seen releases it.
    options["guarantee"] = "blind" if profile.guarantee == "atomic" else profile.guarantee
    if profile.guarantee == "atomic":
        options["before"] = (RolledBackResponse, RolledBackError)
    return options


def _is_remembered(ending: Returned | Raised) -> bool:
    """
    What `handler_result` decided, as the gate asks for it. Exceptions that are remembered were made answers before.
    """
    if isinstance(ending, Raised) or isinstance(ending.value, TransientResponse):
        return False
    return not (isinstance(ending.value, UnstoredResponse) and ending.value.transient)
