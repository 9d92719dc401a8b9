"""
What can go wrong around an operation: on the way to a service, at the edge of HTTP and webhooks, and in who may call.

`errors` draws all of them, and is where they are imported from.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from onceward._core.base_error import Fault, OncewardError, RetryAdvice


class RateLimitError(OncewardError):
    """
    The other side asks for a pause. Nothing happened; send it again, unchanged, after the pause.

    For clients to raise: `RateLimitError(retry_after_seconds=30)`. `response` is the answer itself, if there is one.

    A loop may repeat it, with the same key, after the pause.
    """

    code = "rate_limited"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.SAME_KEY

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after_seconds: float | None = None,
        retry_at: datetime | None = None,
        response: Any = None,
    ) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds, retry_at=retry_at)
        self.response = response


class ServiceUnreachable(OncewardError):
    """
    The service did not answer, or could not be reached. Sent again, unchanged, this call happens once.

    Raised by `Client` where a call has a key, only reads, or is known not to have arrived. The HTTP library's own
    error is the cause.

    A loop may repeat it, with the same key, after a pause.
    """

    code = "service_unreachable"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.SAME_KEY


class SpoolFull(OncewardError):
    """
    Too many items wait in the emitter's spool. This one was not taken: slow down, and emit it again later.

    A loop may repeat it, with the same key, after a pause.
    """

    code = "spool_full"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.SAME_KEY


class PlanIncomplete(OncewardError, RuntimeError):
    """
    A step is named by two headers, Plan-Key and Plan-Step. One of them is missing; nothing was run.

    A loop must not repeat it: send both headers.
    """

    code = "plan_incomplete"


class AmbiguousIdentity(OncewardError, RuntimeError):
    """
    The request names a key and a step, which are two operations. Nothing was run.

    A loop must not repeat it: send one of the two.
    """

    code = "ambiguous_identity"


class BodyTooLarge(OncewardError, RuntimeError):
    """
    The request's body is longer than this service takes under a key. Nothing was run.

    A loop must not repeat it: send less.
    """

    code = "body_too_large"


class UploadTimeout(OncewardError):
    """
    The request's body did not arrive in time. Nothing was run; send it again with the same key.

    A loop may repeat it, with the same key.
    """

    code = "upload_timeout"
    retry = RetryAdvice.SAME_KEY


class HandlerFailed(OncewardError, RuntimeError):
    """
    The handler failed, and its failure is what this key is remembered by.

    A loop must not repeat it: this key replays its failure. A new try needs a new key.
    """

    code = "handler_failed"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.NEW_KEY


class SignatureInvalid(OncewardError, RuntimeError):
    """
    A webhook's signature, time or id is not right, so it was not believed, and nothing was kept of it.

    A loop must not repeat it: the same bytes stay unbelieved.
    """

    code = "signature_invalid"


class EventInvalid(SignatureInvalid):
    """
    The event's id is missing, or cannot be one, so a redelivery could not be told from another event.

    A loop must not repeat it: the event needs an id.
    """

    code = "event_invalid"


class SourceUnknown(OncewardError, RuntimeError):
    """
    Nothing is received here under this name.

    A loop must not repeat it: add the source first.
    """

    code = "source_unknown"


class SourceUnready(OncewardError):
    """
    What this source signs with cannot be read here, so nothing was believed and nothing kept. Send it again.

    A loop may repeat it, as it is, after a pause.
    """

    code = "source_unready"
    fault = Fault.STORE
    retry = RetryAdvice.SAME_KEY


class TargetRefused(OncewardError, RuntimeError):
    """
    A webhook's URL leads where this service does not send, so nothing was sent.

    A loop must not repeat it: the URL stays what it is.
    """

    code = "target_refused"


class TokenInvalid(OncewardError, RuntimeError):
    """
    This token is not valid: unknown, revoked, expired or damaged. Which of these it is, is not told.

    A loop must not repeat it: use a valid token.
    """

    code = "token_invalid"


class Forbidden(OncewardError, RuntimeError):
    """
    The token is valid and may not do this: its role, its environment or its list of databases does not cover it.

    A loop must not repeat it: use a token that may.
    """

    code = "forbidden"


class BalanceExhausted(OncewardError, RuntimeError):
    """
    The tenant's prepaid balance does not cover this call. Nothing ran, and the key is unused: top up, then retry.

    A loop must not repeat it: top up first, then the same key may be used.
    """

    code = "balance_exhausted"

    def __init__(self, message: str | None = None, *, balance: int | None = None, price: int | None = None) -> None:
        super().__init__(message)
        self.balance = balance
        self.price = price


class QuotaExceeded(OncewardError, RuntimeError):
    """
    The tenant holds as many records, or bytes, as its quota allows. Nothing ran, and the key is unused.

    A loop must not repeat it: make room first, then the same key may be used.
    """

    code = "quota_exceeded"

    def __init__(self, message: str | None = None, *, limit: int | None = None, held: int | None = None) -> None:
        super().__init__(message)
        self.limit = limit
        self.held = held
