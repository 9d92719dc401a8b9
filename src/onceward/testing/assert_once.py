"""
`assert_once`: runs a function under every crash and every duplicate, and reports the first that doubles its effect.

    def test_charge(assert_once, onceward_gate, onceward_effects):
        @onceward_gate.once(key="charge:{order_id}")
        def charge(order_id: str) -> str:
            onceward_effects.record("charge")
            return "charged"

        assert_once(charge, "o-17")

First it runs the function once, undisturbed, to learn how many effects one run has and which failpoints it passes. Then
it runs scenarios, and puts the world back before each: duplicates at once, an hour and a day later; a crash at each
failpoint, and three retries; a duplicate while the first call is at a failpoint; and a first call that stalls there
past its lease. `once_scenes.py` runs these; this file holds the options and the report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from onceward.testing.effects import Effects
from onceward.testing.once_scenes import Arrival, AskedOnce, OnceScenes
from onceward.testing.simulated_process import SimulatedProcess
from onceward.testing.worker_calls import Worker

if TYPE_CHECKING:
    from onceward.testing.sandbox import Sandbox


class OnceOptions(TypedDict, total=False):
    """The options of a check."""

    count: Callable[[], int] | Effects
    """Returns how many effects there are. Default: the sandbox's recorder."""
    reset: Callable[[], object]
    """
    Puts your own data back, such as a table. It is called before every scenario, and at the end; the sandbox's store
    and recorder are put back without it.
    """
    late: Sequence[timedelta]
    """When late duplicates arrive, counted from the first call. Default: an hour and 25 hours after it."""
    refusals: tuple[type[BaseException], ...]
    """Your own errors that mean "not done again", besides Onceward's."""
    in_flight: bool
    """False: no duplicates while the first is running."""
    stalls: bool
    """False: no first call that stalls past its lease, and continues after a duplicate."""
    seconds: float
    """A call that takes longer than this is taken for hanging (60; on the real clock)."""
    steps: int
    """A call that passes more failpoints than this is taken for endless (10,000)."""


@dataclass(frozen=True, slots=True)
class OnceReport:
    """What was tried; nothing doubled."""

    name: str
    points: tuple[str, ...]
    """The failpoints that one undisturbed run passes, in order."""
    scenes: int
    """How many scenarios were run."""
    crashes: int
    """How often a process died in them."""
    answered: int
    """How many retries and duplicates returned a result."""
    refused: int
    """How many were refused with an error that says why."""

    def __str__(self) -> str:
        return (
            f"{self.name}: one effect in {self.scenes} scenarios, with {self.crashes} crashes; of the retries and "
            f"duplicates, {self.answered} returned a result and {self.refused} were refused"
        )


class AssertOnce:
    """Checks functions in one sandbox. Calling it blocks; `in_loop` is awaited."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def __call__(self, fn: Callable[..., Any], *args: Any, **options: Unpack[OnceOptions]) -> OnceReport:
        """
        Run `fn(*args)`, plain or async, under every crash and duplicate; `DoubledEffect` if its effect doubles.

        Every call runs in its own thread, and an async one in an event loop of that thread, as in a worker.
        """
        return self._check(fn, args, None, AskedOnce(**options))

    async def in_loop(self, fn: Callable[..., Any], *args: Any, **options: Unpack[OnceOptions]) -> OnceReport:
        """
        Check an async function that needs the event loop of the test: its pool, its client.

        It is awaited in that loop; `count` and `reset` are called in another thread. Only duplicates beside the first
        call run in a loop of their own, because the first call's loop stands still meanwhile. If the function cannot
        run in another loop, leave them out (`in_flight=False, stalls=False`).
        """
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(self._check, fn, args, loop, AskedOnce(**options))

    def under(
        self, schedule: Sequence[Arrival], fn: Callable[..., Any], *args: Any, **options: Unpack[OnceOptions]
    ) -> OnceReport:
        """Run `fn(*args)` by a schedule, such as one that Hypothesis drew (`strategies.schedules()`)."""
        with self._scenes(fn, args, None, AskedOnce(**options)) as scenes:
            scenes.play_undisturbed()
            scenes.play_schedule(schedule)
            scenes.require_a_gate()
        return _report(scenes)

    def _check(
        self, fn: Callable[..., Any], args: tuple[Any, ...], loop: asyncio.AbstractEventLoop | None, asked: AskedOnce
    ) -> OnceReport:
        with self._scenes(fn, args, loop, asked) as scenes:
            scenes.play_undisturbed()
            scenes.play_late_duplicates(asked.late)
            scenes.require_a_gate()
            scenes.play_crashes()
            if asked.in_flight:
                scenes.play_beside(stalls=False)
            if asked.stalls:
                scenes.play_beside(stalls=True)
        return _report(scenes)

    @contextmanager
    def _scenes(
        self, fn: Callable[..., Any], args: tuple[Any, ...], loop: asyncio.AbstractEventLoop | None, asked: AskedOnce
    ) -> Iterator[OnceScenes]:
        """What plays the function; when it is over, the world is as it was."""
        worker = Worker(fn, args, asked.seconds, loop)
        with SimulatedProcess(steps_max=asked.steps) as process:
            scenes = OnceScenes(self._sandbox, worker, process, asked)
            try:
                yield scenes
            finally:
                scenes.put_back()


def _report(scenes: OnceScenes) -> OnceReport:
    points = tuple(map(str, scenes.places))
    return OnceReport(scenes.name, points, scenes.played, scenes.crashes, scenes.answered, scenes.refused)
