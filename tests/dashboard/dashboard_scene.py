"""
A store as it is on a bad day, made by really killing processes: claims of the dead, doubt, dead letters, a plan that
stopped half-way, an agent that was killed, messages and events that were given up, a breaker that is open, and a
migration that died in the middle.

    python scene.py FOLDER PART     one part, in a process that may kill itself

Nothing is written into tables by hand.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import NoReturn

SCOPE = "live:acme"
SECONDS_MAX = 60
HISTORY_MINUTES = 170
HOSTILE = "<script>alert('x')</script>"
"""A key, an operation and an error message that somebody would like to be run."""
SECRET = "4242-4242-4242-4242"
"""In results and arguments: no page shows it, unless that is allowed."""


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder}/shop.db"


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


# --- parts: each runs in a process of its own ---


def history(url: str) -> None:
    """Three hours of operations that went well, were sent again, were refused and failed; all noted in a journal."""
    behind = [HISTORY_MINUTES * 60 * 10**9]
    real = time.time_ns
    time.time_ns = lambda: real() - behind[0]  # Before anything of ours is imported: a clock that is behind.
    from onceward import Gate, KeyReused
    from onceward.journal import Journal

    def at(minutes: int) -> None:
        behind[0] = minutes * 60 * 10**9

    def fail() -> None:
        raise LookupError("no such customer")

    with (
        Journal(url, scope=SCOPE, worker="checkout") as journal,
        Gate(url, scope=SCOPE, listeners=[journal.listener()]) as gate,
    ):
        for number in range(40):
            at(HISTORY_MINUTES - number * 4)
            gate.run(
                f"charge:order-{number}", lambda: {"charge": "ch_1", "card": SECRET}, request=number, name="charge"
            )
            if number % 3 == 0 or number > 37:
                gate.run(f"charge:order-{number}", lambda: None, request=number, name="charge")
        at(0)
        gate.run("charge:order-1", lambda: None, request=1, name="charge")
        for number in range(3):
            with suppress(KeyReused):
                gate.run(f"charge:order-{number}", lambda: None, request="another", name="charge")
        with suppress(LookupError):
            gate.run("lookup:7", fail, name="lookup", guarantee="repeatable")
        gate.run(HOSTILE.replace(" ", ""), lambda: HOSTILE, name=HOSTILE)


def killed(url: str) -> None:
    """A process that dies while its effect is under way."""
    from onceward import Gate
    from onceward.journal import Journal

    number = os.environ["NUMBER"]
    journal = Journal(url, scope=SCOPE, worker="checkout")
    gate = Gate(url, scope=SCOPE, listeners=[journal.listener()])
    gate.run(f"refund:order-{number}", die, name="refund", guarantee="blind")


def doubted(url: str) -> None:
    """The next one who asks learns that nobody knows."""
    from onceward import Gate, InDoubt

    with Gate(url, scope=SCOPE) as gate:
        for number in (1, 2, 3, 4):
            try:
                gate.run(f"refund:order-{number}", lambda: None, name="refund", guarantee="blind")
            except InDoubt:
                continue
            raise AssertionError("the dead holder's operation was run again")


def doubted_again(url: str) -> None:
    """The same, for the first of them."""
    from onceward import Gate, InDoubt

    with Gate(url, scope=SCOPE) as gate, suppress(InDoubt):
        gate.run("refund:order-1", lambda: None, name="refund", guarantee="blind")
        raise AssertionError("the dead holder's operation was run again")


def held(url: str) -> None:
    """A process that is alive, and holds a claim until it is told to end."""
    from onceward import Gate

    def wait() -> str:
        sys.stdout.write("held\n")
        sys.stdout.flush()
        sys.stdin.read()
        return "done"

    with Gate(url, scope=SCOPE) as gate:
        gate.run("export:2026-03", wait, name="export", guarantee="blind")


def given_up(url: str) -> None:
    """Calls whose retries were used up."""
    from onceward import Gate, Retry

    with Gate(url, scope=SCOPE) as gate:
        dead = gate.dead_letters(payload="plain")
        policy = Retry(key="mail:{order_id}", dead=dead, base=0.001, name="mail")

        @policy
        @gate.once(key="mail:{order_id}", guarantee="repeatable")
        def mail(order_id: str, card: str) -> None:
            raise ConnectionRefusedError(f"the mail server is down {HOSTILE}")

        for number in (1, 2):
            with suppress(ConnectionRefusedError):
                mail(f"order-{number}", SECRET)


def planned(url: str) -> None:
    """A plan whose third step kills its process."""
    from onceward import Gate

    gate = Gate(url, scope=SCOPE)
    plan = gate.plan("order-17")
    plan.step("reserve", lambda: "r-1")
    plan.step("charge", lambda: {"charge": "ch_9"})
    plan.step("ship", die, guarantee="blind")


def planned_again(url: str) -> None:
    """Whoever resumes the plan learns that nobody knows of the third step."""
    from onceward import Gate, InDoubt

    with Gate(url, scope=SCOPE) as gate, suppress(InDoubt):
        gate.plan("order-17").step("ship", lambda: None, name="die", guarantee="blind")
        raise AssertionError("the dead holder's step was run again")


def agent(url: str) -> None:
    """A run of an agent that is killed in its second turn."""
    from onceward.journal import Journal

    journal = Journal(url, scope=SCOPE, worker="reconciler-v1")
    with journal.run("march", input_ref="statement-2026-03.csv") as run:
        with run.turn(1) as turn:
            with turn.call("read_statement"):
                pass
            with turn.call("record_expense", key="expense:1") as call:
                call.end("executed")
            with turn.call("record_expense", key="expense:1") as call:
                call.end("replayed")
        with run.turn(2) as turn, turn.call("send_report", key="report:march"):
            die()


def priced(url: str, last: Callable[[], object] = die) -> None:
    """A run of an agent whose tools have a price, killed while the third of them is paid for."""
    from onceward.agents import AgentGate, Spend, Tool, ToolCall
    from onceward.journal import Journal

    gate = AgentGate(
        url,
        scope=SCOPE,
        spend=Spend("usd", limit="2.00"),
        tools={"render": Tool("blind", price="0.40"), "search": Tool("repeatable", price="0.05")},
        journal=Journal(url, scope=SCOPE, worker="designer-v2"),
    )
    gate.call(ToolCall("poster-7", "search", {"for": "colours"}), lambda: "blue")
    gate.call(ToolCall("poster-7", "render", {"page": 1}), lambda: "poster-1.png")
    gate.call(ToolCall("poster-7", "render", {"page": 2}), last)
    gate.close()


def priced_again(url: str) -> None:
    """The same run, begun again: what was done is replayed, and nobody knows of the third call."""
    priced(url, lambda: "poster-2.png")


def breakers(url: str) -> None:
    """A breaker that is open, and a budget, shared by everybody on the store."""
    from onceward import Breaker, Budget, Gate, Retry

    with Gate(url, scope=SCOPE) as gate:
        breaker = Breaker.shared(gate, "payments", threshold=2, recovery=3_600.0, staleness=1e-9, patience=20)

        @breaker
        def call() -> None:
            raise ConnectionRefusedError("refused")

        for _ in range(5):
            with suppress(Exception):  # The provider's error, then the breaker's own.
                call()
        budget = Budget.shared(gate, "payments", staleness=1e-9, patience=20)

        @Retry(safe=True, budget=budget, base=0.001)
        def look_up() -> None:
            raise ConnectionRefusedError("refused")

        with suppress(ConnectionRefusedError):
            look_up()


def forgotten(url: str) -> None:
    """While an operation runs, somebody restores the backup of a moment ago: its claim is gone, and is put back."""
    from onceward import Gate

    file = url.removeprefix("sqlite:///")

    def restore() -> str:
        with closing(sqlite3.connect(file)) as live:
            backup.backup(live)
        return "sent"

    with Gate(url, scope=SCOPE) as gate, closing(sqlite3.connect(":memory:")) as backup:
        with closing(sqlite3.connect(file)) as live:
            live.backup(backup)
        gate.run("newsletter:march", restore, name="newsletter", guarantee="blind")


def expenses(url: str) -> None:
    """A table of somebody's own from before keys, in the same file."""
    table = "CREATE TABLE expenses (id INTEGER PRIMARY KEY, token text NOT NULL, amount integer NOT NULL)"
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute(table)
        connection.executemany("INSERT INTO expenses (token, amount) VALUES (?, ?)", [(f"t{n}", n) for n in range(200)])


def messages(url: str) -> None:
    """Messages that were delivered, that wait, and that nobody would take."""
    from onceward import Gate
    from onceward.messaging.outbox import DeliveryRefused, EndpointGone, Message
    from onceward.messaging.outbox.relay import Relay

    gate = Gate(url, scope=SCOPE)
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    outbox = gate.outbox(connection)
    with connection:
        for number in range(3):
            outbox.add("billing", {"invoice": number}, topic="invoice.paid", id=f"paid-{number}")
        outbox.add("partner", {"card": SECRET}, topic="invoice.paid", id="partner-1")
        outbox.add("partner", {"card": SECRET}, topic="invoice.paid", id="partner-2")
        outbox.add("legacy", {"invoice": 8}, topic="invoice.paid", id="legacy-1")

    def refuse(message: Message) -> object:
        return DeliveryRefused("422: they do not know this customer")

    def leave(message: Message) -> object:
        return EndpointGone("410: nobody listens here any more")

    with Relay(url, {"billing": lambda message: None, "partner": refuse, "legacy": leave}) as relay:
        for _ in range(3):
            relay.step()
    with connection:
        outbox.add("warehouse", {"invoice": 9}, topic="invoice.paid", id="waits-1")
    connection.close()
    gate.close()


def events(url: str) -> None:
    """Webhooks: one is handled, one came twice, and one is given up."""
    from onceward.messaging.inbox import Inbox
    from onceward.messaging.inbox.stored_sources import StoredSource
    from onceward.messaging.webhooks import StandardWebhooks
    from onceward.runtime.environment import REAL

    secret = os.environ["HOOK_SECRET"] = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    with Inbox(url, stored_sources=True) as inbox:
        inbox.store_source(
            StoredSource(
                "stripe", SCOPE, StandardWebhooks(), ("env:HOOK_SECRET",), "scene_handlers:handle", None, 1, None, False
            )
        )
        for id in ("evt_1", "evt_1", "evt_2", "evt_bad"):
            body = b'{"invoice": 7}'
            headers = StandardWebhooks().sign(id, body, [secret], now=REAL.wall_us() / 1e6)
            inbox.receive("stripe", headers, body)
        inbox.drain()


PARTS = {
    one.__name__: one
    for one in (
        history,
        killed,
        doubted,
        doubted_again,
        held,
        given_up,
        planned,
        planned_again,
        agent,
        priced,
        priced_again,
        breakers,
        forgotten,
        expenses,
        messages,
        events,
    )
}


# --- the scene ---


def run(folder: Path, part: str, *, killed: bool = False, **environment: str) -> None:
    """Run a part to its end, whatever that is."""
    ran = subprocess.run(
        [sys.executable, __file__, str(folder), part],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == (-signal.SIGKILL if killed else 0), f"{part}: {ran.stderr[-2000:]}"


def build(folder: Path) -> None:
    """Make the scene, once for all workers of a run: whoever comes first makes it, and the others wait."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "ready").exists():
            return
        run(folder, "history")
        run(folder, "forgotten")
        for number in ("1", "2", "3", "4"):
            run(folder, "killed", killed=True, NUMBER=number)
        run(folder, "doubted")
        run(folder, "planned", killed=True)
        run(folder, "planned_again")
        run(folder, "agent", killed=True)
        run(folder, "priced", killed=True)
        run(folder, "priced_again")
        for part in ("given_up", "breakers", "messages", "events", "expenses"):
            run(folder, part)
        decide_one(folder)
        migrate_half(folder)
        (folder / "ready").touch()


def decide_one(folder: Path) -> None:
    """Somebody looked, and decided one of those in doubt on the command line."""
    from onceward.gate.operator_actions import digest_of_key

    why = ["--did-not-happen", "--reason", "the provider has no such refund", "--actor", "carol"]
    command = ["records", "reconcile", digest_of_key(SCOPE, "refund:order-4"), *why, "--store", url_of(folder)]
    ran = subprocess.run(
        [sys.executable, "-m", "onceward", *command], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert ran.returncode == 0, ran.stderr


def migrate_half(folder: Path) -> None:
    """`onceward migrate apply` of the table of expenses, killed in the midst of its batches."""
    victim = Path(__file__).resolve().parents[1] / "migrate" / "migrate_victim.py"
    ran = subprocess.run(
        [sys.executable, str(victim), url_of(folder), "40", "15"], capture_output=True, timeout=SECONDS_MAX, check=False
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr[-2000:]


MOVER = """
import os, signal, sys
from onceward.stores import _redis_schema
from onceward.stores._redis_connection import RedisConnection
from onceward.stores._redis_url import parse
address = parse(sys.argv[1])
connection, walk = RedisConnection(address), _redis_schema.migrate(address.options.prefix)
commands = next(walk)
for _ in range(int(sys.argv[2])):
    commands = walk.send(connection.exchange(commands))
os.kill(os.getpid(), signal.SIGKILL)
"""
"""What `onceward store migrate` does on Redis, killed after so many round trips."""


def half_moved_redis() -> str:
    """A store of version 1 on Redis, with doubt, whose migration was killed; its URL."""
    from onceward import Gate
    from onceward.stores._redis_url import parse
    from servers.redis import running

    url: str = running().url()
    running().ask("SET", f"{{{parse(url).options.prefix}:0}}:schema", "1")

    def lost() -> None:
        raise OSError("cut off")

    with Gate(url, scope=SCOPE) as gate:
        for number in range(60):
            gate.run(f"charge:order-{number}", lambda: "ch_1", name="charge")
        with suppress(OSError):
            gate.run("refund:order-1", lost, name="refund")
    ran = subprocess.run(
        [sys.executable, "-c", MOVER, url, "12"], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    return url


def copy(source: Path, folder: Path) -> str:
    """A copy of the scene that a test may change; its URL."""
    for file in source.glob("shop*"):
        shutil.copy(file, folder / file.name)
    return url_of(folder)


if __name__ == "__main__":
    PARTS[sys.argv[2]](url_of(Path(sys.argv[1])))
