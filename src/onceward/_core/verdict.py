"""
What is known about a failure, in four words each: certainty, kind, action, wait.

A verdict is data. `classifier.py` makes it from an exception or a response; the retry flow, the breaker and the gate
act on it. None of them looks at exceptions by itself, so they cannot disagree about what "retry" means.

    certainty   did the effect happen?     NOT_SENT, REJECTED: no.  UNKNOWN: nobody knows.  DONE: yes
    kind        what kind of trouble?      rate limit, upstream, network, client, auth, state, other
    action      what may a caller do?      same key, new key, refresh credentials, escalate, never
    wait        how long did they ask for? seconds, or None if they did not say
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Certainty(StrEnum):
    """Whether the effect of an attempt took place."""

    NOT_SENT = "not sent"
    """The request never left, or was turned away unread: nothing happened."""
    REJECTED = "rejected"
    """It was read and refused: nothing happened. This speaks for its own attempt only."""
    UNKNOWN = "unknown"
    """It may have happened."""
    DONE = "done"
    """It happened."""


class Kind(StrEnum):
    """What sort of trouble it is."""

    RATE_LIMIT = "rate limit"
    UPSTREAM = "upstream"
    NETWORK = "network"
    CLIENT = "client"
    AUTH = "auth"
    STATE = "state"
    OTHER = "other"


class Action(StrEnum):
    """What a caller may do next."""

    SAME_KEY = "same-key"
    """Try again under the same key; an unknown outcome needs that key (or a probe, or a request safe by nature)."""
    NEW_KEY = "new-key"
    """This key is spent on another request: a person or a program must choose a new one."""
    REFRESH = "refresh-credentials"
    ESCALATE = "escalate"
    NEVER = "never"


class Verdict(NamedTuple):
    """What is known about one attempt."""

    certainty: Certainty
    kind: Kind
    action: Action
    wait: float | None = None
    """How long the other side asked to be left alone, in seconds."""
    code: str | None = None
    """The machine's own word for it, where there is one: a problem's code, a status, an exception's type."""

    @property
    def happened(self) -> bool | None:
        """True, False, or None: nobody knows."""
        if self.certainty is Certainty.UNKNOWN:
            return None
        return self.certainty is Certainty.DONE

    def retryable(self, *, keyed: bool = False) -> bool:
        """
        Whether to try again under the same key.

        With `keyed` (the same key goes along, or the request is safe by nature) also if nobody knows whether it
        happened; without, only if it certainly did not.
        """
        return self.action is Action.SAME_KEY and (keyed or self.happened is False)
