"""
`assert_once`: runs a function under every crash and every duplicate, and reports the first that doubles its effect.

    def test_charge(assert_once, onceward_gate, onceward_effects):
        @onceward_gate.once(key="charge:{order_id}")
        def charge(order_id: str) -> str:
            onceward_effects.record("charge")
            return "charged"

        assert_once(charge, "o-17")

First it is run once, undisturbed: that says how many effects are one, and which failpoints it passes. Then, each time
in a world as it was before: duplicates at once, an hour and a day later; a crash at each failpoint, and three retries;
a duplicate while the first is at a failpoint; and a first that stalls there past its lease. `once_scenes.py` plays
these; this file holds what is asked for and what is said in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from onceward._core.errors import ConfigurationError
from onceward.testing.effects import Effects
from onceward.testing.once_scenes import OnceScenes
from onceward.testing.simulated_process import STEPS_MAX, SimulatedProcess
from onceward.testing.worker_calls import Worker

if TYPE_CHECKING:
    from onceward.testing.sandbox import Sandbox

LATE = (timedelta(hours=1), timedelta(hours=25))
"""When late duplicates come: while the answer is kept, and after that."""
SECONDS = 60.0
"""One call may take this long on the real clock. It is for hanging only."""


@dataclass(frozen=True, slots=True)
class OnceReport:
    """What was tried, all of it without a double."""

    name: str
    points: tuple[str, ...]
    """The failpoints that one undisturbed run passes, in order."""
    scenes: int
    """How many courses of events were played."""
    crashes: int
    answered: int
    """How many retries and duplicates came back with an answer."""
    refused: int
    """How many were refused with an error that says why."""

    def __str__(self) -> str:
        return (
            f"{self.name}: one effect in {self.scenes} courses of events, {self.crashes} of them with a crash; of the "
            f"retries and duplicates {self.answered} were answered and {self.refused} refused"
        )


class AssertOnce:
    """Checks functions in one sandbox. Called by its name it blocks; `in_loop` is awaited."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def __call__(
        self,
        fn: Callable[..., Any],
        *args: Any,
        count: Callable[[], int] | Effects | None = None,
        reset: Callable[[], object] | None = None,
        late: Sequence[timedelta] = LATE,
        refusals: tuple[type[BaseException], ...] = (),
        in_flight: bool = True,
        stalls: bool = True,
        seconds: float = SECONDS,
        steps: int = STEPS_MAX,
    ) -> OnceReport:
        """
        Run `fn(*args)`, plain or async, under every crash and duplicate; `DoubledEffect` if its effect doubles.

        `count` says how many effects there are (the sandbox's recorder, if nothing is given). The sandbox's store and
        recorder are put back before every course of events; `reset` puts back what else there is, such as your own
        table. `refusals` are errors of yours that mean "not done again", besides Onceward's own. `late` says when late
        duplicates come; `in_flight` and `stalls` leave out duplicates beside the first, and a first that stalls.

        Every call is made in a thread of its own, and an async one in an event loop of that thread, as workers would.
        """
        return self._check(fn, args, count, reset, late, refusals, in_flight, stalls, seconds, steps, None)

    async def in_loop(
        self,
        fn: Callable[..., Any],
        *args: Any,
        count: Callable[[], int] | Effects | None = None,
        reset: Callable[[], object] | None = None,
        late: Sequence[timedelta] = LATE,
        refusals: tuple[type[BaseException], ...] = (),
        in_flight: bool = True,
        stalls: bool = True,
        seconds: float = SECONDS,
        steps: int = STEPS_MAX,
    ) -> OnceReport:
        """
        Check an async function that needs the event loop of the test: its pool, its client.

        It is awaited in that loop. Only duplicates beside the first have a loop of their own, because the first one's
        stands still meanwhile: leave them out (`in_flight=False, stalls=False`) if they cannot.
        """
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(
            self._check, fn, args, count, reset, late, refusals, in_flight, stalls, seconds, steps, loop
        )

    def _check(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        count: Callable[[], int] | Effects | None,
        reset: Callable[[], object] | None,
        late: Sequence[timedelta],
        refusals: tuple[type[BaseException], ...],
        in_flight: bool,
        stalls: bool,
        seconds: float,
        steps: int,
        loop: asyncio.AbstractEventLoop | None,
    ) -> OnceReport:
        if seconds <= 0 or steps <= 0:
            raise ConfigurationError("seconds= and steps= are limits for a call that does not end: more than 0")
        worker = Worker(fn, args, seconds, loop)
        with SimulatedProcess(steps_max=steps) as process:
            scenes = OnceScenes(self._sandbox, worker, process, count, reset, refusals)
            try:
                scenes.play_undisturbed()
                scenes.play_late_duplicates(late)
                scenes.require_a_gate()
                scenes.play_crashes()
                if in_flight:
                    scenes.play_beside(stalls=False)
                if stalls:
                    scenes.play_beside(stalls=True)
            finally:
                scenes.put_back()
        return OnceReport(
            worker.name,
            tuple(str(place) for place in scenes.places),
            scenes.played,
            scenes.crashes,
            scenes.answered,
            scenes.refused,
        )
