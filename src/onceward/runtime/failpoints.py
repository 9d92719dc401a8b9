"""
Named places where a test may kill, stop or fail this process.

Every boundary between two effects has a name. When nothing is armed, a failpoint costs nothing on the flows (another
driver is chosen only when something is armed) and one dictionary test inside a store. Nothing here is ever armed by
the environment or by configuration: only by calling `arm`, which tests do.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

CATALOGUE: dict[str, str] = {}
"""Every failpoint there is, and what stands on its two sides."""

ARMED: dict[str, Callable[[], None]] = {}
"""What is armed: nothing, but in tests. Where every call counts, ask this before `hit`: it costs no call."""


def declare(name: str, meaning: str) -> str:
    """Add a failpoint to the catalogue. Called when the module that owns it is imported."""
    CATALOGUE[name] = meaning
    return name


def armed() -> bool:
    """Whether anything is armed at all."""
    return bool(ARMED)


def hit(name: str) -> None:
    """Be at a failpoint: do what it is armed with, or nothing."""
    if ARMED and (action := ARMED.get(name)) is not None:
        action()


def arm(name: str, action: str | Callable[[], None], *, skip: int = 0) -> None:
    """
    Arm a failpoint: "kill" (SIGKILL to this process), "stop" (SIGSTOP), or any callable.

    With `skip`, the first so many hits pass by.
    """
    if name not in CATALOGUE:
        raise LookupError(f"no failpoint is called {name!r}; `python -m onceward.testing failpoints` lists them")
    act = _ACTIONS[action] if isinstance(action, str) else action
    left = skip

    def once_skipped() -> None:
        nonlocal left
        if left > 0:
            left -= 1
            return
        act()

    ARMED[name] = once_skipped


def disarm() -> None:
    """Disarm everything."""
    ARMED.clear()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


_ACTIONS: dict[str, Callable[[], None]] = {"kill": _kill, "stop": _stop}
