"""
How long to wait for a PostgreSQL server that is silent, for both colours.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from onceward.stores._postgres_errors import ServerSilent

T = TypeVar("T")

POLL_SECONDS = 0.1
"""How often a wait for the server looks up: psycopg's own interval, so that Ctrl-C is heard."""


def with_silence_timeout(asked: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """
    What psycopg waits for, and an error once the server has been silent for so long.

    The silence is counted in psycopg's own looks at the socket, so it needs no clock. Bytes end it: a long answer over
    a slow line is no silence.
    """
    looks, silent = round(seconds / POLL_SECONDS), 0
    try:
        wanted = next(asked)
        while True:
            ready = yield wanted
            silent = 0 if ready else silent + 1
            if silent >= looks:
                raise ServerSilent(f"was silent for {seconds:g} s")
            wanted = asked.send(ready)
    except StopIteration as stop:
        value: T = stop.value
        return value


def interrupt_or_silence(error: ServerSilent) -> BaseException:
    """What to raise: if Ctrl-C came first, psycopg asked the server to stop, and that was not answered either."""
    return error.__context__ if isinstance(error.__context__, KeyboardInterrupt) else error
