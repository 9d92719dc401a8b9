"""
Warns about webhook handlers that respond too late.

A sender that waits too long gives up and delivers again: a slow handler makes its own duplicates. It cannot be stopped
from here, so each slow call is logged, with what to do about it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from onceward._core.durations import microseconds
from onceward.gate.function_inspection import is_async
from onceward.runtime.environment import REAL, Environment

log = logging.getLogger("onceward")

F = TypeVar("F", bound=Callable[..., Any])

SECONDS = 1.0
"""Enough to verify and to store an event, ten times over; senders give up after 5 to 30."""


def warn_if_slow(seconds: float = SECONDS, *, environment: Environment = REAL) -> Callable[[F], F]:
    """
    Decorate a webhook's handler, `def` or `async def`: a call that takes longer than `seconds` is logged.

    Nothing else about it changes: not its response, not its errors.
    """
    limit = microseconds(seconds, "seconds") / 1e6

    def decorated(handler: F) -> F:
        def warn(began: float) -> None:
            took = environment.monotonic() - began
            if took > limit:
                log.warning(
                    "onceward: the webhook handler %s took %.3g s to respond, and the limit is %.3g s: "
                    "senders give up and deliver again. Verify, store the event, respond with 200; do the work "
                    "afterwards (an inbox "
                    "does)",
                    getattr(handler, "__qualname__", type(handler).__name__),
                    took,
                    limit,
                )

        if is_async(handler):

            @wraps(handler)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                began = environment.monotonic()
                try:
                    return await handler(*args, **kwargs)
                finally:
                    warn(began)

            return cast(F, awaited)

        @wraps(handler)
        def called(*args: Any, **kwargs: Any) -> Any:
            began = environment.monotonic()
            try:
                return handler(*args, **kwargs)
            finally:
                warn(began)

        return cast(F, called)

    return decorated
