"""
Verdicts by HTTP status: on responses, and on exceptions that carry one.

The status says what became of the request; a problem's code says it better; headers say how long to wait.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from onceward._core.retry_headers import retry_hints
from onceward._core.verdict import Action, Certainty, Kind, Verdict
from onceward._core.verdict_tables.onceward_errors import CODES
from onceward._core.verdict_tables.rules import UNKNOWN, read_attribute

_C, _K, _A = Certainty, Kind, Action

STATUSES: Final[dict[int, Verdict]] = {
    400: Verdict(_C.REJECTED, _K.CLIENT, _A.NEVER),
    401: Verdict(_C.REJECTED, _K.AUTH, _A.REFRESH),
    403: Verdict(_C.REJECTED, _K.AUTH, _A.ESCALATE),
    404: Verdict(_C.REJECTED, _K.CLIENT, _A.NEVER),
    407: Verdict(_C.REJECTED, _K.AUTH, _A.ESCALATE),
    # The server gave up waiting for the request; a proxy says the same when it gave up waiting for the answer.
    408: Verdict(_C.UNKNOWN, _K.NETWORK, _A.SAME_KEY),
    # Whether a conflict passes is for its code to say; without one, trying again changes nothing.
    409: Verdict(_C.REJECTED, _K.STATE, _A.NEVER),
    410: Verdict(_C.REJECTED, _K.STATE, _A.NEVER),
    412: Verdict(_C.REJECTED, _K.STATE, _A.NEVER),
    422: Verdict(_C.REJECTED, _K.CLIENT, _A.NEVER),
    423: Verdict(_C.REJECTED, _K.STATE, _A.NEVER),
    # Too early: the server would not process what may be a replay of early data (RFC 8470). Unprocessed is unread.
    425: Verdict(_C.NOT_SENT, _K.UPSTREAM, _A.SAME_KEY),
    # A limiter stands in front of the work: who is turned away there has not been let in.
    429: Verdict(_C.NOT_SENT, _K.RATE_LIMIT, _A.SAME_KEY),
    # A failure in the middle. 503 too: some send it before, some after; a provider that documents it can be taught.
    500: Verdict(_C.UNKNOWN, _K.UPSTREAM, _A.SAME_KEY),
    501: Verdict(_C.REJECTED, _K.UPSTREAM, _A.NEVER),
    502: Verdict(_C.UNKNOWN, _K.UPSTREAM, _A.SAME_KEY),
    503: Verdict(_C.UNKNOWN, _K.UPSTREAM, _A.SAME_KEY),
    504: Verdict(_C.UNKNOWN, _K.UPSTREAM, _A.SAME_KEY),
    505: Verdict(_C.REJECTED, _K.UPSTREAM, _A.NEVER),
    # 529: overloaded, at Anthropic and others.
    529: Verdict(_C.UNKNOWN, _K.UPSTREAM, _A.SAME_KEY),
}
"""By status. One that is not listed is judged as its class's first: 4xx as 400, 5xx as 500 (RFC 9110, 15)."""

PENDING_CODES: Final = frozenset({"in_flight", "pending", "IDEMPOTENCY_PENDING", "idempotency_key_in_use"})
"""Ours (the third is that of the profile `pacspace`) and Stripe's: the first request is still running, and this is no
answer yet."""

_SUCCESS: Final = Verdict(_C.DONE, _K.OTHER, _A.NEVER)

BODY_BYTES_MAX: Final = 65_536
"""A larger body is not looked into for a code: problems are short."""


class ResponseInfo(NamedTuple):
    """What is looked at of a response, or of an exception that carries one."""

    status: int
    headers: Any
    code: str | None


def response_info_of(problem: Any) -> ResponseInfo | None:
    """Status, headers and code of a response, or of the one in an exception; None if there is none."""
    response = read_attribute(problem, "response")
    for place in (problem, response):
        for name in ("status_code", "status"):
            status = read_attribute(place, name)
            if isinstance(status, int) and not isinstance(status, bool) and 100 <= status <= 599:
                headers = read_attribute(place, "headers")
                if headers is None:
                    headers = read_attribute(response, "headers")
                return ResponseInfo(int(status), headers, _code_of(problem, response))
    return None


def verdict_by_status(answer: ResponseInfo, *, retry_500: bool, now: datetime | None) -> Verdict:
    """The verdict on a response."""
    status, headers, code = answer
    certainty, kind, action, _, _ = _of_status(status, code)
    if status // 100 == 5 and not retry_500 and (status == 500 or status not in STATUSES):
        action = Action.NEVER
    word = retry_hints(headers, limited=status == 429, now=now)
    if word.retry is not None and action in (Action.SAME_KEY, Action.NEVER) and status >= 400:
        # The server says so itself. It cannot make a wrong request right or lend credentials, but this it knows.
        action = Action.SAME_KEY if word.retry else Action.NEVER
    return Verdict(certainty, kind, action, word.wait, code or str(status))


def _of_status(status: int, code: str | None) -> Verdict:
    if code in PENDING_CODES:
        return CODES["pending"]  # With 409 or (where one polls) 202.
    if 200 <= status < 300:
        return _SUCCESS
    if status < 400:
        return UNKNOWN  # A redirect that nobody followed: some come after the work, some in its place.
    known = STATUSES.get(status) or STATUSES[status // 100 * 100]
    ours = CODES.get(code) if code is not None else None
    # Only where it cannot be another API's word for something else: our refusals have these statuses.
    return ours if ours is not None and status in _OUR_STATUSES.get(code or "", ()) else known


_OUR_STATUSES: Final[dict[str, tuple[int, ...]]] = {
    "in_doubt": (409,),
    "not_replayable": (409,),
    "expired": (410,),
    "key_reused": (409, 422),
    "balance_exhausted": (402,),
    "quota_exceeded": (429,),
    "rate_limited": (429,),
    "store_unavailable": (503,),
}


# --- the machine's own word ---


def _code_of(problem: Any, response: Any) -> str | None:
    """A code from what is already in memory: a parsed body, an attribute, or JSON bytes that have been read."""
    for body in (read_attribute(problem, "body"), read_attribute(response, "body")):
        if isinstance(body, Mapping) and (code := _code_in(body)):
            return code
    if isinstance(code := read_attribute(problem, "code"), str) and code:
        return code[:100]
    for place in (problem, response):
        for name in ("_content", "_body"):  # httpx, requests; aiohttp, urllib3: bytes only if they were read.
            content = read_attribute(place, name)
            if isinstance(content, bytes) and 0 < len(content) <= BODY_BYTES_MAX and content.lstrip()[:1] == b"{":
                return _code_in(_parsed(content))
    return None


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _code_in(body: Any) -> str | None:
    """`{"code": ...}`, or `{"error": {"code": ..., "type": ...}}`."""
    if not isinstance(body, Mapping):
        return None
    inner = body.get("error")
    candidates = [body.get("code")]
    candidates += [inner.get("code"), inner.get("type")] if isinstance(inner, Mapping) else [inner]
    for candidate in candidates:
        if isinstance(candidate, str) and candidate:
            return candidate[:100]
    return None
