"""
Relays and receivers of webhooks that are killed, as real processes over real sockets; run as a script.

    webhook_drill.py FOLDER KILLS [FAULT]

A relay is killed at one of its failpoints, a receiver before, inside and after its transaction; as soon as one has died
another comes, until each has died so often, and then the last ones finish. The receiver verifies the signature, writes
the id and the effect in one transaction, and answers; with the fault `no_ids` it does not look at ids.

This process forks the others, so that imports are paid for once. It holds the listening socket, so that the address
outlives every receiver; it opens no database while children live.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from onceward import Gate
from onceward.messaging.outbox.delivery import HttpEndpoint
from onceward.messaging.outbox.relay import Relay
from onceward.messaging.webhooks import Secret, StandardWebhooks
from onceward.runtime import failpoints
from onceward.runtime.environment import REAL

RELAY_POINTS = (
    "relay.turn.before", "relay.turn.written", "relay.turn.after", "relay.deliver.before", "relay.deliver.after",
)  # fmt: skip
RECEIVER_POINTS = ("read", "written", "committed")
AGGREGATES = 4
SECRET = Secret(b"s" * 32)
SECONDS_MAX = 100


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


class Drill:
    """One outbox, one address, one database of the receiver."""

    def __init__(self, folder: Path, kills: int, fault: str) -> None:
        self.url = f"sqlite:///{folder}/app.db"
        self.kills, self.fault = kills, fault
        self.application, self.received = folder / "app.db", folder / "received.db"
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self.listener.getsockname()[1]

    def prepare(self) -> None:
        """Messages in the outbox, in order within their aggregates, and the receiver's tables."""
        with Gate(self.url, scope="live:drill") as gate, closing(sqlite3.connect(self.application)) as connection:
            outbox = gate.outbox(connection)
            for number in range(4 * self.kills):
                for aggregate in range(AGGREGATES):
                    outbox.add("hook", {"n": number, "a": aggregate}, topic="t", aggregate=f"a{aggregate}")
            connection.commit()
        with closing(sqlite3.connect(self.received)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            unique = "" if self.fault == "no_ids" else "UNIQUE"
            connection.execute(
                f"CREATE TABLE effects (seq INTEGER PRIMARY KEY, id TEXT {unique}, a INTEGER, n INTEGER)"
            )
            connection.execute("CREATE TABLE deliveries (id TEXT)")
            connection.commit()

    def relay(self, point: str | None, skip: int) -> None:
        """Work until nothing waits, or until killed."""
        if point is not None:
            failpoints.arm(point, "kill", skip=skip)
        endpoint = HttpEndpoint(
            f"http://127.0.0.1:{self.port}/hook", secrets=[SECRET], allow_http=True, allow_private=["127.0.0.1"],
            seconds=0.5,
        )  # fmt: skip
        relay = Relay(
            self.url, {"hook": endpoint}, concurrency=3, margin=0.3, idle=0.02, schedule=[0.02] * 100, threshold=10_000
        )
        while any(one.state == "waiting" for one in relay.message_counts()):
            if not relay.step():
                REAL.sleep(0.02)
        relay.close()

    def receiver(self, point: str | None, skip: int) -> None:
        """Take webhooks, one after the other, until killed."""

        def at(here: str) -> None:
            nonlocal skip
            if here == point:
                skip -= 1
                if skip < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        with closing(sqlite3.connect(self.received, timeout=30)) as connection:
            while True:
                line, _ = self.listener.accept()
                with line, suppress(OSError):  # A caller that was killed in the middle of it.
                    line.settimeout(10)
                    self.take(line, connection, at)

    def take(self, line: socket.socket, connection: sqlite3.Connection, at: Callable[[str], None]) -> None:
        """One webhook: verified, written with its effect, answered."""
        with line.makefile("rb") as file:
            headers: dict[str, str] = {}
            file.readline()
            while text := file.readline().decode().rstrip("\r\n"):
                name, _, value = text.partition(":")
                headers[name.lower()] = value.strip()
            size = int(headers.get("content-length", "-1"))
            body = file.read(max(size, 0))
        if size < 0 or len(body) != size:
            return
        verified = StandardWebhooks().verify(headers, body, [SECRET], now=REAL.wall_us() / 1e6)
        at("read")
        payload = json.loads(body)
        connection.execute("INSERT INTO deliveries VALUES (?)", (verified.id,))
        connection.execute(
            "INSERT OR IGNORE INTO effects (id, a, n) VALUES (?, ?, ?)", (verified.id, payload["a"], payload["n"])
        )
        at("written")
        connection.commit()
        at("committed")
        line.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    def run(self) -> dict[str, Any]:
        """Kill, and count."""
        ready = forked(self.prepare)
        if os.waitstatus_to_exitcode(os.waitpid(ready, 0)[1]) != 0:
            raise SystemExit("the messages could not be added")
        chance = random.Random(7)
        makers: dict[str, tuple[tuple[str, ...], Callable[[str | None, int], None]]] = {
            "relay": (RELAY_POINTS, self.relay),
            "receiver": (RECEIVER_POINTS, self.receiver),
        }
        deaths, begun = {"relay": 0, "receiver": 0}, {"relay": 0, "receiver": 0}
        living: dict[int, str] = {}
        while True:
            for kind, (points, work) in makers.items():
                if kind in living.values():
                    continue
                mortal = deaths[kind] < self.kills
                point = points[begun[kind] % len(points)] if mortal else None
                skip = chance.randrange(4)
                begun[kind] += 1
                living[forked(lambda work=work, point=point, skip=skip: work(point, skip))] = kind
            child, status = os.wait()
            kind = living.pop(child)
            code = os.waitstatus_to_exitcode(status)
            if kind == "relay" and code == 0:
                break  # Nothing waits any more.
            if code != -signal.SIGKILL:
                raise SystemExit(f"a {kind} ended with {code}")
            deaths[kind] += 1
        for child in living:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        return {**{f"{kind}_deaths": count for kind, count in deaths.items()}, **self.judged()}

    def judged(self) -> dict[str, Any]:
        """What the receiver did, against what was added."""
        with closing(sqlite3.connect(self.application)) as connection:
            added = {id for (id,) in connection.execute("SELECT id FROM onceward_outbox_messages")}
        with closing(sqlite3.connect(self.received)) as connection:
            effects = connection.execute("SELECT id, a, n FROM effects ORDER BY seq").fetchall()
            (deliveries,) = connection.execute("SELECT count(*) FROM deliveries").fetchone()
        acted = {id for id, _, _ in effects}
        orders = [[n for _, a, n in effects if a == aggregate] for aggregate in range(AGGREGATES)]
        return {
            "added": len(added),
            "lost": len(added - acted),
            "invented": len(acted - added),
            "doubled": len(effects) - len({(a, n) for _, a, n in effects}),
            "out_of_order": sum(numbers != sorted(numbers) for numbers in orders),
            "repeated": deliveries - len(acted),
        }


if __name__ == "__main__":
    logging.disable()  # That a lease ran out is news, and no fault.
    print(json.dumps(Drill(Path(sys.argv[1]), int(sys.argv[2]), (*sys.argv, "")[3]).run()))
