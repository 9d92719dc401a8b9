"""kill -9 at every failpoint and between any two statements: the delta and the record of its key, or neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ledger_support import LIVE, World, audited, balance, emit, sent

from colours import COLOURS

pytestmark = pytest.mark.dose(1, of=("kind", "colour", "ledger"))

TESTS = str(Path(__file__).resolve().parents[2])
KILLED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from colours import Colour
from onceward.runtime import failpoints, flow_driver
from onceward.service.ledger import AsyncLedger, Ledger, LedgerScope, keyed_transaction, wire

# Everything that is imported late, before the first fork.
import onceward.adapters.psycopg, onceward.adapters.sqlite3
import onceward.stores.tables.postgres_driver, onceward.stores.tables.sqlite_driver

failpoints.declare("test.statement", "between two statements of a transaction")
LIVE = LedgerScope.of("live", "acme")

def stepping(given, run):
    def ask(sql):
        failpoints.hit("test.statement")
        found = run(sql)
        failpoints.hit("test.statement")
        return found
    return flow_driver.drive_steps(given, ask)

def work(ledger, verb, name):
    flows = ledger.flows
    delta = lambda more="": wire.DeltaRequest(customer_id=name, delta=-1, reason="drill", reference_id=name + more)
    match verb:
        case "book":
            return flows.emit(LIVE, delta(), "k-" + name)
        case "reference":
            return flows.emit(LIVE, delta())
        case "batch":
            return flows.emit_many(LIVE, [delta(), delta("-2")], "k-" + name)
        case "close":
            return flows.checkpoint(LIVE, name, "2020-01", "k-" + name)
        case "judge":
            return flows.verify_queued()

# One process for each point, forked before anything is opened: Python need not start anew for each.
for point in sys.argv[4:]:
    verb, name, at, skip = point.split("/")
    child = os.fork()
    if not child:
        colour = Colour(sys.argv[2])
        ledger = colour.run(colour.pick(Ledger, AsyncLedger).open, sys.argv[3])
        keyed_transaction.drive_steps = stepping
        failpoints.arm(at, "kill", skip=int(skip))
        colour.run(ledger.run, work(ledger, verb, name))
        os._exit(0)
    print(os.waitpid(child, 0)[1])
"""
GATE = tuple(f"{at}.{side}" for at in ("begin", "peek", "call", "settle") for side in ("before", "after"))
"""What the gate does on the ledger's connection. `call` is not hit by a block, and is its own negative control."""
STATEMENTS = {"book": 12, "reference": 12, "batch": 14, "close": 14}
"""Sides of the statements of a transaction. Past the last one nobody is killed: the negative control."""
EVERY = bool(os.environ.get("LEDGER_KILLS"))
AT = {"book": "ledger.book", "reference": "ledger.book", "batch": "ledger.book_batch", "close": "ledger.close"}


def points(verb: str) -> list[tuple[str, str, int]]:
    """Where one is killed: failpoint and how many hits pass by before."""
    named = [(f"{AT[verb]}.{side}", 0) for side in ("before", "written", "after")]
    named += [(at, 0) for at in GATE if EVERY or verb == "book"]
    # Without LEDGER_KILLS every fourth side of a statement, from the end: the last is past the last statement.
    named += [("test.statement", skip) for skip in range(STATEMENTS[verb], -1, -1 if EVERY else -4)]
    return [(f"{verb}{number}", at, skip) for number, (at, skip) in enumerate(named)]


def killed(world: World, colour: str, *some: tuple[str, str, int]) -> list[str]:
    """Let one process die at each of these points, each with a customer of its own; how they ended."""
    typed = [f"{name.rstrip('0123456789')}/{name}/{at}/{skip}" for name, at, skip in some]
    command = [sys.executable, "-c", KILLED, TESTS, colour, world.url, *typed]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def there(world: World, name: str) -> tuple[int, int]:
    """Entries of a customer, and records of its key."""
    [(entries,)] = world.execute("SELECT count(*) FROM onceward_ledger_entries WHERE customer = ?", name)
    keys = (f"live:k-{name}", f"live:{name}")
    [(records,)] = world.execute("SELECT count(*) FROM onceward_records WHERE key IN (?, ?)", *keys)
    return int(entries), int(records)


@pytest.mark.slow
@pytest.mark.parametrize("colour", COLOURS)
def test_a_kill_leaves_both_or_neither_and_a_retry_books_once(world: World, colour: str) -> None:
    """
    Only after the commit is there anything, and then there is all of it. Whatever was killed, the same request again
    ends as if nothing had happened. With a key, with a reference alone, in a batch.
    """
    with world.open() as ledger:
        some = [*points("book"), *points("reference"), *points("batch")]
        ended = killed(world, colour, *some)

        assert set(ended) == {"9", "0"}, "every point was passed, or none: nothing is shown by that"
        assert ended.count("9") > 12
        for (name, at, skip), how in zip(some, ended, strict=True):
            is_batch = name.startswith("batch")
            there_is = (at.startswith("ledger.") and at.endswith(".after")) or how == "0"
            assert ((1 + is_batch, 1) if there_is else (0, 0)) == there(world, name), (name, at, skip, how)
            retry(ledger, name)
            assert str(-1 - is_batch) == balance(ledger, name).balance
        assert (len(some), []) == (audited(ledger).customers, audited(ledger).findings)


def retry(ledger: Any, name: str) -> None:
    """What was killed, once more."""
    if name.startswith("batch"):
        several = [sent(customer=name, reason="drill", reference_id=name + more) for more in ("", "-2")]
        ledger.run(ledger.flows.emit_many(LIVE, several, f"k-{name}"))
    else:
        key = f"k-{name}" if name.startswith("book") else None
        emit(ledger, customer=name, reason="drill", reference_id=name, key=key)


@pytest.mark.slow
@pytest.mark.parametrize("colour", COLOURS)
def test_a_period_is_closed_whole_or_not_at_all(world: World, colour: str) -> None:
    """
    Checkpoint, the customer's row and the record; and a retry closes what was not.
    """
    with world.open() as ledger:
        some = points("close")
        for name, _, _ in some:
            emit(ledger, customer=name, reference_id=f"r-{name}", period="2020-01")
        ended = killed(world, colour, *some)

        assert ended.count("9") > 3
        assert audited(ledger).findings == []
        for (name, at, _), how in zip(some, ended, strict=True):
            [(closed,)] = world.execute("SELECT closed FROM onceward_ledger_customers WHERE customer = ?", name)
            is_closed = at == "ledger.close.after" or how == "0"
            assert (is_closed, int(is_closed)) == (closed == "2020-01", there(world, name)[1]), (name, at)
            text = ledger.run(ledger.flows.checkpoint(LIVE, name, "2020-01", f"k-{name}")).text
            assert json.loads(text)["balance"] == "-1"
        assert (len(some), []) == (audited(ledger).checkpoints, audited(ledger).findings)


@pytest.mark.slow
@pytest.mark.parametrize("colour", COLOURS)
def test_a_killed_verifier_leaves_its_deltas_to_the_next(world: World, colour: str) -> None:
    """
    Queued or judged, never between; whoever comes next goes on.
    """
    with world.open(verify="queued") as ledger:
        for number in range(3):
            emit(ledger, reference_id=f"r{number}")
        some = [("judge", f"ledger.judge.{side}", 0) for side in ("before", "written", "after")]

        # Killed at the third, too: so the first two had left all of it to do, and the fourth finds nothing.
        assert killed(world, colour, *some, some[0]) == ["9", "9", "9", "0"]
        assert (balance(ledger).queued, audited(ledger).findings) == (0, [])
        assert balance(ledger).balance == "-3"
