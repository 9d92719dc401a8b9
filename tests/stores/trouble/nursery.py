"""
A process whose children die, or fall asleep, at named places.

    python nursery.py URL FOLDER

It reads one line of JSON from its standard input: a list of [key, guarantee, failpoint, action, skip]. Each is sent
by a child of its own, which dies ("kill") or is stopped ("stop") there. Then it prints what became of them, one line
of JSON, and waits: a second line on its standard input wakes those that were stopped, and what became of them is
printed.

An effect is a line in FOLDER/effects: the operation's key, and what a downstream that honours keys would see.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from onceward import Gate, InDoubt, Operation, OwnershipLost
from onceward.runtime import failpoints
from onceward.stores import open_store

LEASE_SECONDS = 0.6

failpoints.declare("test.effect.after", "the effect took place, and the function has not returned")


def send(gate: Gate, folder: Path, key: str, guarantee: str) -> object:
    """Send an operation; its answer."""

    def effect(operation: Operation) -> str:
        with (folder / "effects").open("a") as effects:
            effects.write(f"{key} {operation.downstream_key()}\n")
        failpoints.hit("test.effect.after")
        return f"done {key}"

    return gate.run(key, effect, guarantee=guarantee)


def _child(url: str, folder: Path, key: str, guarantee: str, failpoint: str, action: str, skip: int) -> None:
    gate = Gate(url, scope="test:trouble", lease=LEASE_SECONDS, wait=0)
    failpoints.arm(failpoint, action, skip=skip)  # type: ignore[arg-type]
    try:
        told = f"acknowledged {send(gate, folder, key, guarantee)}"
    except OwnershipLost as lost:
        told = f"overtaken {lost.outcome.value if lost.outcome else None}"
    except InDoubt:
        told = "in doubt"
    with (folder / "told").open("a") as file:
        file.write(f"{key} {told}\n")


def main(url: str, folder: str) -> None:
    """Raise children."""
    open_store(url).close()  # The driver is imported once, and not by every child.
    plan, became, asleep = json.loads(sys.stdin.readline()), {}, {}
    for key, *how in plan:
        if (pid := os.fork()) == 0:
            _child(url, Path(folder), key, *how)
            os._exit(0)
        _, status = os.waitpid(pid, os.WUNTRACED)
        became[key] = "stopped" if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
        if became[key] == "stopped":
            asleep[key] = pid
    print(json.dumps(became), flush=True)
    sys.stdin.readline()
    for pid in asleep.values():
        os.kill(pid, signal.SIGCONT)
    ended = {key: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for key, pid in asleep.items()}
    print(json.dumps(ended), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
