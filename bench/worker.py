"""
The process that one adapter lives in. It is told what to do on stdin and answers each line with a line of JSON.

    slice CASE SECONDS    do as many operations as fit; answers operations, seconds and CPU seconds
    count CASE N          do N operations between two marks that a system call tracer can see
    quit

It begins by showing that the adapter works: one effect per key, and the same answer again. An adapter that does not
is reported as broken and never timed; neither is a slice whose effects do not add up.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import IO, Any, Protocol


class Timed(Protocol):
    """What a worker runs: something with slices."""

    def check(self) -> None:
        """Raise if it does not work."""

    def slice(self, case: str, seconds: float) -> dict[str, Any]:
        """Do as much as fits."""

    def count(self, case: str, operations: int) -> dict[str, Any]:
        """Do so many."""

    def close(self) -> None:
        """Clean up."""


class Broken(Exception):
    """The adapter does not do what it is for."""


def mark() -> None:
    """A system call that nothing else here makes, for the tracer's log."""
    os.getsid(0)


def serve(timed: Timed, commands: IO[str], answers: IO[str]) -> None:
    """Answer commands until told to quit."""

    def answer(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    try:
        timed.check()
    except Exception as error:
        answer({"broken": f"{type(error).__name__}: {error}"})
        return
    answer({"ready": True})
    for line in commands:
        verb, *words = line.split()
        if verb == "quit":
            break
        try:
            if verb == "slice":
                answer(timed.slice(words[0], float(words[1])))
            else:
                answer(timed.count(words[0], int(words[1])))
        except Exception as error:
            answer({"broken": f"{words[0]}: {type(error).__name__}: {error}"})
            return
    timed.close()
    answer({"closed": True})


def main() -> None:
    """`python -m bench.worker module:factory FOLDER [argument...]`"""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Whatever a peer prints must not pass for an answer.
    place, folder, *arguments = sys.argv[1:]
    module, _, name = place.partition(":")
    try:
        timed: Timed = getattr(importlib.import_module(module), name)(Path(folder), *arguments)
    except Exception as error:
        print(json.dumps({"broken": f"{type(error).__name__}: {error}"}), file=answers, flush=True)
        raise
    serve(timed, sys.stdin, answers)
    answers.flush()
    os._exit(0)  # Peers leave threads behind.


if __name__ == "__main__":
    main()
