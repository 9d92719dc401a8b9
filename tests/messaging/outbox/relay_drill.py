"""
Relays and writers that are killed, as real processes; run as a script, once for a database.

    relay_drill.py relays URL FILE KILLS [FAULT]     two relays at a time, killed at every failpoint in turn
    relay_drill.py writers URL KILLS [FAULT]         callers killed between any two steps of their transaction

The receiver is a file: a delivery is one line, written in one piece. This process forks the others, so that the imports
are paid for once, and opens no database itself. Deaths come from failpoints, which are reached and not waited for.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from onceward import Gate
from onceward.messaging.outbox import Delivered, DeliveryOutcome, Message, message_queue
from onceward.messaging.outbox.relay import Relay
from onceward.runtime import failpoints

POINTS = [
    "relay.turn.before",
    "relay.turn.written",
    "relay.turn.after",
    "relay.deliver.before",
    "relay.deliver.after",
]
AGGREGATES = 5
EACH = 2
"""Messages in each aggregate for every kill. A relay's life is good for nine at most, so there is work left."""
STEPS = ("begun", "row", "outbox.add.before", "outbox.add.after", "message", "committed")
SECONDS_MAX = 120


class FileEndpoint:
    """Each delivery is one line."""

    seconds_max = 0.1

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def deliver(self, message: Message) -> DeliveryOutcome:
        """Write it down."""
        line = {"id": message.id, "aggregate": message.aggregate, "payload": message.payload.decode()}
        os.write(self._file, json.dumps(line).encode() + b"\n")
        return Delivered("written")


def forked(work: Callable[[], None]) -> int:
    """A process of its own."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.alarm(SECONDS_MAX)
        work()
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        os._exit(code)


def died(child: int) -> bool:
    """Whether it was killed, when it has ended; anything else but a good end is an error."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"a child ended with {code}")
    return code != 0


def connect(url: str) -> Any:
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)
    return psycopg.connect(url)


def relaying(url: str, file: str, point: str | None, skip: int, fault: str) -> None:
    """A relay that works until nothing waits, or until it is killed."""
    if fault == "no_lease":  # Written as delivered when it is taken, as one who fears duplicates would.
        message_queue._TAKE = message_queue._TAKE.replace(
            "SET due_at", "SET state = 'delivered', ended_at = :now, due_at"
        )
    if point is not None:
        failpoints.arm(point, "kill", skip=skip)
    relay = Relay(url, {"file": FileEndpoint(file)}, concurrency=3, margin=0.4, idle=0.02, schedule=[0.01] * 50)
    while any(one.state == "waiting" for one in relay.message_counts()):
        if not relay.step():
            relay._environment.sleep(0.02)
    relay.close()


def relays(url: str, file: str, kills: int, fault: str) -> dict[str, Any]:
    """Two relays at a time; as soon as one has died, another comes."""
    added = Path(f"{file}.added")

    def add() -> None:
        with Gate(url, scope="live:drill") as gate:
            connection = connect(url)
            outbox = gate.outbox(connection)
            ids = [
                outbox.add("file", number, topic="t", aggregate=f"a{aggregate}")
                for number in range(EACH * kills)
                for aggregate in range(AGGREGATES)
            ]
            connection.commit()
            connection.close()
        added.write_text(json.dumps(ids))

    assert not died(forked(add))
    chance = random.Random(7)
    deaths = 0
    number = 0
    under_way: set[int] = set()
    while deaths < kills and number < 3 * kills:
        while len(under_way) < 2:
            point, skip = POINTS[number % len(POINTS)], chance.randrange(3)
            number += 1
            under_way.add(forked(lambda point=point, skip=skip: relaying(url, file, point, skip, fault)))
        child, status = os.wait()
        under_way.discard(child)
        deaths += os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    for child in under_way:
        deaths += died(child)
    assert not died(forked(lambda: relaying(url, file, None, 0, fault)))
    return {"deaths": deaths, **judged(json.loads(added.read_text()), file)}


def judged(ids: list[str], file: str) -> dict[str, Any]:
    """What the receiver saw, and what became of it there: it acts once for each id."""
    lines = [json.loads(line) for line in Path(file).read_text().splitlines()]
    acted: dict[str, dict[str, Any]] = {}
    for line in lines:
        acted.setdefault(line["id"], line)
    order: dict[str, list[int]] = {}
    for line in acted.values():
        order.setdefault(line["aggregate"], []).append(int(line["payload"]))
    return {
        "lost": len(set(ids) - set(acted)),
        "invented": len(set(acted) - set(ids)),
        "repeated": len(lines) - len(acted),
        "doubled": len(acted) - len({(line["aggregate"], line["payload"]) for line in acted.values()}),
        "out_of_order": sum(numbers != sorted(numbers) for numbers in order.values()),
    }


def writing(url: str, number: int, kill_at: str, fault: str) -> None:
    """One caller: a row and a message, in one transaction. It dies where it is told to."""

    def at(step: str) -> None:
        if step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    for point in ("outbox.add.before", "outbox.add.after"):
        failpoints.arm(point, lambda point=point: at(point))
    gate = Gate(url, scope="live:drill")
    connection = connect(url)
    messages = connect(url) if fault == "outside" else connection
    gate.outbox(messages)
    at("begun")
    if fault == "outside":
        gate.outbox(messages).add("file", number, topic="t", id=f"m-{number}")
        messages.commit()
    connection.execute(f"INSERT INTO effects VALUES ({number})")
    at("row")
    if fault != "outside":
        gate.outbox(connection).add("file", number, topic="t", id=f"m-{number}")
    at("message")
    connection.commit()
    at("committed")


def writers(url: str, kills: int, fault: str) -> dict[str, Any]:
    """Callers, one after the other, each killed somewhere else; some are left alone."""

    def tables() -> None:
        with Gate(url, scope="live:drill") as gate:
            connection = connect(url)
            connection.execute("CREATE TABLE effects (number INTEGER)")
            connection.commit()
            gate.outbox(connection)
            connection.close()

    assert not died(forked(tables))
    deaths = 0
    for number in range(kills):
        step = (*STEPS, "")[number % 7]
        deaths += died(forked(lambda number=number, step=step: writing(url, number, step, fault)))
    connection = connect(url)
    rows = {f"m-{number}" for (number,) in connection.execute("SELECT number FROM effects").fetchall()}
    messages = {id for (id,) in connection.execute("SELECT id FROM onceward_outbox_messages").fetchall()}
    connection.close()
    return {"deaths": deaths, "rows": len(rows), "untold": len(rows - messages), "untrue": len(messages - rows)}


if __name__ == "__main__":
    logging.disable()  # That a lease ran out is news, and no fault.
    what, url, *rest = sys.argv[1:]
    if what == "relays":
        print(json.dumps(relays(url, rest[0], int(rest[1]), (*rest, "")[2])))
    else:
        print(json.dumps(writers(url, int(rest[0]), (*rest, "")[1])))
