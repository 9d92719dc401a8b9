"""
Errors around an operation: of clients, HTTP requests, webhooks, tokens and quotas.

`errors.py` has the drawing of all errors, and everybody imports them from there.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from onceward._core.base_error import Fault, OncewardError, RetryAdvice

MENDED_SECONDS = 60.0
"""When to ask again about what somebody has to mend (a top-up, a quota): it takes a while, and asking is cheap."""


class RateLimitError(OncewardError):
    """
    The server asks for a pause. Nothing happened; retry with the same key after the pause.

    Clients raise it: `RateLimitError(retry_after_seconds=30)`. `response` is the HTTP response, if there is one.

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
    The service could not be reached, or did not respond. Retry with the same key: the call happens once.

    Raised by `Client` where a call has a key, only reads, or is known not to have arrived. The HTTP library's own
    error is the cause.

    A loop may repeat it, with the same key, after a pause.
    """

    code = "service_unreachable"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.SAME_KEY


class SpoolFull(OncewardError):
    """
    The emitter's spool is full, so this item was not added. Slow down, and emit it again later.

    A loop may repeat it, with the same key, after a pause.
    """

    code = "spool_full"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.SAME_KEY


class PlanIncomplete(OncewardError, RuntimeError):
    """
    One of the headers Plan-Key and Plan-Step is missing, so nothing was run. Send both.

    A loop must not repeat it: send both headers.
    """

    code = "plan_incomplete"


class AmbiguousIdentity(OncewardError, RuntimeError):
    """
    The request has a key and a step, which are two operations, so nothing was run. Send one of them.

    A loop must not repeat it: send one of the two.
    """

    code = "ambiguous_identity"


class BodyTooLarge(OncewardError, RuntimeError):
    """
    The request's body is too large for a request with a key, so nothing was run. Send less.

    A loop must not repeat it: send less.
    """

    code = "body_too_large"


class UploadTimeout(OncewardError):
    """
    The request's body did not arrive in time, so nothing was run. Retry with the same key.

    A loop may repeat it, with the same key.
    """

    code = "upload_timeout"
    retry = RetryAdvice.SAME_KEY


class HandlerFailed(OncewardError, RuntimeError):
    """
    The handler failed, and every retry with this key gets this failure. A new try needs a new key.

    A loop must not repeat it: this key replays the failure.
    """

    code = "handler_failed"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.NEW_KEY


class SignatureInvalid(OncewardError, RuntimeError):
    """
    The webhook's signature, time or id is wrong, so it was rejected. Check the secret and the clocks.

    A loop must not repeat it: the same bytes are rejected again.
    """

    code = "signature_invalid"


class EventInvalid(SignatureInvalid):
    """
    The event's id is missing or not valid, so it was rejected. Send an id that is the same on every delivery.

    A loop must not repeat it: the event needs an id.
    """

    code = "event_invalid"


class SourceUnknown(OncewardError, RuntimeError):
    """
    This source of webhooks is not known here. Check the address, or add the source.

    A loop must not repeat it: add the source first.
    """

    code = "source_unknown"


class SourceUnready(OncewardError):
    """
    This source's secret cannot be read here, so the webhook was rejected. Deliver it again later.

    A loop may repeat it, as it is, after a pause.
    """

    code = "source_unready"
    fault = Fault.STORE
    retry = RetryAdvice.SAME_KEY


class TargetRefused(OncewardError, RuntimeError):
    """
    This service does not send to the webhook's URL, so nothing was sent. Use a public https URL.

    A loop must not repeat it: the URL stays the same.
    """

    code = "target_refused"


class TokenInvalid(OncewardError, RuntimeError):
    """
    This token is not valid: it is unknown, revoked, expired or damaged. Use a valid one.

    A loop must not repeat it: use a valid token.
    """

    code = "token_invalid"


class Forbidden(OncewardError, RuntimeError):
    """
    This token may not do that: its role, environment or list of databases does not allow it. Use one that may.

    A loop must not repeat it: use a token that may.
    """

    code = "forbidden"


class BalanceExhausted(OncewardError):
    """
    The tenant's prepaid balance is too low, so nothing was run. Top up, then send it again with the same key.

    A loop may repeat it, with the same key, after the pause; it helps only once somebody has topped up.
    """

    code = "balance_exhausted"
    retry = RetryAdvice.SAME_KEY

    def __init__(
        self,
        message: str | None = None,
        *,
        balance: int | None = None,
        price: int | None = None,
        retry_after_seconds: float | None = MENDED_SECONDS,
    ) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds)
        self.balance = balance
        self.price = price


class QuotaExceeded(OncewardError):
    """
    The tenant's quota is used up, so nothing was made. Make room, then send it again with the same key.

    A loop may repeat it, with the same key, after the pause; it helps only once there is room.
    """

    code = "quota_exceeded"
    retry = RetryAdvice.SAME_KEY

    def __init__(
        self,
        message: str | None = None,
        *,
        limit: int | None = None,
        held: int | None = None,
        retry_after_seconds: float | None = MENDED_SECONDS,
    ) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds)
        self.limit = limit
        self.held = held
