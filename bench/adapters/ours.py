"""Ours, as the first page of the documentation shows it: a gate on a file, with defaults."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bench.work import Request, Result, Work
from onceward import AsyncGate, Gate


class Ours:
    """A blocking gate and an awaiting one, each on a file of its own."""

    def __init__(self, folder: Path, work: Work, query: str = "", **options: Any) -> None:
        self._gate = Gate(f"sqlite:///{folder}/ours.db{query}", scope="live:acme", **options)
        self._async_gate = AsyncGate(f"sqlite:///{folder}/ours_async.db{query}", scope="live:acme", **options)

        def charge() -> Result:
            return work.effect()

        async def acharge() -> Result:
            return work.effect()

        self._charge, self._acharge = charge, acharge

    def fresh(self, key: str, request: Request) -> Result:
        """Run once."""
        return self._gate.run(key, self._charge, request=request)

    replay = fresh

    async def afresh(self, key: str, request: Request) -> Result:
        """Same as `fresh`, but awaits."""
        result: Result = await self._async_gate.run(key, self._acharge, request=request)
        return result

    areplay = afresh

    def close(self) -> None:
        """Close both."""
        self._gate.close()
        asyncio.run(self._async_gate.close())


def durable(folder: Path, work: Work) -> Ours:
    """With defaults."""
    return Ours(folder, work)


def relaxed(folder: Path, work: Work) -> Ours:
    """Settles do not wait for the disk."""
    return Ours(folder, work, "?settle=relaxed", relaxed_settle=True)
