"""
No retries, or no sleeping, while a test runs: in the whole process, for every policy in it.

    with retries_off(): ...      one attempt per call
    with no_sleeping(): ...      all attempts, and no time passes between them

For a whole run: `onceward_retries = no-sleep` (or `off`) among pytest's settings, or `ONCEWARD_RETRIES=no-sleep` in
the environment; for some tests, a fixture of your own around one of these.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from onceward.retry.retry_switch import SwitchContext


def retries_off() -> AbstractContextManager[None]:
    """Every policy makes one attempt. What that attempt raises is raised, with its `Stop` as always."""
    return SwitchContext("retries_off")


def no_sleeping() -> AbstractContextManager[None]:
    """Policies try again as they would, and do not wait in between."""
    return SwitchContext("no_sleeping")
