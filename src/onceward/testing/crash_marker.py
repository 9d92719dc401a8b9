"""
`CrashHere`: what the fixture `onceward_crash` gives to a test.

    with onceward_crash("settle.before"): ...      dies there
    with onceward_crash(): ...                     dies at the failpoint of the test's mark
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from onceward._core.errors import ConfigurationError
from onceward.testing.simulated_process import SimulatedProcess, check_failpoint, crash_at


class CrashHere:
    """Makes blocks that die at a failpoint."""

    def __init__(self, name: str | None = None) -> None:
        self.name = None if name is None else check_failpoint(name)
        """The failpoint of the test's mark; None without one."""

    def __call__(self, name: str | None = None, *, skip: int = 0) -> AbstractContextManager[SimulatedProcess]:
        """The block dies where it first reaches the failpoint; with `skip`, after so many times."""
        at = name if name is not None else self.name
        if at is None:
            raise ConfigurationError(
                'name the failpoint where the process dies: onceward_crash("settle.before"), or a mark on the test: '
                '@pytest.mark.onceward_crash("settle.before")'
            )
        return crash_at(at, skip=skip)
