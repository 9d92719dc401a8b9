"""
The switch for tests: no retries, or no sleeping, in the whole process.

A user's test suite should not wait for back-offs. `onceward.testing.retries_off()` and `no_sleeping()` turn this for a
block; `ONCEWARD_RETRIES=off` or `ONCEWARD_RETRIES=no-sleep` in the environment for a whole run.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType

from onceward._core.errors import ConfigurationError

VARIABLE = "ONCEWARD_RETRIES"

_lock = threading.Lock()


class _Switch:
    """How many blocks have each setting on at the moment. Blocks may overlap, also in threads."""

    def __init__(self) -> None:
        self.retries_off = 0
        self.no_sleeping = 0

    def read(self, value: str) -> None:
        """Take over what the environment variable says."""
        if value not in ("", "on", "off", "no-sleep"):
            raise ConfigurationError(f"{VARIABLE} is on, off or no-sleep, not {value[:40]!r}")
        self.retries_off += value == "off"
        self.no_sleeping += value == "no-sleep"


SWITCH = _Switch()
SWITCH.read(os.environ.get(VARIABLE, ""))


class SwitchContext:
    """A block in which the switch is turned; every policy in the process, also in other threads, obeys it."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        self._turn(1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._turn(-1)

    def _turn(self, by: int) -> None:
        with _lock:
            setattr(SWITCH, self._what, getattr(SWITCH, self._what) + by)
