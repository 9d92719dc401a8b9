"""
What `make test` leaves out where the suite of stores runs once more, against another server or another table.

The whole suite runs on PostgreSQL 18 beside these; `make test-stores` (SUITES=all) runs the whole of it here, too.
"""

from __future__ import annotations

import os
from typing import Any

CLIENTS = (
    *("TestAClosedStore", "TestAServerThatIsAway", "TestCancellation", "TestDamage", "TestDisciplines"),
    *("TestACallersClock", "TestHolders", "TestProcesses", "TestReplaying", "TestTwoHandles", "TestWhatAStoreSays"),
    "TestWhoseClockItIs",
)
"""About the client, its processes and its lines, the same on every server."""


def leave_out_clients(module: dict[str, Any]) -> None:
    """Take these classes out of a module's names, unless everything is asked for."""
    if os.environ.get("SUITES") != "all":
        for name in CLIENTS:
            del module[name]
