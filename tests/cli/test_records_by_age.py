"""`records list` for somebody who was woken up, and `records decide`: everything in doubt, by a probe."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import server_stores as stores

from onceward import Gate
from onceward.gate.operator_actions import id_of_key

SCOPE = "live:acme"

PROBES = """
import onceward

def says(record):
    if record.key.endswith("yes"):
        return onceward.Found({"found": record.operation})
    if record.key.endswith("no"):
        return onceward.NOT_FOUND
    if record.key.endswith("bad"):
        raise LookupError("the bank is closed")
    return None

def overtaken(record):
    gate = onceward.Gate("sqlite:///agent.db", scope="live:acme")
    gate.reconcile(record.key.removeprefix("live:"), onceward.NOT_FOUND)
    def fail():
        raise RuntimeError("again")
    try:
        gate.run(record.key.removeprefix("live:"), fail)
    except RuntimeError:
        pass
    gate.close()
    return onceward.NOT_FOUND

number = 3
"""


@pytest.fixture(params=stores.wanted())
def kind(request: pytest.FixtureRequest) -> str:
    """Every kind of store."""
    return str(request.param)


@pytest.fixture
def probes(shop: Any, folder: Path) -> None:
    """A module `probes` in the folder, and the folder on the path while the test runs."""
    (folder / "probes.py").write_text(PROBES)


@pytest.mark.fault("cli-records-by-hash")
def test_what_is_in_doubt_is_listed_by_age(claimed: Any, doubted: Any, run: Any) -> None:
    """
    The oldest first, over pages, with its age; exit code 1 only where that is asked for.
    """
    ages = {f"order:{number}": 7_200 + 60 * ((number * 7) % 11) for number in range(11)}
    for key, seconds in ages.items():
        claimed(key, seconds_ago=seconds)
    expected = [f"live:{key}" for key in sorted(ages, key=lambda one: -ages[one])]
    doubted("newest")

    listed: list[str] = []
    after: list[str] = []
    while True:
        page = run("records", "list", "--in-doubt", "--json", "--limit", "4", *after).document
        listed += [one["key"] for one in page["records"]]
        if page["next"] is None:
            break
        after = ["--after", page["next"]]

    assert listed == [*expected, "live:newest"]
    assert run("records", "list", "--in-doubt").code == 0
    assert run("records", "list", "--in-doubt", "--fail-if-any").code == 1
    assert run("records", "list", "--state", "claimed", "--fail-if-any").code == 0
    older = run("records", "list", "--in-doubt", "--older-than", "3600", "--json").document["records"]
    assert [one["key"] for one in older] == expected


def test_a_row_says_how_old_who_and_why(doubted: Any, run: Any) -> None:
    """
    Age, holder, operation and failure stand before scope and key.
    """
    doubted(name="charge", message="the bank hung up")

    heading, row = run("records", "list", "--in-doubt").out.splitlines()

    assert heading.split()[:6] == ["DIGEST", "STATE", "AGE", "OPERATION", "HOLDER", "FAILURE"]
    assert "RuntimeError: the bank hung up" in row
    assert f":{os.getpid()} " in row
    assert re.search(r"in_doubt\s+\d+ s\s+charge\s", row)


def test_a_scope_that_was_mistyped_is_named(doubted: Any, given_up: Any, run: Any) -> None:
    """
    Wherever a scope is given and nothing is found.
    """
    doubted()
    given_up()

    for typed in (["records", "list", "--in-doubt"], ["records", "list"], ["dead", "list"]):
        ran = run(*typed, "--scope", "live:acmee")
        assert (ran.code, "Did you mean live:acme?" in ran.err) == (0, True), typed
        assert "Did you mean" not in run(*typed, "--scope", "test:nowhere-at-all").err


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("--order age", "only what is in flight can be listed by age"),
        ("--older-than 5", "--older-than is for what is in flight"),
        ("--in-doubt --state settled", "leave it out, or --state settled"),
        ("--in-doubt --after zzz", "what the previous page printed"),
    ],
)
def test_what_cannot_be_listed_says_why(typed: str, says: str, store: str, run: Any) -> None:
    """
    Exit code 2.
    """
    ran = run("records", "list", *typed.split())

    assert (ran.code, says in ran.err) == (2, True), ran.err


def test_commands_name_the_store_as_it_was_named(doubted: Any, run: Any, store: str, monkeypatch: Any) -> None:
    """
    With --store they have it; a password in it is not repeated.
    """
    digest = doubted().id.hex()[:12]
    monkeypatch.delenv("ONCEWARD_STORE")

    shown = run("records", "show", digest, "--store", store).out

    secret = "password" in store or re.search(r"://[^/]*:[^/@]+@", store)
    assert ("--store" in shown) == (not secret)


class TestByProbe:
    """Everything in doubt, decided by a function that looks where the effects are."""

    @pytest.mark.fault("cli-a-dry-run-decides")
    def test_a_dry_run_decides_nothing(self, doubted: Any, probes: None, run: Any, gate: Gate) -> None:
        """
        It shows what the probe says, and what to type.
        """
        doubted("one:yes")

        ran = run("records", "decide", "--probe", "probes:says", "--all-in-doubt")

        assert ran.code == 0
        assert "happened" in ran.out
        assert "onceward records decide --probe probes:says --all-in-doubt --yes" in ran.err
        assert gate.records.get("one:yes").state == "in_doubt"

    def test_each_is_decided_as_the_probe_says(
        self, doubted: Any, probes: None, run: Any, gate: Gate, kind: str
    ) -> None:
        """
        Found, not found, cannot say, raised: two are decided and each is in the log, two are left, and the exit code is
        1 because of these.
        """
        for end in ("yes", "no", "maybe", "bad"):
            doubted(f"one:{end}")

        typed = ("records", "decide", "--probe", "probes:says", "--all-in-doubt", "--yes", "--reason", "outage 12")
        ran = run(*typed, "--json")

        assert ran.code == 1
        assert ran.document["counts"] == {"happened": 1, "did not happen": 1, "cannot say": 1, "probe failed": 1}
        assert gate.records.get("one:yes").result == {"found": "charge"}
        states = {end: gate.records.get(f"one:{end}").state for end in ("yes", "no", "maybe", "bad")}
        assert states == {"yes": "settled", "no": "released", "maybe": "in_doubt", "bad": "in_doubt"}
        assert "LookupError: the bank is closed" in json.dumps(ran.document)
        if kind != "redis":  # It has no tables for a log.
            found = run("audit", "list", "--json").document["decisions"]
            assert {one["action"] for one in found} == {"record.reconcile", "record.release"}
            assert {one["reason"] for one in found} == {"outage 12"}

    def test_options_choose(self, doubted: Any, claimed: Any, probes: None, run: Any) -> None:
        """
        By operation, age, scope and number.
        """
        doubted("one:yes", name="charge")
        doubted("two:yes", name="mail")
        claimed("old:yes", seconds_ago=7_200)

        def digests(*options: str) -> set[str]:
            ran = run("records", "decide", "--probe", "probes:says", "--all-in-doubt", "--json", *options)
            return {one["digest"] for one in ran.document["records"]}

        def digest(key: str) -> str:
            return id_of_key(SCOPE, key).hex()[:12]

        assert digests("--operation", "mail") == {digest("two:yes")}
        assert digests("--older-than", "3600") == digests("--limit", "1") == {digest("old:yes")}
        assert digests("--scope", "live:other") == set()

    @pytest.mark.parametrize(
        ("typed", "says"),
        [
            ("--probe probes:says", "add --all-in-doubt"),
            ("--probe probes --all-in-doubt", "MODULE:NAME"),
            ("--probe nowhere:says --all-in-doubt", "there is no module 'nowhere'"),
            ("--probe probes:nothing --all-in-doubt", "probes has no 'nothing'"),
            ("--probe probes:number --all-in-doubt", "name a function"),
        ],
    )
    def test_what_is_no_probe_is_refused(self, typed: str, says: str, probes: None, store: str, run: Any) -> None:
        """
        Exit code 2, and nothing is looked at.
        """
        ran = run("records", "decide", *typed.split())

        assert (ran.code, says in ran.err) == (2, True), ran.err


class TestSomebodyComesInBetween:
    """On a file, so that the probe can open it, too."""

    @pytest.fixture
    def kind(self) -> str:
        return "sqlite"

    @pytest.mark.fault("cli-probe-decides-a-later-attempt")
    def test_a_later_attempt_is_left_alone(self, doubted: Any, probes: None, run: Any, gate: Gate) -> None:
        """
        While the probe looks, the operation is released, runs again and is in doubt again: that is another attempt.
        """
        before = doubted("one:x")

        ran = run("records", "decide", "--probe", "probes:overtaken", "--all-in-doubt", "--yes", "--json")

        after = gate.records.get("one:x")
        assert (ran.code, ran.document["counts"]) == (1, {"changed": 1})
        assert after.state == "in_doubt"
        assert after.fence > before.fence
