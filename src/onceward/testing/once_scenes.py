"""
The scenarios that `assert_once` runs, each in a world as it was before, and the story that a failure tells.

A check that cannot fail is worth nothing: it is `NothingChecked` if the function had no effect, passed no failpoint,
took another path than before, or ran on another clock than the one that is moved here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from onceward._core.errors import ConfigurationError, InFlight, OncewardError
from onceward.runtime.failpoints import CATALOGUE
from onceward.testing import effects
from onceward.testing.effects import Effects
from onceward.testing.once_story import ADVICE, DoubledEffect, LostEffect, NothingChecked, Story, shown, span
from onceward.testing.simulated_process import (
    STEPS_MAX,
    Place,
    SimulatedProcess,
    check_failpoint,
    is_death,
    swallowed_words,
)
from onceward.testing.worker_calls import CallEnd, RunningCall, Worker

if TYPE_CHECKING:
    from onceward.testing.sandbox import Sandbox

DELIVERIES = (
    (0, "the first call"),
    (0, "retried at once"),
    (61, "retried a minute later, when a default lease has run out"),
    (7200, "retried two hours later, when every lease has run out"),
)
"""What follows a crash: seconds that pass, and words for it."""
STALL_SECONDS = 7200.0
PATIENCE_SECONDS = 1.0
"""How long the first is held for a duplicate, which may itself wait for what the first holds (a row, a file)."""
INSIDE_STORES = ("sqlite.", "postgres.", "redis.", "batch.")
"""Failpoints inside a store, which holds locks there: a duplicate would wait for the first, and the first for it."""


LATE = (timedelta(hours=1), timedelta(hours=25))
"""When late duplicates come: while the answer is kept, and after that."""
SECONDS = 60.0
"""One call may take this long on the real clock. It is for hanging only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOnce:
    """What a check is asked for; `OnceOptions` says what each means."""

    count: Callable[[], int] | Effects | None = None
    reset: Callable[[], object] | None = None
    late: Sequence[timedelta] = LATE
    refusals: tuple[type[BaseException], ...] = ()
    in_flight: bool = True
    stalls: bool = True
    seconds: float = SECONDS
    steps: int = STEPS_MAX

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.steps <= 0:
            raise ConfigurationError("seconds= and steps= limit a call that does not end: they must be more than 0")


class Arrival(NamedTuple):
    """One call of a schedule: so many seconds after the one before, and where its process dies, if it does."""

    after: float = 0.0
    crash_at: str | None = None


class OnceScenes:
    """Plays one function under crashes and duplicates."""

    def __init__(self, sandbox: Sandbox, worker: Worker, process: SimulatedProcess, asked: AskedOnce) -> None:
        self.name = worker.name
        self.places: list[Place] = []
        self.played = self.crashes = self.answered = self.refused = 0
        self._sandbox, self._worker, self._process = sandbox, worker, process
        self._count = sandbox.effects if asked.count is None else asked.count
        self._reset, self._refusals = asked.reset, asked.refusals
        self._before = sandbox.saved()
        self._drawn = sandbox.clock.used
        self._counted = 0
        self._once: dict[str, int] = {}
        self._answer: Any = None
        self._story = Story(0, "")

    # --- the scenes ---

    def play_undisturbed(self) -> None:
        """One run without any trouble: what is once, and which failpoints are passed."""
        self._begin("an undisturbed run")
        self._process.start()
        end = self._call()
        if end.error is not None:
            raise NothingChecked(
                f"{self.name} raised {type(end.error).__name__} in its first, undisturbed run. Make it pass on its "
                f"own first. {end.error}"
            ) from end.error
        self._answer, self.places, self._once = end.value, self._process.places, self._counts()
        if not any(self._once.values()):
            how = "onceward_effects.record(...) was not called" if self._recorded else "count() has not changed"
            raise NothingChecked(
                f"{self.name} returned without an effect: {how}. Count what must not happen twice (count=a function "
                "that returns a number, or record it), and make sure that its key has no record yet"
            )

    def play_late_duplicates(self, late: Sequence[timedelta]) -> None:
        """Nothing crashes; the same call comes again, at once and late."""
        self._begin("a duplicate after the first call has ended")
        passed = timedelta()
        self._deliver("the first call")
        self._deliver("a duplicate at once")
        for after in sorted(late):
            self._sandbox.clock.advance(max(after - passed, timedelta()))
            passed = max(after, passed)
            self._deliver(f"a duplicate {span(after)} after the first")

    def require_a_gate(self) -> None:
        """Something of Onceward's was on the way, and on this sandbox's clock."""
        if all(place.name in effects.POINTS for place in self.places):
            raise NothingChecked(
                f"{self.name} passed no failpoint of Onceward, so no crash could be tried: it never went "
                "through a gate. Call it as your program does, through the function that the gate guards"
            )
        if self._sandbox.clock.used == self._drawn:
            raise NothingChecked(
                f"{self.name} went through a gate that has another clock, so no lease would ever end here: "
                "make the gate with environment=onceward_clock"
            )

    def play_crashes(self) -> None:
        """A crash at every failpoint that was passed; and at those that only a retry after a crash passes."""
        seen = {place.name for place in self.places}
        for place in self.places:
            for index, passed in enumerate(self._crash({0: place})):
                for later in passed if index else ():
                    if later.name not in seen:
                        seen.add(later.name)
                        self._crash({0: place, index: later})

    def play_beside(self, *, stalls: bool) -> None:
        """A duplicate while the first is held at a failpoint: alive, or stalled until its lease is over."""
        for place in self.places:
            if not place.name.startswith(INSIDE_STORES):
                self._beside(place, "stalls past its lease" if stalls else "is still running", stalls=stalls)

    def play_schedule(self, schedule: Sequence[Arrival]) -> None:
        """Calls that arrive as they are told, and die where they are told, if they come there."""
        self._begin("a schedule")
        for arrival in schedule:
            self._sandbox.clock.advance(arrival.after)
            at = arrival.crash_at
            words = f"{arrival.after:g} s later, a call"
            self._deliver(words, None if at is None else Place(check_failpoint(at)))

    def _beside(self, place: Place, what: str, *, stalls: bool) -> None:
        self._begin(f"a duplicate while the first {what}, at {place} ({CATALOGUE[place.name]})")
        beside: list[RunningCall] = []
        counted: list[dict[str, int]] = []

        def come() -> None:
            if stalls:
                self._sandbox.clock.advance(STALL_SECONDS)
            beside.append(self._worker.begin_duplicate(alive=not stalls))
            beside[0].wait(PATIENCE_SECONDS)
            counted.extend([self._counts()] if self._recorded else [])  # A count of theirs may belong to their thread.

        self._process.start(place, come)
        first = self._call()
        if not beside:
            raise self._another_way(place)
        end = beside[0].wait(self._worker.seconds)
        self._story.tell(f"the first {what} at {place}, and a duplicate arrives", end, counted[0] if counted else None)
        self._tell("the first continues", first)
        if end is None:
            raise NothingChecked(self._story.after(f"{self.name}: the duplicate hangs, {beside[0].where()}"))
        self._judge(end)
        self._judge(first)
        self._deliver("one more call")

    def _crash(self, deaths: dict[int, Place]) -> list[list[Place]]:
        words = ", then at ".join(f"{place} ({CATALOGUE[place.name]})" for place in deaths.values())
        self._begin(f"a crash at {words}")
        passed = []
        for index, (seconds, what) in enumerate(DELIVERIES):
            self._sandbox.clock.advance(seconds)
            dies_at = deaths.get(index)
            # What a store does for itself (it purges now and then) comes when it likes, and so does a retry's way.
            sure = index == 0 and dies_at is not None and not dies_at.name.startswith(INSIDE_STORES)
            end = self._deliver(what, dies_at, must_die=sure)
            passed.append(self._process.places)
        if isinstance(end.error, InFlight):
            raise NothingChecked(
                self._story.after(
                    f"{self.name} is still in flight two hours after the crash: its store has a clock that "
                    "assert_once cannot move. Use onceward_store, or a store made with environment=onceward_clock"
                )
            )
        return passed

    # --- one call ---

    def _deliver(self, what: str, dies_at: Place | None = None, *, must_die: bool = False) -> CallEnd:
        self._process.start(dies_at)
        end = self._call()
        if self._process.dead_at is None:
            if must_die and dies_at is not None:
                raise self._another_way(dies_at)
            self._tell(what, end)
            self._judge(end)
            return end
        self.crashes += 1
        if end.error is None:
            raise NothingChecked(swallowed_words(self.name, self._process))
        self._tell(f"{what}: the process dies at {self._process.dead_at}", None)
        self._judge(None)
        return end

    def _call(self) -> CallEnd:
        try:
            end = self._worker.call()
        except TimeoutError as hanging:
            raise NothingChecked(self._story.after(str(hanging))) from None
        if self._process.endless:
            raise NothingChecked(
                self._story.after(
                    f"{self.name} passed {len(self._process.places) - 1} failpoints in one call and did not "
                    "end: it retries for ever. Give its loop a limit, or set steps="
                )
            )
        return end

    def _judge(self, end: CallEnd | None) -> None:
        """Whether it has doubled by now; whether an answer was given for nothing; whether the error is a refusal."""
        counts = self._counts()
        for what, number in counts.items():
            if number > self._once.get(what, 1):
                once = self._once.get(what, 1)
                story = self._story.after(f"{self.name} doubled: {number} x {what}, where one run makes {once}")
                raise DoubledEffect(f"{story}\n{ADVICE}")
        if end is None:
            return
        if end.error is None:
            self.answered += 1
            missing = [what for what, number in self._once.items() if counts.get(what, 0) < number]
            if missing and end.value is not None and _equal(end.value, self._answer):
                raise LostEffect(
                    self._story.after(f"{self.name} returned its usual result, but its effect is missing: {missing[0]}")
                )
        elif isinstance(end.error, (OncewardError, *self._refusals)):
            self.refused += 1
        elif not is_death(end.error):
            raise NothingChecked(
                self._story.after(
                    f"{self.name} raised {shown(end.error)}, which its undisturbed run does not, so this is "
                    "not checked. If that error is a refusal, list it: refusals=(...,)"
                )
            ) from end.error

    # --- the world, and the story ---

    def _begin(self, title: str) -> None:
        self.played += 1
        self._story = Story(self.played, title)
        self.put_back()
        self._counted = 0 if isinstance(self._count, Effects) else self._number(self._count)

    def put_back(self) -> None:
        """Let the world be as it was before; only the clock goes on."""
        self._before.put_back()
        self._sandbox.effects.clear()
        if self._reset is not None:
            self._reset()

    @property
    def _recorded(self) -> bool:
        return isinstance(self._count, Effects)

    def _counts(self) -> dict[str, int]:
        if isinstance(self._count, Effects):
            return self._count.counts()
        return {"the effect": self._number(self._count) - self._counted}

    def _number(self, count: Callable[[], int]) -> int:
        number = count()
        if type(number) is not int:
            raise NothingChecked(f"count= must return how many effects there are, a number; it returned {number!r:.60}")
        return number

    def _tell(self, what: str, end: CallEnd | None) -> None:
        self._story.tell(what, end, self._counts())

    def _another_way(self, place: Place) -> NothingChecked:
        passed = ", ".join(map(str, self._process.places)) or "none"
        return NothingChecked(
            self._story.after(
                f"{self.name} took another path than in its undisturbed run: it did not reach {place}, and passed "
                f"{passed}. Put back what it left behind (reset=), or give it a store of the sandbox; a function "
                "whose path is random cannot be checked"
            )
        )


def _equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except Exception:  # Theirs: it may compare as it likes.
        return False
