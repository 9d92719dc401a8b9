# Made from request_sender_async.py by `make halves`: change that file, not this one.
"""
One request and all its attempts: what is common to every library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from onceward._core.errors import OncewardError, RateLimitError
from onceward._core.retry_flow import Attempt
from onceward._core.stops import attach_stop
from onceward.http.client.request_preparer import INTERRUPTIONS, RequestPreparer, SendTerms
from onceward.http.client.responses import CODE_ATTRIBUTE, error_code_in, rate_limit_error
from onceward.retry.policy import stop_of


class RequestSender(ABC):
    """What has come back so far. Each library adds how a request is sent and an answer is read."""

    def __init__(self, carrier: RequestPreparer, cargo: SendTerms, request: Any) -> None:
        self.preparer, self.send_terms, self.request = carrier, cargo, request
        self.last: Any = None
        """What the last attempt came to: a response, or an exception."""
        self.now = cargo.policy.environment.monotonic
        self.ends = 0.0
        """When the attempt must be over, on the monotonic clock."""

    def send(self) -> Any:
        """Send it, again if need be; the answer that the caller gets."""
        attempt: Callable[..., Any] = self.attempt
        try:
            response = self.send_terms.policy.call(attempt)
        except OncewardError as error:
            given_up: Exception = error
        except TimeoutError as error:
            given_up = self.timed_out(error)
        except INTERRUPTIONS:
            self.drop()
            raise
        else:
            return self._delivered(response)
        if isinstance(given_up, OncewardError):
            return self._delivered(self.library_result(given_up))
        raise given_up

    def attempt(self, attempt: Attempt) -> Any:
        """Send it once."""
        self.drop()
        try:
            self.last = self.sent(attempt)
        except Exception as error:
            self.last = error
            raise
        except INTERRUPTIONS:
            self.last = self.timeout_error()  # By the attempt's own timer; if not, nobody will ask.
            raise
        return self.last

    def drop(self) -> None:
        """Give the connection of an answer back that nobody will read."""
        if self.last is not None and not isinstance(self.last, Exception):
            self.last.close()

    def _delivered(self, response: Any) -> Any:
        error = self.refusal(response)
        if error is None:
            return response
        self.read(response)
        raise error

    # --- what each library adds ---

    @abstractmethod
    def sent(self, attempt: Attempt) -> Any:
        """The answer to one sending, read as far as it may decide what is done next."""

    @abstractmethod
    def read(self, response: Any) -> None:
        """Read an answer to its end, for the error that is raised in its place."""

    @abstractmethod
    def timeout_error(self) -> Exception:
        """The library's own word for an attempt that took too long."""

    # --- the same for all of them ---

    def begin(self, seconds: float) -> dict[str, str]:
        """An attempt begins: the headers that are sent with it."""
        self.ends = self.now() + seconds
        return self.preparer.fields(self.send_terms)

    def is_late(self) -> bool:
        """Whether the attempt has had its time: bytes that trickle in keep every timeout between two of them."""
        return self.now() >= self.ends

    def note_code(self, response: Any, content: bytes) -> None:
        """Leave the code of a refusal where the classifier looks for it."""
        if (code := error_code_in(response.status_code, content)) is not None:
            setattr(response, CODE_ATTRIBUTE, code)

    def timed_out(self, error: TimeoutError) -> Exception:
        """`timeout_error`, for an attempt that its own timer ended; with the stop that the policy left."""
        is_own = self.last is error
        if is_own:
            return error  # What sends raised it by itself.
        late, stop = self.timeout_error(), stop_of(error)
        late.__cause__ = error
        if stop is not None:
            attach_stop(late, stop)
        return late

    def library_result(self, error: OncewardError) -> Any:
        """
        The policy gave up with a word of its own. Whoever uses an HTTP client expects that client's answers and errors,
        so these come out, with the stop on them; the policy's own error only if there was no attempt at all.
        """
        stop = stop_of(error)
        if stop is None or self.last is None or error is self.last:
            raise error
        found = attach_stop(self.last, stop._replace(problem=None))
        if isinstance(found, BaseException):
            raise found
        return found

    def refusal(self, response: Any) -> RateLimitError | None:
        """The error that the client was asked to make of this answer, if it was."""
        if response.status_code != 429 or not self.preparer.raise_rate_limit:
            return None
        error = rate_limit_error(response, self.send_terms.policy.environment)
        stop = stop_of(response)
        if stop is not None:
            attach_stop(error, stop)
        return error
