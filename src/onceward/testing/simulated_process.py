"""
A process that "dies" at a named failpoint, simulated by an exception.

    with crash_at("settle.before"):
        gate.run("charge:o-17", charge)     # the process dies here; after the block it has been started again

`ProcessDied` is no `Exception`, so `except Exception` lets it through. From that moment the process is dead: every
failpoint that is reached raises it again, so that neither our clean-up nor a recorded effect in a `finally` does
anything that a dead process could not do. Only a rollback goes through: a database does that by itself.

What this shows: what the store knew at that instant, and what the next caller makes of it. What it cannot show: code
of yours in `finally` and `__exit__` does run, memory stays as it was, and no file is cut in the middle of a write. For
that a real process must be killed: `onceward drill`.
"""

from __future__ import annotations

import difflib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, NoReturn, Self

from onceward._core.errors import ConfigurationError
from onceward.runtime import failpoints
from onceward.testing import effects

STEPS_MAX = 10_000
"""A call that passes more failpoints than this does not end: with a still clock, a loop that waits takes no time."""

_DONE_BY_DATABASES = frozenset({"rollback.before", "rollback.after"})

bystander: ContextVar[bool] = ContextVar("onceward_bystander", default=False)
"""Set in a call whose failpoints are not counted: a duplicate that comes while the first is at one."""

own_time: ContextVar[bool] = ContextVar("onceward_own_time", default=False)
"""Set in a duplicate that waits for a first call which is alive: its patience must not run down that one's lease."""


class ProcessDied(BaseException):
    """The process dies here. Never catch it: a dead process catches nothing."""


class Place(NamedTuple):
    """The nth time that a failpoint is reached, counted from 1."""

    name: str
    nth: int = 1

    def __str__(self) -> str:
        return self.name if self.nth == 1 else f"{self.name} ({self.nth})"


class SimulatedProcess:
    """One process, as a test sees it: which failpoints it has passed, what is to happen at one, whether it is dead."""

    def __init__(self, *, steps_max: int = STEPS_MAX) -> None:
        self.places: list[Place] = []
        self.dead_at: Place | None = None
        self.endless = False
        self._steps_max = steps_max
        self._counts: Counter[str] = Counter()
        self._at: Place | None = None
        self._action: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def start(self, at: Place | None = None, action: Callable[[], None] | None = None) -> None:
        """Start a new process: it has passed nothing yet, and at one place the action happens (it dies, if none)."""
        with self._lock:
            self.places, self.dead_at, self.endless = [], None, False
            self._counts.clear()
            self._at, self._action = at, action
        for name in failpoints.CATALOGUE:  # Anew each time: a module may have been imported meanwhile.
            failpoints.arm(name, lambda name=name: self._reach(name))  # type: ignore[misc]

    def __enter__(self) -> Self:
        if failpoints.armed():
            raise ConfigurationError("failpoints are armed already: leave the other crash first, or disarm them")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        failpoints.disarm()

    def _reach(self, name: str) -> None:
        if self.dead_at is not None:
            if name not in _DONE_BY_DATABASES:
                raise ProcessDied(f"dead since {self.dead_at}")
            return
        if bystander.get():
            return
        with self._lock:
            self._counts[name] += 1
            place = Place(name, self._counts[name])
            self.places.append(place)
            self.endless = len(self.places) > self._steps_max
        if self.endless or (place == self._at and self._action is None):
            self._die(place)
        if place == self._at and self._action is not None:
            self._action()

    def _die(self, place: Place) -> NoReturn:
        self.dead_at = place
        raise ProcessDied(f"the process dies at {place}")


@contextmanager
def crash_at(name: str, *, skip: int = 0) -> Iterator[SimulatedProcess]:
    """
    Let the process die where the block first reaches the failpoint `name` (after `skip` times), and continue after it.

    The block is the process: what follows the failpoint in it does not run. Raises `AssertionError` if the process did
    not die, or if something in the block swallowed its death.
    """
    check_failpoint(name)
    if skip < 0:
        raise ConfigurationError("skip says how often the failpoint is passed before the process dies: 0 or more")
    with SimulatedProcess() as process:
        process.start(Place(name, skip + 1))
        swallowed = False
        try:
            yield process
            swallowed = process.dead_at is not None
        except BaseException as error:
            if not is_death(error):
                raise
    if swallowed:
        raise AssertionError(swallowed_words("the block", process))
    if process.dead_at is None:
        passed = ", ".join(map(str, process.places)) or "none at all: was a gate called in the block?"
        raise AssertionError(f"the process did not die: {Place(name, skip + 1)} was not reached. Passed: {passed}")


def is_death(error: BaseException | None) -> bool:
    """Whether this is the process's death, or was raised because of it (in a group of tasks, by a `finally`)."""
    seen: set[int] = set()
    left = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        if isinstance(one, ProcessDied):
            return True
        seen.add(id(one))
        left += [one.__cause__, one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ())]
    return False


def swallowed_words(who: str, process: SimulatedProcess) -> str:
    """What to say when the dead went on."""
    return (
        f"{who} continued after its process had died at {process.dead_at}: something swallows the crash, such as a "
        "bare `except:`, `except BaseException` or `return` in a `finally`. Let BaseException through; for a real "
        "kill, which nothing can swallow, use `onceward drill`"
    )


def check_failpoint(name: str) -> str:
    """Give the name back if there is such a failpoint; `ConfigurationError` with the nearest names if not."""
    if name not in failpoints.CATALOGUE and name not in effects.POINTS:
        from onceward.testing.__main__ import declared_failpoints

        known, _ = declared_failpoints()
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 3)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            raise ConfigurationError(
                f"no failpoint is called {str(name)[:60]!r}.{meant} `python -m onceward.testing failpoints` lists them"
            )
    return name
