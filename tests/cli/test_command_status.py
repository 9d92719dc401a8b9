"""`onceward status`: whether anybody is needed, on every store, with killed holders, doubt and dead letters in it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import server_stores as stores

from onceward import Breaker, Gate
from onceward._core.record import FRESH, Claimant, claim, settle
from onceward._core.store_protocols import Selection
from onceward.gate.operator_actions import id_of_key
from onceward.overview import Level, look_over
from onceward.overview.record_overview import look_at_purge
from onceward.stores import open_store

pytestmark = pytest.mark.dose(1, of="kind")

SCOPE = "live:acme"


@pytest.fixture(params=stores.wanted())
def kind(request: pytest.FixtureRequest) -> str:
    """Every kind of store."""
    return str(request.param)


def put_ended(store: Any, key: str) -> None:
    """An operation that ended, put without a gate, which would purge now and then."""
    id = id_of_key(SCOPE, key)
    claimant = Claimant(id, "key", SCOPE, f"live:{key}", "", None, "blind", b"\x01" * 33, 60_000_000, 0, False)
    held = store.put(claim(claimant, FRESH, token=b"t" * 16, version=b"v" * 16), None).record
    end = settle(held, version=b"w" * 16, replay=86_400_000_000, forget=2_678_400_000_000, codec=None, result=None)
    assert store.put(end, held.version).landed


def levels(document: Any) -> dict[str, str]:
    """How each subject is."""
    return {one["subject"]: one["level"] for one in document["findings"]}


def test_nobody_is_needed_where_nothing_waits(gate: Gate, run: Any) -> None:
    """
    Exit code 0, and said in words.
    """
    gate.run("job:1", lambda: 1)

    ran, document = run("status"), run("status", "--json").document

    assert (ran.code, ran.out.splitlines()[-1]) == (0, "Nothing needs attention.")
    assert document["needed"] is False
    assert set(levels(document).values()) == {"fine"}
    assert document["purge"]["records"] == {"number": 1, "estimated": False}


@pytest.mark.fault("overview-doubt-is-fine")
def test_doubt_needs_somebody_the_oldest_first(doubted: Any, claimed: Any, run: Any) -> None:
    """
    What raised and what a killed holder left; the exit code is 1, and the command to type is there.
    """
    doubted()
    oldest = claimed("killed:1", seconds_ago=7_200)
    claimed("runs:1")
    claimed("again:1", seconds_ago=7_200, guarantee="repeatable")

    ran, document = run("status"), run("status", "--json").document

    assert ran.code == 1
    assert "2 wait for a decision, the oldest for 2 h" in ran.out
    assert "onceward records list --in-doubt" in ran.out
    assert ran.out.splitlines()[-1] == "Action needed: in doubt."
    assert document["inDoubt"]["oldest"][0]["digest"] == oldest.id.hex()[:12]
    assert (document["inDoubt"]["number"], document["inFlight"]["number"]) == (2, 1)
    assert document["inFlight"]["lapsed"] == {"number": 1, "atLeast": False}


@pytest.mark.fault("overview-dead-letters-have-no-family")
def test_dead_letters_are_found_by_their_index(given_up: Any, gate: Gate, run: Any, kind: str, store: str) -> None:
    """
    Among other records, and without reading those: the family has the letter and nothing else. Discarded, it is gone.
    """
    for number in range(20):
        gate.run(f"job:{number}", lambda: 1)
    letter = given_up()

    ran = run("status", "--json")

    assert (ran.code, levels(ran.document)["dead letters"]) == (1, "needed")
    assert ran.document["deadLetters"]["operations"] == {"number": 1, "atLeast": False}
    with closing(open_store(store)) as opened:
        seen = opened.load(bytes.fromhex(letter.id))
        assert seen is not None
        assert [one.id for one in opened.scan(b"", 100, Selection(family=seen.family))] == [seen.id]
    assert run("dead", "discard", letter.digest, "--yes").code == 0
    assert run("status").code == 0


def test_an_open_breaker_is_shown_and_needs_nobody(gate: Gate, run: Any) -> None:
    """
    It tries again by itself.
    """
    breaker = Breaker.shared(gate.store, "billing", threshold=1, recovery=600)

    def fail() -> None:
        raise ConnectionRefusedError("no")

    with pytest.raises(ConnectionRefusedError):
        breaker.call(fail)
    ran = run("status")

    assert ran.code == 0
    assert "billing (live:shared) is open, tried again in 0:" in ran.out


@pytest.mark.fault("overview-purge-keeps-up")
def test_a_purge_that_is_behind_needs_somebody(gate_at: Any, run: Any) -> None:
    """
    Records that should have gone days ago. The command that is shown helps.
    """
    long_ago = gate_at(40 * 86_400).store
    for number in range(12):
        put_ended(long_ago, f"job:{number}")
    before = run("status", "--json")

    assert run("records", "purge", "--all").code == 0
    assert (before.code, before.document["purge"]["behind"]) == (1, True)
    assert run("status").code == 0


@pytest.mark.fault("overview-put-back-is-not-noticed")
def test_a_store_that_forgot_needs_somebody(gate: Gate, run: Any) -> None:
    """
    A claim vanishes while it is held (a failover lost it): its ending is put back, and somebody is told.
    """

    def forgotten() -> str:
        gate.store.erase([id_of_key(SCOPE, "charge:1")])
        return "done"

    assert gate.run("charge:1", forgotten) == "done"
    ran = run("status")

    assert ran.code == 1
    assert "the store forgot 1 claim while it was held" in ran.out
    assert gate.records.get("charge:1").result == "done"


def test_a_walk_sees_every_id_once(store: str, run: Any) -> None:
    """
    At the borders of the sixteen slices, too, and where one ends.
    """
    ids = [bytes([first]) + last * 31 for first in range(0, 256, 8) for last in (b"\0", b"\xff")]
    with closing(open_store(store)) as opened:
        for number, id in enumerate(ids):
            claimant = Claimant(id, "key", SCOPE, f"k:{number}", "", None, "blind", b"\x01" * 33, 60_000_000, 0, False)
            assert opened.put(claim(claimant, FRESH, token=b"t" * 16, version=b"v" * 16), None).landed
        shares: list[float] = []
        seen = look_over(store, store=opened, progress=shares.append)

    assert seen.records.in_flight.total.number == len(ids)
    assert shares[0] == 0
    assert shares[-1] == 1
    assert shares == sorted(shares)


class TestMessages:
    """The outbox and the inbox beside a SQLite store."""

    @pytest.fixture
    def kind(self) -> str:
        return "sqlite"

    @pytest.mark.fault("overview-a-late-relay-is-fine")
    def test_messages_that_nobody_takes_need_somebody(self, store: str, outgoing: str, run: Any, folder: Path) -> None:
        """
        A dead letter, a disabled endpoint, and messages for another one that have been due for years: each is a line.
        """
        database = sqlite3.connect(folder / "agent.db")
        database.execute(
            """INSERT INTO onceward_outbox_messages (id, endpoint, topic, payload, content_type, headers, created_at,
            due_at) VALUES ('msg_1', 'crm', 't', x'31', 'application/json', '{}', 1000000, 1000000)"""
        )
        database.commit()
        database.close()

        ran, document = run("status"), run("status", "--json").document

        assert ran.code == 1
        assert "1 message given up" in ran.out
        assert "billing has been disabled since" in ran.out
        assert "onceward relay enable billing" in ran.out
        assert "messages for crm have been due for" in ran.out
        assert (document["relay"]["late"], document["relay"]["disabled"]) == (["crm"], ["billing"])
        assert document["deadLetters"]["messages"]["number"] == 1

    def test_an_event_that_was_given_up_is_a_dead_letter(self, given_up_event: None, run: Any) -> None:
        """
        Counted once, listed among the others, and requeued by its digest alone.
        """
        counted = run("status", "--json").document["deadLetters"]
        [letter] = run("dead", "list", "--of", "events", "--json").document["letters"]
        shown = run("dead", "show", letter["digest"]).out
        requeued = run("dead", "requeue", letter["digest"])

        assert (counted["events"]["number"], counted["operations"]["number"]) == (1, 0)
        assert letter["of"] == "event"
        assert f"onceward dead requeue {letter['digest']}" in shown
        assert (requeued.code, "processes it" in requeued.out) == (0, True)
        assert run("hooks", "list", "--json").document["sources"][0]["waiting"] == 1

    def test_the_statements_go_by_an_index(self, store: str, outgoing: str, given_up_event: None, folder: Path) -> None:
        """
        No statement about messages or events reads the whole table: SQLite says so of each.
        """
        from onceward.overview import message_overview as texts

        for file, names in (
            ("agent.db", ("_WAITING", "_FRONT", "_DEAD", "_ENDPOINTS")),
            ("agent.inbox.db", ("_EVENTS",)),
        ):
            database = sqlite3.connect(folder / file)
            for name in names:
                values = {"endpoint": "x", "limit": 1, "front": 1, "now": 1}
                plan = database.execute(f"EXPLAIN QUERY PLAN {getattr(texts, name)}", values).fetchall()
                tables = [row[3] for row in plan if "onceward_" in row[3] or " m " in f"{row[3]} "]
                assert tables
                assert all("INDEX" in one for one in tables), (name, tables)
            database.close()


def test_a_sample_says_about_how_many_there_are(folder: Path) -> None:
    """
    Ids are hashes: five hundred of four thousand tell the number to within a fifth.
    """
    with closing(open_store("memory://")) as store:
        for number in range(4_000):
            put_ended(store, f"job:{number}")
        seen = look_at_purge(store)

    assert seen.sampled == 500
    assert not seen.records.exact
    assert 3_200 <= seen.records.number <= 4_800


def test_levels_are_for_programs_too() -> None:
    """
    The words in the JSON are these three.
    """
    assert [one.value for one in Level] == ["fine", "watch", "needed"]
