"""
Runs work on a request's body in a thread if the body is long, so that the event loop is not blocked.

Parsing a kilobyte of JSON takes microseconds, and a thread would cost more. Parsing or hashing a megabyte takes as long
as a hundred small requests, and they would all wait for it.

Whoever is cancelled meanwhile goes when the thread is done, and not before: a thread cannot be stopped, and what it
works on (a buffer, its temporary file) must not be closed under its hands. The work is bounded by the body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, cast

from onceward.runtime.flow_driver import PendingCancellation, await_to_end

T = TypeVar("T")

HEAVY_BYTES = 65_536
"""A longer body is parsed or hashed in a thread, and so is a piece of one that is longer."""


async def offload(work: Callable[[], T]) -> T:
    """Call `work` in a thread, and be there when it has ended, also if cancelled meanwhile."""
    kept = PendingCancellation()
    try:
        return cast("T", await await_to_end(asyncio.to_thread(work), kept))
    finally:
        if (cancelled := kept.taken()) is not None:
            raise cancelled
