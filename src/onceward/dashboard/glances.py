"""
`Glances`: looks at a store that may take long, remembered for as long as their own cost says.

A page must not wait for a walk over millions of rows, and an open page must not keep a database busy. So a look runs in
a thread; a page waits for it a moment and then shows what was seen before, or that it is still being looked for. What
took a second is not looked at again for twenty.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, TypeVar

from onceward._core.errors import OncewardError
from onceward.runtime.environment import REAL, Environment

T = TypeVar("T")

THREADS = 2
"""Looks at once, in one process: so much of a database's time a dashboard may take at most."""
PATIENCE_SECONDS = 2.0
"""How long a page waits for a first look."""
FRESH_SECONDS = 1.0
"""How long any look is good."""
COST_FACTOR = 20.0
"""A look that took a second is good for this many: a twentieth of one thread's time at most."""
REMEMBERED_MAX = 500
"""Looks that are remembered: a dozen for each tenant that is looking."""


@dataclass(frozen=True)
class Glance(Generic[T]):
    """What a look found."""

    value: T | None
    """None: nothing was found out yet."""
    age_seconds: float
    """How long ago that was."""
    trouble: str | None = None
    """Why the last look failed."""

    @property
    def is_pending(self) -> bool:
        """Whether it is still being looked for, for the first time."""
        return self.value is None and self.trouble is None


class _Look:
    """One thing that is looked at."""

    def __init__(self) -> None:
        self.value: Any = None
        self.trouble: str | None = None
        self.ended_at = float("-inf")
        self.cost = 0.0
        self.running: Future[None] | None = None


class Glances:
    """Looks, by name. Safe for threads."""

    def __init__(self, environment: Environment = REAL) -> None:
        self._environment = environment
        self._lock = Lock()
        self._looks: OrderedDict[str, _Look] = OrderedDict()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="onceward-dashboard")

    def look(self, name: str, read: Callable[[], T], *, patience: float = PATIENCE_SECONDS) -> Glance[T]:
        """What `read` finds, or found a while ago. It blocks for `patience` at most."""
        with self._lock:
            look = self._looks.setdefault(name, _Look())
            self._looks.move_to_end(name)
            while len(self._looks) > REMEMBERED_MAX:
                self._looks.popitem(last=False)
            age = self._environment.monotonic() - look.ended_at
            if look.running is None and age >= max(FRESH_SECONDS, look.cost * COST_FACTOR):
                look.running = self._pool.submit(self._read, look, read)
            running = look.running
        if running is not None:
            wait([running], patience)
        return Glance(look.value, self._environment.monotonic() - look.ended_at, look.trouble)

    def forget(self) -> None:
        """Look anew at everything: something was decided."""
        with self._lock:
            for look in self._looks.values():
                look.ended_at = float("-inf")

    def close(self) -> None:
        """Begin no more looks; those under way end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, look: _Look, read: Callable[[], Any]) -> None:
        began = self._environment.monotonic()
        value: Any = None
        trouble: str | None = None
        try:
            value = read()
        except OncewardError as error:
            trouble = str(error)
        except Exception as error:  # A look is bookkeeping: the page says that it failed, and stays a page.
            trouble = f"it could not be read ({type(error).__name__})"
        with self._lock:
            look.trouble = trouble
            if trouble is None:
                look.value = value
            look.ended_at = self._environment.monotonic()
            look.cost, look.running = look.ended_at - began, None
