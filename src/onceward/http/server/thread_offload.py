"""
Work on strangers' bytes, beside the event loop if there is much of it.

Reading a kilobyte of JSON takes microseconds, and a thread would cost more. Reading a megabyte takes as long as a
hundred small requests, and they would all wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

HEAVY_BYTES = 65_536
"""A body that is longer than this is read in a thread."""


async def offload_if_large(work: Callable[[], T], size: int) -> T:
    """What `work` returns, or raises. It looks at `size` bytes: many of them are looked at in a thread."""
    return work() if size <= HEAVY_BYTES else await asyncio.to_thread(work)
