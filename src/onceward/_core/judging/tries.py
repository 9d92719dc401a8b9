"""
Whether other requests went out before the one that a problem is about.

Clients follow redirects and SDKs try again, and what they raise or return is about the last request only. A refusal of
the second says nothing of the first. What each leaves behind is different: a number in a header, a history, or only
the frames that the error passed through.
"""

from __future__ import annotations

from typing import Any

from onceward._core.judging.rule import frames, read

_FOLLOWING = frozenset({("requests.sessions", "resolve_redirects"), ("urllib.request", "http_error_302")})
"""Passed through only by requests that follow another."""

_WITH_HISTORY = frozenset(
    {
        ("httpx._client", "_send_handling_redirects"),
        ("httpx2._client", "_send_handling_redirects"),
        ("aiohttp.client", "_request"),
    }
)
"""Passed through by every request; their `history` lists those before it."""


def came_after_another(problem: Any) -> bool:
    """Whether it is known that the request was not the first."""
    response = read(problem, "response")
    return (
        _is_counted(problem, response)
        or any(
            read(place, *path)
            for place in (problem, response)
            for path in (("history",), ("retries", "history"), ("raw", "retries", "history"))
        )
        or (issubclass(type(problem), BaseException) and _was_redirected(problem))
    )


def _is_counted(problem: Any, response: Any) -> bool:
    """openai's and anthropic's clients number the tries of a request in its headers."""
    headers = read(problem, "request", "headers") or read(response, "request", "headers")
    try:
        return str(headers["x-stainless-retry-count"]) != "0"
    except Exception:
        return False


def _was_redirected(error: BaseException) -> bool:
    for module, function, frame in frames(error):
        place = module, function
        if place in _FOLLOWING or (place in _WITH_HISTORY and frame.f_locals.get("history")):
            return True
    return False
