"""
Reads replays, rate limits and error codes from a response of any library: all have `status_code` and `headers`.
"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from onceward._core.classifier import DEFAULT
from onceward._core.errors import RateLimitError
from onceward._core.operation import to_datetime
from onceward._core.verdict_tables.http_statuses import BODY_BYTES_MAX, PENDING_CODES, response_info_of
from onceward.runtime.environment import REAL, Environment

REPLAY_HEADERS = ("Idempotency-Replayed", "Idempotent-Replayed", "Plan-Replayed")
"""Headers by which servers mark a replayed response."""

CODE_BODY_BYTES_MAX = BODY_BYTES_MAX
"""How much of an error response is read to find its code; a longer one is passed on as it comes."""

CODE_ATTRIBUTE = "code"
"""The attribute of a response with its error code, for the classifier and for callers."""

_ACCEPTED = 202


def replayed(response: Any) -> bool:
    """Whether the server marked this as the stored response of an earlier request with the same key."""
    headers = getattr(response, "headers", None) or {}
    return any(str(headers.get(name) or "").strip().lower() in ("true", "1", "?1") for name in REPLAY_HEADERS)


def raise_for_status(response: Any, *, environment: Environment = REAL) -> Any:
    """
    Return a successful response; raise for others: `RateLimitError` for a 429, else what the library itself raises.

    `RateLimitError` has `retry_after_seconds` and `retry_at`, from whichever header the server sent.
    """
    if response.status_code == 429:
        raise rate_limit_error(response, environment)
    response.raise_for_status()
    return response


def rate_limit_error(response: Any, environment: Environment) -> RateLimitError:
    """A 429 as an error."""
    now = to_datetime(environment.wall_us())
    wait = DEFAULT.judge(response, now=now).wait
    return RateLimitError(
        None if wait is None else f"The server refused with a rate limit. Retry in {wait:.3g} s, with the same key.",
        retry_after_seconds=wait,
        retry_at=None if wait is None else now + timedelta(seconds=wait),
        response=response,
    )


def may_hold_code(status: int) -> bool:
    """Whether the body may hold a code that matters: errors, and a 202 that may mean "still running"."""
    return status >= 400 or status == _ACCEPTED


def is_failure(response: Any) -> bool:
    """Whether a response is a failure: an error, or a 202 for work that is still running."""
    return response.status_code >= 400 or (
        response.status_code == _ACCEPTED and getattr(response, CODE_ATTRIBUTE, None) in PENDING_CODES
    )


def error_code_in(status: int, content: bytes) -> str | None:
    """The error code in a JSON body: `{"code": ...}` or `{"error": {"code": ...}}`."""
    info = response_info_of(SimpleNamespace(status_code=status, headers=None, _content=content))
    return None if info is None else info.code
