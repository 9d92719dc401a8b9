"""
Tests that await: `@awaited` runs one in a loop of its own, and closes its gate there.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

from onceward.agents import AgentGate


def awaited(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an `async def` test, and close the gates that it was given."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(closing(*args, **kwargs))

    async def closing(*args: Any, **kwargs: Any) -> None:
        try:
            await test(*args, **kwargs)
        finally:
            for given in kwargs.values():
                if isinstance(given, AgentGate):
                    await given.aclose()

    return run
