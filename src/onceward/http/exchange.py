"""
One request and all its attempts: what is common to every library.
"""

from __future__ import annotations

from typing import Any

from onceward._core.errors import OncewardError, RateLimitError
from onceward._core.stops import marked
from onceward.http.answers import CODE_ATTRIBUTE, code_in, rate_limit
from onceward.http.carrying import Cargo, Carrier
from onceward.retry.policy import stop_of


class Exchange:
    """What has come back so far. Each library adds how a request is sent and an answer is read."""

    def __init__(self, carrier: Carrier, cargo: Cargo, request: Any) -> None:
        self.carrier, self.cargo, self.request = carrier, cargo, request
        self.last: Any = None
        """What the last attempt came to: a response, or an exception."""
        self.now = cargo.policy.environment.monotonic
        self.ends = 0.0
        """When the attempt must be over, on the monotonic clock."""

    def begin(self, seconds: float) -> dict[str, str]:
        """An attempt begins: the headers that are sent with it."""
        self.ends = self.now() + seconds
        return self.carrier.fields(self.cargo)

    def is_late(self) -> bool:
        """Whether the attempt has had its time: bytes that trickle in keep every timeout between two of them."""
        return self.now() >= self.ends

    def note_code(self, response: Any, content: bytes) -> None:
        """Leave the code of a refusal where the classifier looks for it."""
        if (code := code_in(response.status_code, content)) is not None:
            setattr(response, CODE_ATTRIBUTE, code)

    def surface(self, error: OncewardError) -> Any:
        """
        The policy gave up with a word of its own. Whoever uses an HTTP client expects that client's answers and errors,
        so these come out, with the stop on them; the policy's own error only if there was no attempt at all.
        """
        stop = stop_of(error)
        if stop is None or self.last is None or error is self.last:
            raise error
        found = marked(self.last, stop._replace(problem=None))
        if isinstance(found, BaseException):
            raise found
        return found

    def refusal(self, response: Any) -> RateLimitError | None:
        """The error that the client was asked to make of this answer, if it was."""
        if response.status_code != 429 or not self.carrier.raise_rate_limit:
            return None
        error = rate_limit(response, self.cargo.policy.environment)
        stop = stop_of(response)
        if stop is not None:
            marked(error, stop)
        return error
