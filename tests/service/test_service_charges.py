"""The charge of the fifth document, and what else its readers would try, on the service: over a real socket."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from service_support import INSERT, Heard, Served, children

from onceward.service.sql.limits import DEFAULT_LIMITS

CHARGES = """CREATE TABLE charges (
    id TEXT PRIMARY KEY, customer TEXT NOT NULL, amount INTEGER NOT NULL CHECK (amount > 0), invoice TEXT UNIQUE)"""
CHARGE = "INSERT INTO charges VALUES (?, ?, ?, ?) RETURNING id, 'created' AS status, amount"
DATABASES = int(os.environ.get("DATABASES", "75"))
"""How many databases to make; ten thousand take some minutes."""


def charge(served: Served, path: str, key: str, id: str, amount: str, invoice: str | None = None) -> Heard:
    """`charge_create(key, customer_id, amount decimal(19,4))`: money is a whole number of ten-thousandths."""
    scaled = int(Decimal(amount).scaleb(4))
    return served.query(path, CHARGE, [id, "c-1", {"integer": str(scaled)}, invoice], key=key)


@pytest.mark.requirement("E12", "E13", "E14", "E15", "E19", "E20")
def test_a_charge_has_one_answer_on_every_way_out(served: Served) -> None:
    """
    Twenty at once, then one more: fresh, race lost and replayed have the same status, shape and bytes; one row. And
    money is exact: 0.1 and 0.2 make 0.3, and the largest decimal(19,4) comes back as it went.
    """
    path = served.database(table=CHARGES)
    answers: list[Heard] = []
    barrier = threading.Barrier(20)

    def one() -> None:
        barrier.wait(60)
        answers.append(charge(served, path, "charge-1", "ch-1", "0.1"))

    threads = [threading.Thread(target=one) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    answers.append(charge(served, path, "charge-1", "ch-1", "0.1000"))
    charge(served, path, "charge-2", "ch-2", "0.2")
    largest = charge(served, path, "charge-3", "ch-3", "922337203685477.5807")
    total = served.query(path, "SELECT sum(amount) FROM charges WHERE id < 'ch-3'").document["rows"][0][0]

    assert {(200, answers[0].body)} == {(one.status, one.body) for one in answers}
    assert sum("idempotency-replayed" in one.headers for one in answers) == 20
    assert answers[0].document["rows"] == [["ch-1", "created", 1_000]]
    assert (Decimal(total).scaleb(-4), served.count(path, "charges")) == (Decimal("0.3"), 3)
    assert [["ch-3", "created", {"integer": str(2**63 - 1)}]] == largest.document["rows"]


@pytest.mark.requirement("A13", "E16", "E18", "E21")
def test_a_violation_is_told_and_never_taken_for_a_duplicate(served: Served) -> None:
    """
    Primary key and unique index are one kind; under a key they surface, undo their batch, and leave the key free. So
    does every other constraint.
    """
    path = served.database(table=CHARGES)
    charge(served, path, "charge-1", "ch-1", "1", "inv-1")
    primary = charge(served, path, "charge-2", "ch-1", "1")
    unique = charge(served, path, "charge-2", "ch-2", "1", "inv-1")
    check = charge(served, path, "charge-2", "ch-2", "-1")
    batch = {"statements": [{"sql": CHARGE, "params": [id, "c", 1, invoice]} for id, invoice in
                            (("ch-8", None), ("ch-9", "inv-1"))]}  # fmt: skip
    aborted = served.call("POST", f"{path}/batch", batch, headers={"Idempotency-Key": "charge-2"})
    taken = charge(served, path, "charge-2", "ch-2", "1", "inv-2")

    assert [(one.status, one.document["kind"], one.document["table"]) for one in (primary, unique)] == [
        (409, "uniqueViolation", "charges")
    ] * 2
    assert (primary.document["column"], unique.document["column"]) == ("id", "invoice")
    assert (check.status, check.document["kind"]) == (400, "check")
    assert (aborted.status, aborted.document["statement"]) == (409, 1)
    assert not any("idempotency-replayed" in one.headers for one in (primary, unique, check, aborted, taken))
    assert (taken.status, served.count(path, "charges")) == (200, 2)


@pytest.mark.requirement("E03", "A16")
def test_a_message_that_is_delivered_twice_has_one_effect(served: Served, database: str) -> None:
    """
    The consumer's key is the message's id, the same on each of five deliveries, whoever gets it.
    """
    workers = [served.new_token("demo") for _ in range(2)]
    heard = [
        served.query(database, INSERT, ["m-17", "x"], key="evt-m-17", token=workers[number % 2]) for number in range(5)
    ]

    assert {(200, heard[0].body)} == {(one.status, one.body) for one in heard}
    assert served.count(database) == 1


@pytest.mark.requirement("A26", "A39")
def test_what_is_stored_is_one_row_per_step_beside_its_effect(served: Served, database: str) -> None:
    """
    In the tenant's own file: scope, plan and step make one row each, with the effect. A token's secret is in no file of
    the service; its id is.
    """
    _, _, id, secret = served.token.split("_")
    for step in ("one", "two", "one"):
        served.query(database, INSERT, [step, "x"], headers={"Plan-Key": "p-1", "Plan-Step": step})
    name = database.rpartition("/")[2]
    file = served.folder / "databases" / "test-demo" / f"{name}.db"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT scope, key FROM onceward_records WHERE state = 'settled'").fetchall()
        effects = connection.execute("SELECT count(*) FROM events").fetchone()[0]
    everything = b"".join(path.read_bytes() for path in served.folder.rglob("*") if path.is_file())

    steps = [key for scope, key in rows if "p-1" in key]
    assert {scope for scope, _ in rows} == {f"test:demo:db:{name}"}
    assert (len(steps), len(set(steps)), effects) == (2, 2, 2)
    assert (id.encode() in everything, secret.encode() in everything) == (True, False)


@pytest.mark.parametrize("sql", ["VACUUM", "VACUUM INTO 'x'", "PRAGMA journal_mode = DELETE", "PRAGMA wal_checkpoint"])
@pytest.mark.parametrize("key", [None, "k"])
def test_what_cannot_run_in_a_transaction_is_refused_as_that(
    served: Served, database: str, sql: str, key: str | None
) -> None:
    """
    In words, with a key and without, and the key stays free.
    """
    refused = served.query(database, sql, key=key)
    after = served.query(database, INSERT, ["e-1", "x"], key="k")

    assert (
        refused.status, refused.document["kind"], refused.document["retry"]
    ) == (400, "notInTransaction", "never")  # fmt: skip
    assert (after.status, after.headers.get("idempotency-replayed")) == (200, None)


def test_more_databases_than_open_files(served: Served) -> None:
    """
    Each is made, written and read; the processes keep a few open and let go of the rest. DATABASES=10000 makes so many.
    """
    token = served.new_token("many", role="admin")
    names = [f"n{number}" for number in range(DATABASES)]
    for name in names:
        path = f"/v1/db/many/{name}"
        made = [served.call("PUT", path, token=token), served.query(path, "CREATE TABLE t (i)", key="k", token=token),
                served.query(path, "SELECT count(*) FROM t", token=token)]  # fmt: skip
        assert {one.status for one in made} == {200, 201}
    listed = served.call("GET", "/v1/db/many", token=token).document["databases"]
    again = served.query("/v1/db/many/n0", "CREATE TABLE t (i)", key="k", token=token)

    assert sorted(names) == listed
    assert again.headers["idempotency-replayed"] == "true"
    assert 2 * DEFAULT_LIMITS.open_databases + 4 < DATABASES
    opened = [open_databases(pid) for pid in [served.process.pid, *children(served.process.pid)]]
    # A process of the slow lane has as many to write as to read; a few that were closed may wait for the collector.
    assert 0 < max(opened) <= 2 * DEFAULT_LIMITS.open_databases + 4
    assert opened[0] == 0, "the service itself has none open"


def open_databases(pid: int) -> int:
    """How many of the databases a process has open."""
    links = [str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir() if one.is_symlink()]
    return len({link for link in links if "/databases/" in link and link.endswith(".db")})
