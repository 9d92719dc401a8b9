"""
Who is calling, where nobody can say: the same refusal behind every kind of server.

    the scope function returns None or ""    `unscoped`: 401 (unless said), pass it to the application, or 500
    the scope function raises                500: something is wrong on this side

Strangers can send such requests as often as they like. So the log has a line about them once a minute, with a count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from onceward._core.errors import ScopeMissing

SECONDS_BETWEEN_LINES = 60.0
"""A person needs to see it once; a stranger must not be able to fill the disk with it."""


SCOPE_LABEL = "the middleware's scope function"
"""How the log calls what a middleware was given as `scope=`."""


class CallerUnknown(ScopeMissing):
    """It is not known who is calling, so nothing was run. Send it again with credentials, and with the same key."""


def caller_missing() -> CallerUnknown:
    """The scope function did not say who is calling."""
    return CallerUnknown(
        "the middleware's scope function did not say who is calling, so nothing was run: for a caller that was "
        'authenticated it returns a text such as "live:acme". If the application itself refuses strangers, say '
        'unscoped="pass"'
    )


def scope_function_failed(error: Exception, place: str = SCOPE_LABEL) -> ScopeMissing:
    """The scope function raised."""
    return ScopeMissing(
        f"{place} raised {type(error).__name__} ({error}), so nothing was run: it must return a text such as "
        '"live:acme" for every keyed request, or None'
    )


class RateLimitedLog:
    """Tells a log about something at most once a minute, and how often it was left untold."""

    def __init__(self, log: logging.Logger, now: Callable[[], float]) -> None:
        self._log, self._now = log, now
        self._next = float("-inf")
        self._untold = 0

    def tell(self, level: int, message: str, *arguments: object) -> None:
        """Say it, or count it."""
        now = self._now()
        if now < self._next:
            self._untold += 1
            return
        untold, self._untold, self._next = self._untold, 0, now + SECONDS_BETWEEN_LINES
        self._log.log(level, message + " (%d more since the last such line)", *arguments, untold)
