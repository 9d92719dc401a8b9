# Made from request_sender_async.py by `make halves`: change that file, not this one.
"""
Sends one request, with all its attempts: what every library has in common.
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
    """One request and its attempts. Each library adds how a request is sent and a response is read."""

    def __init__(self, preparer: RequestPreparer, send_terms: SendTerms, request: Any) -> None:
        self.preparer, self.send_terms, self.request = preparer, send_terms, request
        self.last: Any = None
        """The result of the last attempt: a response, or an exception."""
        self.now = send_terms.policy.environment.monotonic
        self.ends = 0.0
        """When the attempt must be over, on the monotonic clock."""

    def send(self) -> Any:
        """Send it, with retries; the response that the caller gets."""
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
            return self._deliver(response)
        if isinstance(given_up, OncewardError):
            return self._deliver(self.library_result(given_up))
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
            self.last = self.timeout_error()  # If it was the attempt's own timer; otherwise nobody looks at it.
            raise
        return self.last

    def drop(self) -> None:
        """Close the last response, which nobody will read: its connection goes back to the pool."""
        if self.last is not None and not isinstance(self.last, Exception):
            self.last.close()

    def _deliver(self, response: Any) -> Any:
        error = self.refusal(response)
        if error is None:
            return response
        self.read(response)
        raise error

    # --- what each library adds ---

    @abstractmethod
    def sent(self, attempt: Attempt) -> Any:
        """Send it once, and read as much of the response as decides what to do next."""

    @abstractmethod
    def read(self, response: Any) -> None:
        """Read the whole body of a response, for the error that is raised in its place."""

    @abstractmethod
    def timeout_error(self) -> Exception:
        """The library's own error for an attempt that took too long."""

    # --- the same for all of them ---

    def begin(self, seconds: float) -> dict[str, str]:
        """Begin an attempt: the headers to send with it."""
        self.ends = self.now() + seconds
        return self.preparer.attempt_headers(self.send_terms)

    def is_late(self) -> bool:
        """Whether the attempt's time is over: bytes that trickle in never reach the timeout of a single read."""
        return self.now() >= self.ends

    def note_code(self, response: Any, content: bytes) -> None:
        """Store a response's error code where the classifier looks for it."""
        if (code := error_code_in(response.status_code, content)) is not None:
            setattr(response, CODE_ATTRIBUTE, code)

    def timed_out(self, error: TimeoutError) -> Exception:
        """The library's error for an attempt that its own timer ended, with the policy's reason for stopping."""
        is_own = self.last is error
        if is_own:
            return error  # The library itself raised it.
        late, stop = self.timeout_error(), stop_of(error)
        late.__cause__ = error
        if stop is not None:
            attach_stop(late, stop)
        return late

    def library_result(self, error: OncewardError) -> Any:
        """
        The policy gave up with an error of its own. Callers of an HTTP client expect that client's responses and
        errors, so they get the last of these, with the reason for stopping attached; the policy's own error only if
        there was no attempt at all.
        """
        stop = stop_of(error)
        if stop is None or self.last is None or error is self.last:
            raise error
        found = attach_stop(self.last, stop._replace(problem=None))
        if isinstance(found, BaseException):
            raise found
        return found

    def refusal(self, response: Any) -> RateLimitError | None:
        """The error that the caller gets instead of a 429, with raise_rate_limit."""
        if response.status_code != 429 or not self.preparer.raise_rate_limit:
            return None
        error = rate_limit_error(response, self.send_terms.policy.environment)
        stop = stop_of(response)
        if stop is not None:
            attach_stop(error, stop)
        return error
