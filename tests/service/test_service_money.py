"""Prepaid money over a real socket: what ran is paid for once, whoever else was there and whatever was killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psycopg
import pytest
from service_support import INSERT, TABLE, Heard, Served

from onceward.service.access import Access
from onceward.service.access.access_tables import RanLookup
from onceward.service.settings import Settings, store_url_of
from onceward.service.sql.database_files import namespace_of
from onceward.service.sql.postgres.schema_records import SchemaRecords
from onceward.service.sql.ran_operations import find_ran
from onceward.stores.tables import Sql, SqlSteps
from servers import ending, postgres
from servers.tenants import prepare

pytestmark = pytest.mark.dose(1, of="shop")

PRICE = 1_000
PAID_IN = 10_000 * PRICE
PEPPER = "a pepper of more than thirty-two characters"
CROWD = 40
KEYS = 50
KINDS = (*postgres.kinds(), "sql") if postgres.wanted() else postgres.kinds()
"""Where the store is; `sql`: in PostgreSQL, and the databases as well."""


class Shop:
    """A service whose tenants pay, and what its operator sees."""

    def __init__(self, kind: str, folder: Path, *flags: str, program: tuple[str, ...] = ("-m", "onceward")) -> None:
        self.url = store_url_of(Settings(folder=str(folder)))
        if kind == "postgres":
            postgres.running().execute("DROP DATABASE IF EXISTS money WITH (FORCE)")
            postgres.running().execute("CREATE DATABASE money")
            self.url = postgres.running().url("money")
        if kind == "sql":
            postgres.running().execute("DROP DATABASE IF EXISTS money_sql WITH (FORCE)")
            self.url = prepare(postgres.running(), "money_sql")
        self.kind = kind
        where = ("--sql" if kind == "sql" else "--store", self.url)
        self.flags = (*where, "--price", str(PRICE), "--flood-burst", "100000", *flags)
        self.folder = folder
        self.served = self.start(*program)

    def start(self, *program: str) -> Served:
        """A service on this folder and store."""
        return Served.started(self.folder, *self.flags, program=program or ("-m", "onceward"), ONCEWARD_PEPPER=PEPPER)

    def access(self) -> Access:
        """What operators use."""
        return Access.open(self.url)

    def tenant(self, name: str, units: int = PAID_IN) -> tuple[str, str]:
        """A tenant that has paid, with a database and a table: its path, and a token."""
        with self.access() as access:
            access.create_tenant(name, prepaid=True)
            access.top_up(name, units + PRICE, reference="first")
            made = access.create_token(name, environment="test", role="admin")
        token = "" if made is None else made.issued.text
        path = f"/v1/db/{name}/shop"
        self.served.call("PUT", path, token=token)
        assert self.served.query(path, TABLE, token=token).status == 200
        assert self.balance(name) == (units, 0)
        return path, token

    def reader(self, name: str) -> str:
        """A token that may only read."""
        with self.access() as access:
            made = access.create_token(name, environment="test", role="read")
        return "" if made is None else made.issued.text

    def balance(self, name: str) -> tuple[int, int]:
        """What is left, and what is reserved."""
        with self.access() as access:
            found = access.tenant(name)
        return (0, 0) if found is None else (found.balance or 0, found.reserved)

    def stop(self) -> None:
        """The end."""
        self.served.stop()


@pytest.fixture(scope="module", params=KINDS)
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """One service for each kind of store."""
    os.environ["ONCEWARD_PEPPER"] = PEPPER
    made = Shop(str(request.param), ending.folder("onceward-money-"))
    yield made
    made.stop()
    del os.environ["ONCEWARD_PEPPER"]


def crowd(calls: list[Callable[[], Heard]]) -> list[Heard]:
    """Make calls at once; their answers, in order."""
    heard: list[Any] = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def one(number: int) -> None:
        barrier.wait(60)
        heard[number] = calls[number]()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return heard


class TestSharedKeys:
    """Somebody else's attempt under the same key neither pays for mine nor takes my money back."""

    def test_a_reader_with_the_same_key_takes_nothing_back(self, shop: Shop) -> None:
        """
        A read token sends every write along, same key and same body: it is refused, every row is paid, and every
        writer hears of its row.
        """
        path, token = shop.tenant("mixed")
        reader = shop.reader("mixed")
        written, refused = [], []
        for start in range(0, KEYS, 10):
            numbers = range(start, start + 10)
            heard = crowd(
                [
                    lambda number=number, its=its: shop.served.query(  # type: ignore[misc]
                        path, INSERT, [f"e-{number}", "x"], key=f"k-{number}", token=its
                    )
                    for number in numbers
                    for its in (reader, token, reader)
                ]
            )
            written += heard[1::3]
            refused += [*heard[0::3], *heard[2::3]]
        rows = shop.served.query(path, "SELECT count(*) FROM events", token=token).document["rows"][0][0]

        assert {one.status for one in written} == {200}
        assert {(one.status, one.document["kind"]) for one in refused} == {(403, "readonly")}
        assert rows == KEYS
        assert shop.balance("mixed") == (PAID_IN - (KEYS + 1) * PRICE, 0)

    @pytest.mark.fault("money-a-reader-is-charged-first")
    def test_a_reader_is_refused_before_anything_is_charged(self, shop: Shop) -> None:
        """
        At zero, too, it hears that it may not write, and not that there is no money; in a batch, which statement.
        """
        path, _ = shop.tenant("reading", units=0)
        reader = shop.reader("reading")
        batch = {"statements": [{"sql": "SELECT 1"}, {"sql": "DELETE FROM events"}]}
        refused = shop.served.query(path, INSERT, ["e-1", "x"], key="k", token=reader)
        second = shop.served.call("POST", f"{path}/batch", batch, token=reader)
        reading = shop.served.query(path, "SELECT 1", token=reader)

        assert (refused.status, second.status) == (403, 403)
        assert (refused.document["kind"], second.document["statement"]) == ("readonly", 1)
        assert (reading.status, shop.balance("reading")) == (402, (0, 0))

    def test_a_crowd_under_one_key_pays_once_and_a_key_for_each_pays_for_each(self, shop: Shop) -> None:
        """
        Forty with one key: one row, one price, forty answers alike. Forty keys: forty rows, forty prices.
        """
        path, token = shop.tenant("crowded")
        same = crowd([lambda: shop.served.query(path, INSERT, ["same", "x"], key="same", token=token)] * CROWD)
        after = shop.balance("crowded")
        each = crowd(
            [
                lambda number=number: shop.served.query(  # type: ignore[misc]
                    path, INSERT, [f"e-{number}", "x"], key=f"k-{number}", token=token
                )
                for number in range(CROWD)
            ]
        )

        assert {(one.status, one.body) for one in same} == {(200, same[0].body)}
        assert after == (PAID_IN - PRICE, 0)
        assert {one.status for one in each} == {200}
        assert shop.balance("crowded") == (PAID_IN - (CROWD + 1) * PRICE, 0)

    def test_the_last_unit_is_spent_once_and_the_others_hear_402_or_the_result(self, shop: Shop) -> None:
        """
        One price is left and forty come with one key: nobody pays more than there is, and nobody hears anything else.
        """
        path, token = shop.tenant("last", units=PRICE)
        heard = crowd([lambda: shop.served.query(path, INSERT, ["last", "x"], key="last", token=token)] * CROWD)
        again = shop.served.query(path, INSERT, ["last", "x"], key="last", token=token)

        assert {one.status for one in heard} <= {200, 402}
        assert len({one.body for one in heard if one.status == 200}) == 1
        assert (again.status, again.headers["idempotency-replayed"]) == (200, "true")
        assert shop.balance("last") == (0, 0)


def paid(shop: Shop, name: str, act: Callable[[], Any]) -> int:
    """How many prices something cost."""
    before = shop.balance(name)[0]
    act()
    after, held = shop.balance(name)
    assert held == 0, "what has ended holds nothing"
    return (before - after) // PRICE


class TestPrices:
    """What costs what."""

    @pytest.mark.fault("money-what-failed-is-free")
    def test_what_ran_and_failed_costs_and_what_was_refused_before_does_not(self, shop: Shop) -> None:
        """
        A broken constraint, a result that is too large, an error that carries a row, a batch up to where it failed.
        What cannot be compiled, is not allowed, or is too long to be read costs nothing.
        """
        path, token = shop.tenant("prices")

        def query(sql: str, key: str | None = None) -> Callable[[], Heard]:
            return lambda: shop.served.query(path, sql, key=key, token=token)

        def batch(*sqls: str) -> Callable[[], Heard]:
            body = {"statements": [{"sql": sql} for sql in sqls]}
            return lambda: shop.served.call("POST", f"{path}/batch", body, token=token)

        good, twice = "SELECT 1", "INSERT INTO events VALUES ('e-1', 'secret')"
        leak = "CAST(name AS INTEGER)" if shop.kind == "sql" else "json_extract('{}', name)"
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
        assert paid(shop, "prices", query(twice)) == 1
        costs = {
            "constraint": paid(shop, "prices", query(twice, "k")),
            "leak": paid(shop, "prices", query(f"SELECT {leak} FROM events")),
            "many rows": paid(shop, "prices", query(endless)),
            "batch": paid(shop, "prices", batch(good, twice, good)),
            "syntax": paid(shop, "prices", query("SELEC")),
            "unknown": paid(shop, "prices", query("SELECT * FROM nowhere", "k")),
            "denied": paid(shop, "prices", query("BEGIN")),
            "too many": paid(shop, "prices", batch(*[good] * 101)),
            "no database": paid(shop, "prices", lambda: shop.served.query(f"{path}x", good, token=token)),
        }  # fmt: skip

        assert costs == {
            "constraint": 1,
            "leak": 1,
            "many rows": 1,
            "batch": 2,
            "syntax": 0,
            "unknown": 0,
            "denied": 0,
            "too many": 0,
            "no database": 0,
        }

    @pytest.mark.fault("money-words-of-a-trigger-are-free")
    def test_a_triggers_own_words_are_no_proof_that_nothing_ran(self, shop: Shop) -> None:
        """
        An error that looks like the compiler's, raised by a trigger, costs like any that ran.
        """
        if shop.kind == "sql":
            pytest.skip("tenants have no triggers on PostgreSQL")
        path, token = shop.tenant("actor")
        words = "CREATE TRIGGER t BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no such table: x'); END"
        assert shop.served.query(path, words, token=token).status == 200

        cost = paid(shop, "actor", lambda: shop.served.query(path, INSERT, ["e-1", "x"], token=token))

        assert cost == 1

    @pytest.mark.fault("money-a-replay-is-charged")
    def test_a_replay_costs_nothing_however_old_and_at_zero(self, shop: Shop) -> None:
        """
        Also when its reservation was forgotten long ago, and when nothing is left.
        """
        path, token = shop.tenant("replays", units=2 * PRICE)

        def insert() -> Heard:
            return shop.served.query(path, INSERT, ["e-1", "x"], key="k", token=token)

        first = insert()
        with shop.access() as access:
            while access.sweep().forgotten:
                pass
        forget(shop)
        again = [insert() for _ in range(3)]
        left = shop.balance("replays")
        shop.served.query(path, "SELECT 1", token=token)
        again.append(insert())
        refused = shop.served.query(path, INSERT, ["e-2", "x"], key="k2", token=token)

        assert (first.status, first.headers["onceward-usage"].split(", ")[:2]) == (200, ["cost=1000", "balance=1000"])
        assert left == (PRICE, 0)
        assert {(one.status, one.body, one.headers["idempotency-replayed"]) for one in again} == {
            (200, first.body, "true")
        }
        assert {one.headers["onceward-usage"].split(",")[0] for one in again} == {"cost=0"}
        assert (refused.status, refused.code, refused.document["retry"]) == (402, "balance_exhausted", "same-key")
        assert (refused.headers["retry-after"], "same key" in refused.document["detail"]) == ("60", True)
        assert refused.headers["onceward-usage"].startswith("cost=0, balance=0")
        assert shop.balance("replays") == (0, 0)


def forget(shop: Shop) -> None:
    """Forget every reservation that has ended, as time does."""
    with shop.access() as access:
        access._database.driver.transact("access.sweep", forget_all)


def forget_all() -> SqlSteps[None]:
    """Whatever has ended."""
    yield Sql("DELETE FROM onceward_reservations WHERE state <> 'open'", {})


def pass_time(shop: Shop, path: str, seconds: int = 1_000) -> None:
    """Let time pass for what is reserved, and for the records of a database."""

    def earlier() -> SqlSteps[None]:
        yield Sql(
            "UPDATE onceward_reservations SET opened_at = opened_at - :us, lapses_at = lapses_at - :us",
            {"us": seconds * 1_000_000},
        )

    older = f"UPDATE onceward_records SET settled_at = settled_at - {seconds * 1_000_000}"
    if shop.kind == "sql":
        with psycopg.connect(shop.url) as line:
            line.execute(older.encode())
    else:
        _, _, tenant, name = path.rsplit("/", 3)
        file = shop.folder / "databases" / namespace_of("test", tenant) / f"{name}.db"
        with closing(sqlite3.connect(file, timeout=60)) as connection, connection:
            connection.execute(older)
    # Last: as soon as a reservation has lapsed, the service itself may look at it.
    with shop.access() as access:
        access._database.driver.transact("access.sweep", earlier)


@contextmanager
def ran_in(shop: Shop) -> Iterator[RanLookup]:
    """What the records of a shop say about what ran."""
    if shop.kind != "sql":
        yield partial(find_ran, shop.folder / "databases")
        return
    with closing(SchemaRecords(shop.url)) as records:
        yield records.ran


KILLED = """
import sys
from onceward.cli import main
from onceward.runtime import failpoints
import onceward.service.access.effects
at, skip = sys.argv.pop(1), sys.argv.pop(1)
failpoints.arm(at, "kill", skip=int(skip))
sys.exit(main(sys.argv[1:]))
"""


POINTS = {
    "access.charge.before": False,
    "access.charge.written": False,
    "access.charge.after": False,
    "access.commit.before": True,
    "access.commit.written": True,
    "access.commit.after": True,
}
"""Where it is killed, and whether the statement ran by then."""


def kills() -> list[tuple[str, str]]:
    """Every point once, and the kinds by turns; with MONEY_KILLS=all, every kind at every point."""
    if os.environ.get("MONEY_KILLS") == "all":
        return [(kind, at) for at in POINTS for kind in KINDS]
    return [(KINDS[number % len(KINDS)], at) for number, at in enumerate(POINTS)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "at"), kills())
@pytest.mark.dose(1, each="kind")
def test_a_killed_service_is_paid_for_what_ran_and_only_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, at: str
) -> None:
    """
    kill -9 between reserve, run and commit. Sent again to the next service: one row and, once what the dead one held
    has lapsed, one price.
    """
    monkeypatch.setenv("ONCEWARD_PEPPER", PEPPER)
    # The table is the first that is charged.
    shop = Shop(kind, tmp_path, program=("-c", KILLED, at, "1"))
    try:
        path, token = shop.tenant("killed")
        with pytest.raises((OSError, HTTPException)):
            shop.served.query(path, INSERT, ["e-1", "x"], key="k", token=token)
        shop.served.process.wait(60)
        assert shop.served.stop() == -signal.SIGKILL
        shop.served = shop.start()
        again = shop.served.query(path, INSERT, ["e-1", "x"], key="k", token=token)
        rows = shop.served.query(path, "SELECT count(*) FROM events", token=token).document["rows"]
        pass_time(shop, path)
        with ran_in(shop) as found, Access.open(shop.url, ran=found) as access:
            access.sweep()

        assert (again.status, "idempotency-replayed" in again.headers, rows) == (200, POINTS[at], [[1]])
        assert shop.balance("killed") == (PAID_IN - 2 * PRICE, 0)
    finally:
        shop.stop()


@pytest.mark.fault("money-a-busy-file-says-that-nothing-ran")
def test_a_database_that_cannot_be_read_does_not_say_that_nothing_ran(tmp_path: Path) -> None:
    """
    It may have run just now, so that nobody gives money back for it; one that is gone says nothing.
    """
    place = tmp_path / "test-acme"
    place.mkdir()
    (place / "shop.db").write_bytes(b"no database" * 1_000)

    found = find_ran(tmp_path, [f"test-acme/shop/{'0' * 64}", f"test-acme/gone/{'0' * 64}"])

    assert list(found) == [f"test-acme/shop/{'0' * 64}"]
    assert found[f"test-acme/shop/{'0' * 64}"] < 60
