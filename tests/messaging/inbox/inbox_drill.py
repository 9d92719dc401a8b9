"""
The kill drill: receivers and workers in processes of their own, killed with SIGKILL at every failpoint that they pass.

    python inbox_drill.py URL CASE COLOUR      prints one line of JSON

    sound        the handler settles inside its transaction          lost 0, doubled 0
    blind        the default: an effect that nobody can take back     lost 0 (some are in doubt, and told), doubled 0
    unguarded    effect and record are two commits, declared safe     the control: doubled
    unrepeated   senders do not come back when they got no answer     the control: lost
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from colours import Awaited
from onceward import Operation
from onceward.messaging.inbox import AsyncInbox, Inbox, Source, WebhookEvent, handler
from onceward.messaging.webhooks import PacSpace, Secret
from onceward.runtime import failpoints

SECRET = Secret.plain("a secret that is long enough")
LEASE_SECONDS = 0.2
PATIENCE_SECONDS = 60.0


class Effects:
    """A table of effects, in the database that is also the store."""

    def __init__(self, url: str) -> None:
        self._is_sqlite = url.startswith("sqlite")
        self.connection: Any = (
            sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
            if self._is_sqlite
            else psycopg.connect(url, autocommit=True)
        )

    def create(self) -> None:
        self.connection.execute("DROP TABLE IF EXISTS effects")
        self.connection.execute("CREATE TABLE effects (event TEXT)")

    def write(self, id: str, settle: Callable[[Any], None] | None = None) -> None:
        """The effect and, if it is to be, the record in the same transaction."""
        self.connection.execute("BEGIN IMMEDIATE" if self._is_sqlite else "BEGIN")
        self.connection.execute(f"INSERT INTO effects VALUES ({'?' if self._is_sqlite else '%s'})", (id,))
        if settle is not None:
            settle(self.connection)
        self.connection.execute("COMMIT")

    def counted(self) -> Counter[str]:
        return Counter(row[0] for row in self.connection.execute("SELECT event FROM effects").fetchall())


def source(url: str, case: str) -> Source:
    """The source of a case."""
    effects: list[Effects] = []

    def mine() -> Effects:
        if not effects:
            effects.append(Effects(url))
        return effects[0]

    @handler(guarantee="atomic", settle="inside", lease=LEASE_SECONDS)
    def sound(event: WebhookEvent, operation: Operation) -> None:
        mine().write(event.id, lambda connection: operation.settle_inside(connection, None))

    @handler(lease=LEASE_SECONDS)
    def blind(event: WebhookEvent) -> None:
        mine().write(event.id)

    @handler(guarantee="repeatable", lease=LEASE_SECONDS)
    def unguarded(event: WebhookEvent) -> None:
        mine().write(event.id)

    chosen = {"blind": blind, "unguarded": unguarded}.get(case, sound)
    return Source("pac", PacSpace(), [SECRET], chosen)


def opened(url: str, case: str, colour: str) -> Any:
    """An inbox of that colour; its methods block either way."""
    kind = AsyncInbox if colour == "awaiting" else Inbox
    inbox = kind(url, scope="live:drill", lease=LEASE_SECONDS)
    inbox.add(source(url, case))
    return Awaited(inbox) if colour == "awaiting" else inbox


def deliver(inbox: Any, id: str) -> None:
    body = json.dumps({"event": id}).encode()
    inbox.answer("pac", PacSpace().sign(id, body, [SECRET], now=time.time()), body)


def passed(work: Callable[[], Any]) -> list[str]:
    """The failpoints that some work passes, in order."""
    found: list[str] = []

    def noting(name: str) -> Callable[[], None]:
        return lambda: None if name in found else found.append(name)

    for name in list(failpoints.CATALOGUE):
        if not name.startswith("renew."):  # A busy machine passes these, and an idle one does not.
            failpoints.arm(name, noting(name))
    work()
    failpoints.disarm()
    return found


def in_child(work: Callable[[], Any]) -> int:
    """Do it in a process of its own; the signal that ended it, or 0."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError("a child failed")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def drill(url: str, case: str, colour: str) -> dict[str, Any]:
    """Kill receivers and workers everywhere; then let senders and workers go on as they would, and count."""
    effects = Effects(url)
    with closing(opened(url, case, colour)) as inbox:
        effects.create()
        # The first time some things are only just made. What only one of the others passes was chance: a busy file.
        seen = [(passed(lambda id=id: deliver(inbox, id)), passed(inbox.drain)) for id in ("warm", "dry", "again")]  # type: ignore[misc]
        receiving, working = ([at for at in last if at in before] for before, last in zip(*seen[1:], strict=True))
    if case == "unrepeated":
        working = []
    elif case != "sound":
        receiving, working = [], [at for at in working if not at.startswith("inbox.")]
    effects.connection.close()
    signals: dict[str, int] = {}

    def killed(role: str, at: str) -> None:
        inbox = opened(url, case, colour)
        if role == "worker":
            deliver(inbox, f"{role}@{at}")
        failpoints.arm(at, "kill")
        if role == "receiver":
            deliver(inbox, f"{role}@{at}")
        else:
            inbox.drain()

    for role, places in (("receiver", receiving), ("worker", working)):
        for at in places:
            signals[f"{role}@{at}"] = in_child(lambda role=role, at=at: killed(role, at))  # type: ignore[misc]
    effects = Effects(url)
    with closing(opened(url, case, colour)) as inbox:
        if case != "unrepeated":
            for id in signals:  # Nobody was answered, so everybody sends it again.
                deliver(inbox, id)
        until = time.monotonic() + PATIENCE_SECONDS
        while inbox.sources()[0].waiting and time.monotonic() < until:
            inbox.drain()
            time.sleep(0.02)  # Until the leases of the dead are over.
        view = inbox.sources()[0]
        counts = effects.counted()
    effects.connection.close()
    return {
        "places": len(signals),
        "alive": [one for one, signal in signals.items() if signal != 9],
        "receiving": receiving,
        "waiting": view.waiting,
        "told": view.dead,
        "lost": len([id for id in signals if not counts[id]]),
        "doubled": len([id for id in signals if counts[id] > 1]),
    }


if __name__ == "__main__":
    print(json.dumps(drill(*sys.argv[1:])))
