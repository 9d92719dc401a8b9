"""A process that serves looks for garbage rarely, and not at all at what stays."""

from __future__ import annotations

import subprocess
import sys

from onceward.runtime.garbage import YOUNG_MAX

_SEEN = """
import gc
from onceward.runtime.garbage import look_for_garbage_rarely
look_for_garbage_rarely()
print(gc.isenabled(), gc.get_freeze_count() > 1000, gc.get_threshold()[0])
"""


def test_what_stays_is_not_looked_at() -> None:
    """
    Garbage is still found: looking is only put off.
    """
    seen = subprocess.run([sys.executable, "-c", _SEEN], capture_output=True, text=True, check=True)

    assert seen.stdout.split() == ["True", "True", str(YOUNG_MAX)]
