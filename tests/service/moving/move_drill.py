"""
One step of a move, as a program of its own that is killed somewhere.

    python move_drill.py export FOLDER-OR-URL FILE POINT SKIP
    python move_drill.py import FILE FOLDER-OR-URL POINT SKIP
"""

from __future__ import annotations

import sys
from pathlib import Path

from moving_support import place_of

from onceward.runtime import failpoints
from onceward.service.sql.moving import export_database, import_database, mover

BATCH = 4
"""Rows of one transaction: so that there are several."""

if __name__ == "__main__":
    what, one, two, point, skip = sys.argv[1:]
    mover.BATCH_ROWS = BATCH  # type: ignore[misc]
    failpoints.arm(point, "kill", skip=int(skip))
    if what == "export":
        export_database(place_of(one), Path(two), close=True)
    else:
        import_database(Path(one), two)
