"""
What is read from an answer, whichever library it came with: all of them have `status_code` and `headers`.
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
"""By which servers say that an answer is the first one, told again."""

CODE_BODY_BYTES_MAX = BODY_BYTES_MAX
"""How much of a refusal is read to find its code; a longer one is passed on as it comes."""

CODE_ATTRIBUTE = "code"
"""Where the code of a refusal is left on the response, for the classifier and for whoever wants it."""

_ACCEPTED = 202


def replayed(response: Any) -> bool:
    """Whether the server says that this is the stored answer of an earlier request with the same key."""
    headers = getattr(response, "headers", None) or {}
    return any(str(headers.get(name) or "").strip().lower() in ("true", "1", "?1") for name in REPLAY_HEADERS)


def raise_for_status(response: Any, *, environment: Environment = REAL) -> Any:
    """
    Give a good response back, and raise for others: `RateLimitError` for a 429, else what the library itself raises.

    The error has `retry_after_seconds` and `retry_at`, read from whichever header the server said it in.
    """
    if response.status_code == 429:
        raise rate_limit_error(response, environment)
    response.raise_for_status()
    return response


def rate_limit_error(response: Any, environment: Environment) -> RateLimitError:
    """What a 429 says, as an error."""
    now = to_datetime(environment.wall_us())
    wait = DEFAULT.judge(response, now=now).wait
    return RateLimitError(
        None if wait is None else f"The other side asks for a pause of {wait:.3g} s. Send it again, unchanged, then.",
        retry_after_seconds=wait,
        retry_at=None if wait is None else now + timedelta(seconds=wait),
        response=response,
    )


def may_hold_code(status: int) -> bool:
    """Whether the body may hold a code that decides: refusals, and an acceptance that may be none yet."""
    return status >= 400 or status == _ACCEPTED


def is_failure(response: Any) -> bool:
    """Whether an answer is none: an error, or work that is still under way."""
    return response.status_code >= 400 or (
        response.status_code == _ACCEPTED and getattr(response, CODE_ATTRIBUTE, None) in PENDING_CODES
    )


def error_code_in(status: int, content: bytes) -> str | None:
    """The machine's own word in a body of JSON: `{"code": ...}` or `{"error": {"code": ...}}`."""
    answer = response_info_of(SimpleNamespace(status_code=status, headers=None, _content=content))
    return None if answer is None else answer.code
