"""
Runs work on a request's body in a thread if the body is long, so that the event loop is not blocked.

Parsing a kilobyte of JSON takes microseconds, and a thread would cost more. Parsing a megabyte takes as long as a
hundred small requests, and they would all wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

HEAVY_BYTES = 65_536
"""A longer body is parsed in a thread."""


async def offload_if_large(work: Callable[[], T], size: int) -> T:
    """Call `work`, which processes `size` bytes: here, or in a thread if they are many."""
    return work() if size <= HEAVY_BYTES else await asyncio.to_thread(work)
