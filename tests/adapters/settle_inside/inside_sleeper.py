"""
A process that stops itself (SIGSTOP) inside its function, and goes on when it is told to (SIGCONT).

    python inside_sleeper.py URL WHERE      WHERE: "begun" (before its first row) or "written" (before it settles)

Prints how it ended.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from typing import Any

import psycopg

from onceward import Gate, Operation

LEASE = 0.2
"""Seconds. Its renewals sleep with it."""


def main(url: str, where: str) -> None:
    """Charge once, and oversleep."""
    gate = Gate(url, scope="live:acme", lease=LEASE)
    sqlite = url.startswith("sqlite")
    connection: Any = sqlite3.connect(url.removeprefix("sqlite:///")) if sqlite else psycopg.connect(url)

    def charge(operation: Operation) -> None:
        with connection:
            if where == "begun":
                os.kill(os.getpid(), signal.SIGSTOP)
            connection.execute("INSERT INTO charges VALUES (1, 'zombie')")
            if where == "written":
                os.kill(os.getpid(), signal.SIGSTOP)
            operation.settle_inside(connection, "zombie")

    try:
        print(gate.run("order:1", charge, guarantee="atomic", settle="inside"))
    except Exception as error:
        print(type(error).__name__)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
