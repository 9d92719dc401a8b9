"""
Refusals as `application/problem+json` (RFC 9457): a stable code, whether and when to retry and with which key, and a
link to a page that says more. Or, with error_shape="stripe", in the shape that Stripe's SDKs read: to them a body
without `error` is a success, whatever its status.

The status follows from the code, unless the profile sets another. Clients decide about retries by the code, never by
the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps
from math import ceil
from typing import Any, NamedTuple

from onceward._core.errors import InDoubt, KeyReused, OncewardError, RetryAdvice
from onceward._core.reply import Reply
from onceward.http.server.profile import Profile
from onceward.http.server.unknown_caller import CallerUnknown

WELL_KNOWN = "/.well-known/idempotency"
PROBLEM = "application/problem+json"


STATUSES: Mapping[str, int] = {
    "key_missing": 400,
    "key_invalid": 400,
    "plan_incomplete": 400,
    "ambiguous_identity": 400,
    "request_invalid": 400,
    "event_invalid": 400,
    "signature_invalid": 401,
    "source_unknown": 404,
    "upload_timeout": 408,
    "in_flight": 409,
    "in_doubt": 409,
    "not_replayable": 409,
    "ownership_lost": 409,
    "expired": 410,
    "body_too_large": 413,
    "key_reused": 422,
    "rate_limited": 429,
    "budget_exhausted": 503,
    "circuit_open": 503,
    "deadline_exceeded": 503,
    "source_unready": 503,
    "store_unavailable": 503,
    "store_contended": 503,
    "store_full": 503,
    "seal_key_missing": 503,
}
"""Any other code is a 500: something is wrong on the server's side."""

REQUEST_ERROR_CODES = frozenset(
    {
        "key_missing",
        "key_invalid",
        "plan_incomplete",
        "ambiguous_identity",
        "request_invalid",
        "event_invalid",
        "signature_invalid",
        "upload_timeout",
        "body_too_large",
    }
)
"""Codes whose message is about the request only. Other messages (scopes, hosts, commands) go to the log only."""

OPERATION_ERROR_CODES = frozenset({"handler_failed", "recorded_failure", "unrecorded"})
"""Codes of a 500 that say what became of the operation; any other 500 gives no details."""

SERVER_FAULT_TITLE = "Something is wrong on the server. The reason is in its log."

PENDING_TITLE = "Another request is running this operation right now. Ask again with the same key."


class _Refusal(NamedTuple):
    """A refusal, before it has a shape."""

    status: int
    code: str
    title: str
    detail: str
    retry: RetryAdvice
    seconds: float | None
    page: str | None


def status_of(error: OncewardError, profile: Profile) -> int:
    """The HTTP status of a refusal."""
    if isinstance(error, CallerUnknown):
        return 500 if profile.unscoped == "pass" else profile.unscoped
    return (
        profile.mismatch_status if isinstance(error, KeyReused) else STATUSES.get(public_error_class(error).code, 500)
    )


def problem_response(error: OncewardError, profile: Profile, *, pages: str | None = WELL_KNOWN) -> Reply:
    """A refusal as problem+json."""
    return _as_problem(_refusal_of(error, profile, pages))


def refusal_response(error: OncewardError, profile: Profile, *, pages: str | None = WELL_KNOWN) -> Reply:
    """A refusal in the shape that the profile sets."""
    return _SHAPES[profile.error_shape](_refusal_of(error, profile, pages))


def public_error_class(error: OncewardError) -> type[OncewardError]:
    """The error class that clients see. Why something is in doubt is for the log, and for callers in Python."""
    return InDoubt if isinstance(error, InDoubt) else type(error)


def pending_response(profile: Profile, seconds: float | None, *, pages: str | None = WELL_KNOWN) -> Reply:
    """The 202 of in_flight="accept"."""
    code = profile.pending_code
    refusal = _Refusal(
        status=202,
        code=code,
        title=PENDING_TITLE,
        detail=PENDING_TITLE,
        retry=RetryAdvice.SAME_KEY,
        seconds=seconds or 1.0,
        page=_page(code, pages),
    )
    return _SHAPES[profile.error_shape](refusal)


def _refusal_of(error: OncewardError, profile: Profile, pages: str | None) -> _Refusal:
    status, seconds = status_of(error, profile), error.retry_after_seconds
    kind, code = public_error_class(error), error.code
    if isinstance(error, InDoubt):
        code = kind.code
    title = SERVER_FAULT_TITLE if status >= 500 and isinstance(error, CallerUnknown) else title_of(kind)
    detail = str(error) if code in REQUEST_ERROR_CODES else title
    if error.retry is RetryAdvice.SAME_KEY:
        seconds = 1.0 if seconds is None else seconds
    return _Refusal(status, code, title, detail, error.retry, seconds, _page(code, pages))


def _page(code: str, pages: str | None) -> str | None:
    return None if pages is None else f"{pages}/{code.lower()}"


def _headers(refusal: _Refusal, kind: str) -> list[tuple[str, str]]:
    headers = [("content-type", kind), ("cache-control", "no-store")]
    if refusal.page is not None:
        headers.append(("link", f'<{refusal.page}>; rel="help"'))
    if refusal.seconds is not None:
        headers.append(("retry-after", str(max(1, ceil(refusal.seconds)))))
    return headers


def _as_problem(refusal: _Refusal) -> Reply:
    document: dict[str, Any] = {
        "type": refusal.page or "about:blank",
        "title": refusal.title,
        "status": refusal.status,
        "detail": refusal.detail,
        "code": refusal.code,
        "retry": refusal.retry.value,
    }
    if refusal.seconds is not None:
        document["retryAfterSeconds"] = round(refusal.seconds, 3)
    return Reply(refusal.status, tuple(_headers(refusal, PROBLEM)), dumps(document).encode())


KEY_ERROR_CODES = frozenset({"key_reused", "in_flight", "in_doubt", "not_replayable", "ownership_lost", "expired"})
"""Codes that Stripe calls an `idempotency_error`. Others below 500 are an `invalid_request_error`."""

STRIPE_CODES = {"in_flight": "idempotency_key_in_use"}
"""Our codes for which Stripe has one of its own."""


def _as_stripe(refusal: _Refusal) -> Reply:
    """
    A refusal in Stripe's shape, so that its SDKs raise it. They decide about retries by `Stripe-Should-Retry`; without
    it they would retry every 409 and every 500.
    """
    if refusal.code in KEY_ERROR_CODES or refusal.status < 400:
        kind = "idempotency_error"
    else:
        kind = "api_error" if refusal.status >= 500 else "invalid_request_error"
    error: dict[str, Any] = {
        "type": kind,
        "code": STRIPE_CODES.get(refusal.code, refusal.code),
        "message": refusal.detail,
        "retry": refusal.retry.value,
    }
    if refusal.page is not None:
        error["doc_url"] = refusal.page
    if refusal.seconds is not None:
        error["retry_after_seconds"] = round(refusal.seconds, 3)
    again = "true" if refusal.retry is RetryAdvice.SAME_KEY else "false"
    headers = (*_headers(refusal, "application/json"), ("stripe-should-retry", again))
    return Reply(refusal.status, headers, dumps({"error": error}).encode())


_SHAPES = {"problem": _as_problem, "stripe": _as_stripe}


def title_of(kind: type[OncewardError]) -> str:
    """The title for clients: the first paragraph of the class's docstring, unless the fault is on the server's side."""
    if kind.code not in STATUSES and kind.code not in OPERATION_ERROR_CODES and kind is not CallerUnknown:
        return SERVER_FAULT_TITLE
    return " ".join((kind.__doc__ or "").strip().partition("\n\n")[0].split())
