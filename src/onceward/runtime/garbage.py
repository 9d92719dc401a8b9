"""
How often a process that serves requests looks for garbage: most of what it has was made at its start and stays.
"""

from __future__ import annotations

import gc

YOUNG_MAX = 10_000
"""
Objects between two looks, a few megabytes. Python's own 700 are what a few requests under way have: each look finds
them in use, and a look at everything walks through all modules. Garbage that has to be looked for is rare here.
"""


def look_for_garbage_rarely() -> None:
    """Call it once, when everything that stays has been made: that is not looked at any more."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])
