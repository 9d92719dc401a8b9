"""
Other processes of a test, each of which opens the test's store.
"""

from __future__ import annotations

import os
import subprocess
import sys

from onceward.testing.store_suite.store_under_test import StoreUnderTest

SECONDS_MAX = 60


def start_program(program: str, *arguments: str) -> subprocess.Popen[str]:
    """A program of ours, which finds what this process finds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
    command = [sys.executable, "-m", f"onceward.testing.{program}", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603 - ours


def program_arguments(place: StoreUnderTest) -> tuple[str, ...]:
    """The last words of a program's command: the colour, and what opens the store."""
    opener = place.opener()
    return (place.colour, opener) if opener else (place.colour,)
