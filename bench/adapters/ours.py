"""Ours, as the first page of the documentation shows it: a gate on a store, with defaults."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from bench.work import Request, Result, Work
from onceward import AsyncGate, Gate
from onceward._core.events import Event
from onceward.journal import AsyncJournal
from onceward.observe import Metrics


class Ours:
    """A blocking gate and an awaiting one, each on a store of its own or both on the same."""

    def __init__(self, work: Work, url: str, async_url: str, **options: Any) -> None:
        self._gate = Gate(url, scope="live:acme", **options)
        self._async_gate = AsyncGate(async_url, scope="live:acme", **options)

        def charge() -> Result:
            return work.effect()

        async def acharge() -> Result:
            return work.effect()

        self._charge, self._acharge = charge, acharge

    def fresh(self, key: str, request: Request) -> Result:
        """Run once."""
        result: Result = self._gate.run(key, self._charge, request=request)
        return result

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


def _files(folder: Path) -> tuple[str, str]:
    return f"sqlite:///{folder}/ours.db", f"sqlite:///{folder}/ours_async.db"


def durable(folder: Path, work: Work) -> Ours:
    """On files, with defaults."""
    return Ours(work, *_files(folder))


def relaxed(folder: Path, work: Work) -> Ours:
    """Settles do not wait for the disk."""
    files = [f"sqlite:///{folder}/{name}.db?settle=relaxed" for name in ("ours", "ours_async")]
    return Ours(work, *files, relaxed_settle=True)


def server(folder: Path, work: Work, url: str) -> Ours:
    """On a server, with defaults."""
    return Ours(work, url, url)


def listening(folder: Path, work: Work) -> Ours:
    """With a listener that counts events by their type, and nothing else."""
    seen: Counter[str] = Counter()

    def note(event: Event) -> None:
        seen[event.type] += 1

    return Ours(work, *_files(folder), listeners=[note])


def metered(folder: Path, work: Work) -> Ours:
    """With the metrics that this project has, as `onceward.observe` shows them."""
    return Ours(work, *_files(folder), listeners=[Metrics()])


def journaled(folder: Path, work: Work) -> Ours:
    """With a journal behind the work, on a file beside the records."""
    url, async_url = _files(folder)
    journal = AsyncJournal(async_url, scope="live:acme", worker="bench")
    return Ours(work, url, async_url, listeners=[journal.listener()])
