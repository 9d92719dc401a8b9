"""
What a worker of a kill test uses: a gate, an effect that outlives it, and a point at which it is killed.

A worker is a file in `workers/`: `send` puts one message into the queue, `work` works until it is killed. The effects
are lines in a file that is synced before anything goes on, so that they count whatever becomes of the process.

    before    the work has begun, and has done nothing yet
    effect    the work has had its effect, and has not returned
    answer    the work has returned (and, with a gate, is settled), and the message is not acknowledged
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from onceward.gate import current_operation
from onceward.queues import MessageGate, MessageKind

ORDER = "order-42"
NAME = "charge"
LEASE = 1.0
"""Seconds: below every time-out that the workers have here."""


class Kit:
    """What the process of a worker was started with."""

    def __init__(self) -> None:
        self.folder = Path(os.environ["QUEUE_FOLDER"])
        self.broker = os.environ["QUEUE_BROKER"]
        self.point = os.environ["QUEUE_POINT"]
        self.kind: Any = os.environ["QUEUE_KIND"]
        self.variant = os.environ["QUEUE_VARIANT"]

    def gate(self) -> MessageGate | None:
        """The gate; None in the negative control."""
        if os.environ["QUEUE_GATE"] == "off":
            return None
        return MessageGate(
            os.environ["QUEUE_STORE"],
            scope="test:queues",
            default=MessageKind(self.kind),
            payload="plain",
            lease=LEASE,
        )

    def die_at(self, point: str) -> None:
        """Be killed here, once, if this is the point."""
        marker = self.folder / "killed"
        if point == self.point and not marker.exists():
            _append(marker, point)
            _killed()

    def charge(self, order_id: str) -> dict[str, str]:
        """The work: somebody is charged, under the key that a provider would be sent."""
        self.die_at("before")
        operation = current_operation(None)
        key = None if operation is None else operation.downstream_key("stripe")
        _append(self.folder / "effects.jsonl", json.dumps([order_id, key]))
        self.die_at("effect")
        return {"charged": order_id}

    def ended(self) -> None:
        """The queue has let go of the message."""
        _append(self.folder / "ended", "yes")


def main(send: Callable[[], None], work: Callable[[], None]) -> None:
    """Do what the command line says."""
    {"send": send, "work": work}[sys.argv[1]]()


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
