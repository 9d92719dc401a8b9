"""
The scenario: rounds in turn, beside honest neighbours and beside attackers, on one service.

    start | warm up | honest | attack | honest | attack ... | stop | read the files
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from soak.neighbours.attacks import ATTACKS
from soak.neighbours.outcome import RATIO_MAX, Outcome, Round, Use, percentile
from soak.neighbours.report import say
from soak.neighbours.tenants import Tenant, cast_of, furnish
from soak.neighbours.wire import Wire
from soak.processes import ROOT, Managed, Memory
from soak.subject import judge

LEAD_SECONDS = 1.0
"""Neighbours begin before what is measured, and end after it."""
WARM_SECONDS = 2.0
SAMPLE_SECONDS = 0.2
CALM_SHARE = 0.1
"""Of one core: less than that is calm."""
CALM_SECONDS_MAX = 90.0
HANDLES = 1024
TICKS = os.sysconf("SC_CLK_TCK")


class Settings(NamedTuple):
    """What can be chosen."""

    pairs: int = 6
    seconds: float = 10.0
    """Of one round."""
    rate: float = 16.0
    """Requests a second of every tenant."""
    clients: int = 8
    """Of every tenant."""
    attacks: tuple[str, ...] = ATTACKS
    accounts: bool = True
    """Without them, it is the control."""
    ratio_max: float = RATIO_MAX
    """0: time is not judged."""
    cpu_burst: float = 20.0
    """Processor seconds that every tenant has saved up: attackers use theirs, and then all wait until it is quiet."""


class Neighbours:
    """One run."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        module = "onceward" if settings.accounts else "soak.neighbours.unfair"
        command = ["-m", module, "serve", "--json", "--log-level", "error", "--folder", str(folder)]
        command += ["--cpu-burst", str(settings.cpu_burst)]
        self._service = Managed("service", lambda: command, folder)
        self._acknowledged: set[str] = set()
        self._sent: set[str] = set()
        self.outcome = Outcome(settings.ratio_max)

    async def run(self) -> Outcome:
        """From the start to the judgement."""
        settings = self._settings
        async with AsyncExitStack() as stack:
            stack.callback(self._service.stop)
            with _few_handles():
                await asyncio.to_thread(self._service.start)
            cast = await asyncio.to_thread(cast_of, self._folder, settings.attacks)
            everybody = [one for some in cast.values() for one in some]
            port = int(self._service.address.rpartition(":")[2])
            before = self._cpu()
            await furnish(port, everybody)
            senders = [await _sender(stack, port, everybody, settings) for _ in range(2)]
            await self._round(senders, cast["honest"], cast["neighbours"], "honest", WARM_SECONDS)
            self.outcome.rounds.clear()
            await self._take_turns(senders, cast)
            if settings.ratio_max and self.outcome.ratio > settings.ratio_max:
                print("too slow: once more as many rounds, and the median of all, for the machine may have been busy")
                await self._take_turns(senders, cast)
            await self._calm()
            self.outcome.uses = await self._uses(port, everybody)
            self.outcome.used = _since(before, self._cpu())
            await asyncio.to_thread(self._service.stop)
        self.outcome.effects = judge(self._effects(cast["honest"]), self._acknowledged, self._sent)
        return self.outcome

    async def _take_turns(self, senders: list[_Sending], cast: dict[str, list[Tenant]]) -> None:
        for _ in range(self._settings.pairs):
            await self._round(senders, cast["honest"], cast["neighbours"], "honest", self._settings.seconds)
            await self._round(senders, cast["honest"], cast["attackers"], "attack", self._settings.seconds)

    async def _round(
        self, senders: list[_Sending], honest: list[Tenant], others: list[Tenant], kind: str, seconds: float
    ) -> None:
        await self._calm()
        number = len(self._sent)
        before = self._cpu()
        beside = asyncio.create_task(senders[1].play(number, kind, others, seconds + 2 * LEAD_SECONDS))
        await asyncio.sleep(LEAD_SECONDS)
        measured = asyncio.create_task(senders[0].play(number, "honest", honest, seconds))
        peak = Memory(0, 0)
        while not (measured.done() and beside.done()):
            await asyncio.wait({measured, beside}, timeout=SAMPLE_SECONDS)
            if (memory := self._service.memory()) is not None:
                peak = Memory(*map(max, peak, memory))
        seen, theirs = measured.result(), beside.result()
        cpu = _since(before, self._cpu())
        cpu |= {"honest senders": seen["cpu"], "other senders": theirs["cpu"]}
        self._acknowledged.update(seen["acknowledged"])
        self._sent.update(seen["sent"])
        for name, heard in theirs["heard"].items():
            self.outcome.heard.setdefault(name, Counter()).update(heard)
        took = seen["seconds"]
        round = Round(
            kind, len(took), seen["failures"], percentile(took, 0.5), percentile(took, 0.99), max(took), peak, cpu
        )
        self.outcome.rounds.append(round)
        say(round)

    async def _calm(self) -> None:
        """Wait until what was begun before is over."""
        end = time.monotonic() + CALM_SECONDS_MAX
        while time.monotonic() < end:
            before = sum(self._cpu().values())
            await asyncio.sleep(1.0)
            if sum(self._cpu().values()) - before < CALM_SHARE:
                return

    async def _uses(self, port: int, everybody: list[Tenant]) -> dict[str, Use]:
        """What is on the accounts once nothing runs: on a busy machine a worker may rest in the middle of its work."""
        end = time.monotonic() + CALM_SECONDS_MAX
        while True:
            uses = {one.name: await _use(port, one) for one in everybody}
            if not any(use.running for use in uses.values()) or time.monotonic() > end:
                return uses
            await asyncio.sleep(1.0)

    def _cpu(self) -> dict[str, float]:
        """Processor seconds of the service itself, and of all its workers, those that have ended too."""
        own, ended = _cpu_of(self._service.pid)
        return {"service": own, "workers": ended + sum(sum(_cpu_of(pid)) for pid in self._service.workers())}

    def _effects(self, honest: list[Tenant]) -> Counter[str]:
        found: Counter[str] = Counter()
        for tenant in honest:
            for file in sorted((self._folder / "databases" / f"test-{tenant.name}").glob("*.db")):
                with contextlib.closing(sqlite3.connect(file)) as connection:
                    found.update(operation for (operation,) in connection.execute("SELECT operation FROM effects"))
        return found


class _Sending:
    """A process that sends."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._cpu = 0.0

    async def play(self, number: int, kind: str, tenants: list[Tenant], seconds: float) -> dict[str, Any]:
        """One round; `cpu` is what the process used for it."""
        await self.tell({"round": number, "kind": kind, "tenants": [one.name for one in tenants], "seconds": seconds})
        if self._process.stdout is None or not (line := await self._process.stdout.readline()):
            raise RuntimeError("a process that sends has ended")
        seen: dict[str, Any] = json.loads(line)
        self._cpu, seen["cpu"] = seen["cpu"], seen["cpu"] - self._cpu
        return seen

    async def tell(self, document: dict[str, Any]) -> None:
        """One line."""
        if self._process.stdin is None:
            raise RuntimeError("a process that sends has no stdin")
        self._process.stdin.write(json.dumps(document).encode() + b"\n")
        await self._process.stdin.drain()

    async def stop(self) -> None:
        """No more rounds."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()


async def _sender(stack: AsyncExitStack, port: int, tenants: list[Tenant], settings: Settings) -> _Sending:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "soak.neighbours.load"),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 26,
    )
    sending = _Sending(process)
    stack.push_async_callback(sending.stop)
    await sending.tell({"port": port, "tenants": tenants, "rate": settings.rate, "clients": settings.clients})
    return sending


@contextlib.contextmanager
def _few_handles() -> Iterator[None]:
    """What is started inside may open as few files as on most systems, whatever this one allows."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(HANDLES, before), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


def _since(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    return {name: used - before[name] for name, used in now.items()}


async def _use(port: int, tenant: Tenant) -> Use:
    """What a tenant is told of its own account."""
    wire = Wire(port, tenant.source)
    try:
        answer = await wire.ask("GET", "/v1/usage", tenant.read)
    finally:
        wire.close()
    if answer.status != 200:
        return Use(0.0, 0)
    used = answer.document["process"]
    return Use(float(used["cpuSeconds"]), int(used["refused"]), int(used["held"]["running"]))


def _cpu_of(pid: int) -> tuple[float, float]:
    """Processor seconds of a process, and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0, 0.0
    own, children = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
    return own / TICKS, children / TICKS
