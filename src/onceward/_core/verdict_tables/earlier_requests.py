"""
Whether other requests went out before the one that a problem is about.

Clients follow redirects and SDKs try again, and what they raise or return is about the last request only. A refusal of
the second says nothing of the first. What each leaves behind is different: a number in a header, a history, or only
the frames that the error passed through.
"""

from __future__ import annotations

from typing import Any

from onceward._core.verdict_tables.rules import Places, frames_passed, read_attribute

_FOLLOWING: Places = {"resolve_redirects": ("requests.sessions",), "http_error_302": ("urllib.request",)}
"""Passed through only by requests that follow another."""

_WITH_HISTORY: Places = {
    "_send_handling_redirects": ("httpx._client", "httpx2._client"),
    "_request": ("aiohttp.client",),
}
"""Passed through by every request; their `history` lists those before it."""

_PLACES: Places = {**_FOLLOWING, **_WITH_HISTORY}

_WITNESSES = frozenset(("response", "request", "history", "retries", "raw"))
"""What problems are asked for."""


def can_show_history(kind: type) -> bool:
    """Whether a type itself has what its problems are asked for; if not, only what is put on one can tell."""
    getter: Any = kind.__getattribute__
    return getter not in _PLAIN_GETTERS or any(
        name in vars(one) for one in kind.__mro__ for name in (*_WITNESSES, "__getattr__")
    )


_PLAIN_GETTERS: tuple[Any, ...] = (object.__getattribute__, BaseException.__getattribute__)


def follows_another_request(problem: Any, *, kind_tells: bool = True) -> bool:
    """
    Whether it is known that the request was not the first. `kind_tells` is what `can_show_history` says of its type.
    """
    held = None
    if not kind_tells:
        try:
            held = problem.__dict__
        except Exception:
            held = None
    # Most errors carry nothing: an empty dictionary needs no further look.
    if (type(held) is not dict or (held and not _WITNESSES.isdisjoint(held))) and _says_so(problem):
        return True
    for frame in frames_passed(problem, _PLACES):
        if frame.f_code.co_name in _FOLLOWING or frame.f_locals.get("history"):
            return True
    return False


def _says_so(problem: Any) -> bool:
    response = read_attribute(problem, "response")
    return _is_counted(problem, response) or any(
        read_attribute(place, *path)
        for place in (problem, response)
        for path in (("history",), ("retries", "history"), ("raw", "retries", "history"))
    )


def _is_counted(problem: Any, response: Any) -> bool:
    """openai's and anthropic's clients number the tries of a request in its headers."""
    headers = read_attribute(problem, "request", "headers") or read_attribute(response, "request", "headers")
    try:
        return str(headers["x-stainless-retry-count"]) != "0"
    except Exception:
        return False
