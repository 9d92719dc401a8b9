"""
Refusals as `application/problem+json` (RFC 9457): a stable code, whether retrying is safe and with which key, when,
and a link to a page that says more.

Status by code, where the profile does not say otherwise. Retryability is read from the code, never from the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps
from math import ceil
from typing import Any

from onceward._core.errors import InDoubt, KeyReused, OncewardError, RetryAdvice
from onceward._core.reply import Reply
from onceward.http.serving.profile import Profile

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
    "source_unready": 503,
    "store_unavailable": 503,
    "store_contended": 503,
    "store_full": 503,
}
"""Any other code is a 500: something is wrong on this side."""

ABOUT_THE_REQUEST = frozenset(
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
"""Codes whose message speaks of the request only. What others say (scopes, hosts, commands) is for the log."""

ABOUT_THE_OPERATION = frozenset({"handler_failed", "recorded_failure", "unrecorded"})
"""Codes of a 500 that say what became of the operation; any other is about the service, and says no more."""

OURS = "Something is wrong on this side. Whoever runs this service finds the reason in its log."

PENDING_TITLE = "Another request is running this operation right now. Ask again with the same key."


def status_of(error: OncewardError, profile: Profile) -> int:
    """The status of a refusal."""
    return profile.mismatch_status if isinstance(error, KeyReused) else STATUSES.get(spoken_of(error).code, 500)


def problem(error: OncewardError, profile: Profile, *, pages: str | None = WELL_KNOWN) -> Reply:
    """A refusal as an answer."""
    kind = spoken_of(error)
    title = title_of(kind)
    detail = str(error) if kind.code in ABOUT_THE_REQUEST else title
    return _made(status_of(error, profile), kind.code, title, detail, error.retry, error.retry_after_seconds, pages)


def spoken_of(error: OncewardError) -> type[OncewardError]:
    """As what an error is told on the wire. Why something is in doubt is for the log, and for callers in Python."""
    return InDoubt if isinstance(error, InDoubt) else type(error)


def pending(profile: Profile, seconds: float | None, *, pages: str | None = WELL_KNOWN) -> Reply:
    """The 202 of in_flight="accept"."""
    return _made(202, profile.pending_code, PENDING_TITLE, PENDING_TITLE, RetryAdvice.SAME_KEY, seconds or 1.0, pages)


def _made(
    status: int, code: str, title: str, detail: str, retry: RetryAdvice, seconds: float | None, pages: str | None
) -> Reply:
    page = None if pages is None else f"{pages}/{code.lower()}"
    document: dict[str, Any] = {
        "type": page or "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "retry": retry.value,
    }
    headers = [("content-type", PROBLEM), ("cache-control", "no-store")]
    if page is not None:
        headers.append(("link", f'<{page}>; rel="help"'))
    if retry is RetryAdvice.SAME_KEY:
        seconds = 1.0 if seconds is None else seconds
    if seconds is not None:
        document["retryAfterSeconds"] = round(seconds, 3)
        headers.append(("retry-after", str(max(1, ceil(seconds)))))
    return Reply(status, tuple(headers), dumps(document).encode())


def title_of(kind: type[OncewardError]) -> str:
    """What everybody may know: the first paragraph of a class's docstring, if it is not about this side."""
    if kind.code not in STATUSES and kind.code not in ABOUT_THE_OPERATION:
        return OURS
    return " ".join((kind.__doc__ or "").strip().partition("\n\n")[0].split())
