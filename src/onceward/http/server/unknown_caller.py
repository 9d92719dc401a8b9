"""
Refusals of keyed requests whose caller is unknown.

    the scope function returns None or ""    as `unscoped` says: 401 (default), 500, or pass it to the application
    the scope function raises                500: something is wrong on the server's side

Anybody can send such requests, as many as they like. So they are logged once a minute, with a count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from onceward._core.errors import ScopeMissing

SECONDS_BETWEEN_LINES = 60.0
"""A person needs to see it once; nobody must be able to fill the disk with it."""


SCOPE_LABEL = "the middleware's scope function"
"""What log lines call the function given as `scope=`."""


class CallerUnknown(ScopeMissing):
    """The caller is unknown, so nothing was run. Send it again with credentials, and with the same key."""


def caller_missing() -> CallerUnknown:
    """The scope function did not say who is calling."""
    return CallerUnknown(
        "the middleware's scope function did not say who is calling, so nothing was run. For an authenticated caller "
        'it must return a text such as "live:acme". If the application itself refuses unknown callers, set '
        'unscoped="pass"'
    )


def scope_function_failed(error: Exception, place: str = SCOPE_LABEL) -> ScopeMissing:
    """The scope function raised."""
    return ScopeMissing(
        f"{place} raised {type(error).__name__} ({error}), so nothing was run. It must return a text such as "
        '"live:acme" for every keyed request, or None'
    )


class RateLimitedLog:
    """Logs at most one line a minute, with the number of lines left out."""

    def __init__(self, log: logging.Logger, now: Callable[[], float]) -> None:
        self._log, self._now = log, now
        self._next = float("-inf")
        self._left_out = 0

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log the line, or count it."""
        now = self._now()
        if now < self._next:
            self._left_out += 1
            return
        left_out, self._left_out, self._next = self._left_out, 0, now + SECONDS_BETWEEN_LINES
        self._log.log(level, message + " (%d more since the last such line)", *arguments, left_out)
