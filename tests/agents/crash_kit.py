"""
What a scenario uses: an agent that may be killed, an effect that outlives it, and what its model was told.

A scenario is a file in `scenarios/` that runs one agent of one framework in a process of its own. It is started, killed
with SIGKILL at one point, and started again as a user would start it after a crash. The effects are lines in a file
that is synced before anything goes on, so that they count whatever becomes of the process.

    before    the tool has been called, and has done nothing yet
    effect    the tool has had its effect, and has not returned
    answer    the tool's answer is known, and the framework has not saved it
    saved     the framework has saved the answer, and asks the model again
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, NoReturn

from onceward.agents import AgentGate, Tool

POINTS = ("before", "effect", "answer", "saved")


class Kit:
    """What the process of a scenario was started with."""

    def __init__(self) -> None:
        self.folder = Path(os.environ["AGENT_FOLDER"])
        self.store = os.environ["AGENT_STORE"]
        self.point = os.environ["AGENT_POINT"]
        self.kind = os.environ["AGENT_KIND"]
        self.awaits = os.environ["AGENT_COLOUR"] == "async"
        self.restarted = (self.folder / "killed").exists()
        """Whether this process is the second one."""

    def gate(self, **tools: Tool) -> AgentGate | None:
        """The gate; None in the negative control. `charge` is of the kind that is asked for."""
        if os.environ["AGENT_GATE"] == "off":
            return None
        said: Any = {"charge": Tool(self.kind, check="find_charge"), **tools}  # type: ignore[arg-type]
        return AgentGate(self.store, scope="test:agents", tools=said, wait=5)

    def die_at(self, point: str) -> None:
        """Be killed here, once, if this is the point."""
        marker = self.folder / "killed"
        if point == self.point and not marker.exists():
            _append(marker, point)
            _killed()

    def effect(self, name: str, value: Any) -> None:
        """The outside world: somebody was charged."""
        _append(self.folder / "effects.jsonl", json.dumps([name, value]))

    def charge(self, order: str) -> dict[str, str]:
        """The tool that a process dies in."""
        self.die_at("before")
        self.effect("charge", order)
        self.die_at("effect")
        return {"charged": order}

    def notify(self, order: str) -> dict[str, str]:
        """The tool that the model calls beside it, in the same answer; it ends before the other begins."""
        self.effect("notify", order)
        return {"notified": order}

    def model_reads(self, messages: Any) -> None:
        """What the model was given with an answer, as text; called by the scripted model on every turn."""
        _append(self.folder / "read.jsonl", json.dumps(str(messages)))

    def finished(self) -> None:
        """The agent came to its end."""
        _append(self.folder / "finished", "yes")


def _append(path: Path, line: str) -> None:
    """Append a line, and have it on the disk before anything goes on."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, (line + "\n").encode())
        os.fsync(file)
    finally:
        os.close(file)


def _killed() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process outlived its SIGKILL")
