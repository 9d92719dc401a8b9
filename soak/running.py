"""
One soak: kills for two thirds of the time, then a third without any, in which memory is watched; then the judgement.

    start | load and kill -9, victims in turn ........ | load, no kill: memory | kill -9 | read the files
          | start again | ask again for what is unknown | settle | stop | read the files
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from soak.crowd import Crowd
from soak.memory import Grown, Sample, grown
from soak.processes import Managed, Memory, Victim
from soak.subject import Keys, Subject, Verdict, World, judge
from soak.subjects import SUBJECTS

CALM_SHARE = 1 / 3
SAMPLE_SECONDS = 0.5
PROGRESS_SECONDS = 10.0
SETTLE_SECONDS_MAX = 300.0
"""For what is unknown at the end to become known."""


class Settings(NamedTuple):
    """What can be chosen."""

    seconds: float = 180.0
    clients: int = 50
    every: float = 3.0
    """Seconds between two kills, about."""
    subjects: tuple[str, ...] = tuple(SUBJECTS)
    keys: Keys = Keys.KEPT
    seed: int = 1


@dataclass
class Outcome:
    """What came of it."""

    acknowledged: int = 0
    sent_again: int = 0
    unknown: int = 0
    """Sent and not answered when everything was killed for the last time."""
    had_run: int = 0
    """How many of those were found done."""
    changed: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """By subject and moment."""
    memory: Grown | None = None
    peaks: list[Memory] = field(default_factory=list)
    """What the service held at most, life by life."""
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def lost(self) -> int:
        """Acknowledged effects that are not there."""
        return len({one for verdict in self.verdicts.values() for one in verdict.lost})

    @property
    def doubled(self) -> int:
        """Effects that are there more than once."""
        return len({one for verdict in self.verdicts.values() for one in verdict.doubled})

    @property
    def strange(self) -> int:
        """Effects that nobody asked for."""
        return len({one for verdict in self.verdicts.values() for one in verdict.strange})

    @property
    def holds(self) -> bool:
        """Whether all is well: something was done, nothing was lost or doubled, and memory is flat."""
        clean = not (self.lost or self.doubled or self.strange or self.changed)
        return clean and self.acknowledged > 0 and sum(self.kills.values()) > 0 and self.memory_flat

    @property
    def memory_flat(self) -> bool:
        """Also if the time was too short to tell."""
        return self.memory is None or self.memory.flat


class Soak:
    """One run."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._chance = random.Random(settings.seed)
        self._service = Managed(
            "service",
            lambda: [
                *("-m", "onceward", "serve", "--json", "--log-level", "warning", "--first-token", "stdout"),
                *("--folder", str(folder)),
            ],
            folder,
        )
        self._world = World(folder, self._service)
        self._subjects: list[Subject] = []
        self._crowds: list[Crowd] = []
        self._victims: list[Victim] = []
        self._samples: list[Sample] = []
        self._peak = Memory(0, 0)
        self._began = 0.0
        self.outcome = Outcome()

    async def run(self) -> Outcome:
        """From the start to the judgement."""
        settings, outcome = self._settings, self.outcome
        with ExitStack() as stack:
            stack.callback(self._service.stop)
            await asyncio.to_thread(self._service.start)
            await self._prepare(stack)
            self._began = time.monotonic()
            watching = asyncio.create_task(self._watch())
            for crowd in self._crowds:
                crowd.begin()
            await self._kill_in_turn(self._began + settings.seconds * (1 - CALM_SHARE))
            self._samples.clear()
            await asyncio.sleep(settings.seconds * CALM_SHARE)
            outcome.memory = grown(self._samples)
            watching.cancel()
            await self._die()
            await self._judge("at the last kill", settled=False)
            await self._come_back()
            await self._judge("at the end", settled=True)
            for subject in self._subjects:
                await subject.close()
        return outcome

    async def _prepare(self, stack: ExitStack) -> None:
        settings = self._settings
        share = max(1, settings.clients // len(settings.subjects))
        self._victims = [Victim(self._service), Victim(self._service, worker=True)]
        for name in settings.subjects:
            subject = SUBJECTS[name](self._world, share)
            await subject.prepare()
            for victim in subject.victims():
                stack.callback(victim.process.stop)
                await asyncio.to_thread(victim.process.start)
                self._victims.append(victim)
            self._subjects.append(subject)
            self._crowds.append(Crowd(subject, share, settings.keys, settings.seed))

    async def _kill_in_turn(self, until: float) -> None:
        """At least once, however slow the machine is."""
        for number in itertools.count():
            await asyncio.sleep(self._settings.every * self._chance.uniform(0.5, 1.5))
            victim = self._victims[number % len(self._victims)]
            if victim == self._victims[0]:
                self._next_life()
            await asyncio.to_thread(victim.kill, self._chance.randrange(1000))
            self.outcome.kills[victim.name] += 1
            if time.monotonic() >= until:
                return

    def _next_life(self) -> None:
        self.outcome.peaks.append(self._peak)
        self._peak = Memory(0, 0)

    async def _watch(self) -> None:
        """Sample the memory, and say how far it is."""
        said = 0.0
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            now = time.monotonic() - self._began
            memory = self._service.memory()
            if memory is not None:
                self._samples.append(Sample(now, memory))
                self._peak = Memory(*map(max, self._peak, memory))
            if now - said >= PROGRESS_SECONDS:
                said = now
                self._say(now, memory)

    def _say(self, now: float, memory: Memory | None) -> None:
        acknowledged = sum(len(one.known.acknowledged) for one in self._crowds)
        kills = ", ".join(f"{many} {name}" for name, many in sorted(self.outcome.kills.items()))
        held = f"{memory.parent:.0f} + {memory.workers:.0f} MB" if memory is not None else "down"
        print(f"{now:5.0f} s  acknowledged {acknowledged}  killed {kills or 'nothing'}  memory {held}", flush=True)

    async def _die(self) -> None:
        """Everything at once, under load; then the clients stop, with what they know."""
        for victim in self._victims:
            if not victim.worker:
                await asyncio.to_thread(victim.process.kill)
                self.outcome.kills[victim.name] += 1
        for crowd in self._crowds:
            await crowd.end()

    async def _judge(self, moment: str, *, settled: bool) -> None:
        for subject, crowd in zip(self._subjects, self._crowds, strict=True):
            known = crowd.known
            effects = await asyncio.to_thread(partial(subject.effects, settled=settled))
            unknown = known.sent - known.acknowledged.keys()
            self.outcome.unknown += len(unknown)
            self.outcome.had_run += sum(effects[one] > 0 for one in unknown)
            verdict = judge(effects, set(known.acknowledged), known.sent)
            self.outcome.verdicts[f"{subject.name} {moment}"] = verdict

    async def _come_back(self) -> None:
        """Start everything again, and ask for what is unknown until nothing is."""
        for victim in self._victims:
            if not victim.worker:
                await asyncio.to_thread(victim.process.start)
        async with asyncio.timeout(SETTLE_SECONDS_MAX):
            for subject, crowd in zip(self._subjects, self._crowds, strict=True):
                await crowd.ask_again()
                await subject.settle()
                known = crowd.known
                self.outcome.acknowledged += len(known.acknowledged)
                self.outcome.sent_again += known.sent_again
                self.outcome.changed += known.changed
                self.outcome.errors += known.errors
        for victim in self._victims:
            if not victim.worker:
                await asyncio.to_thread(victim.process.stop)
