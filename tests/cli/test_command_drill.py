"""`onceward drill`: what it prints, its exit codes, and what it refuses."""

from __future__ import annotations

import json
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

SHOP = """
import sqlite3


def charge(order):
    with sqlite3.connect("shop.db") as database:
        database.execute("CREATE TABLE IF NOT EXISTS orders (name)")
        database.execute("INSERT INTO orders VALUES (?)", (order,))
    database.close()
"""


@pytest.mark.requirement("B35")
@pytest.mark.fault("drill-a-second-insert-counts-as-one")
def test_retry_prints_what_each_attempt_affected(folder: Path, run: Any) -> None:
    """
    Affected 1, 0, 0, and a count of 1 after each.
    """
    ran = run("drill", "retry", "--times", "3")

    assert (ran.code, ran.err) == (0, "")
    assert [line.split() for line in ran.out.splitlines()[-6:]] == [
        ["ATTEMPT", "AFFECTED", "COUNT"],
        ["1", "1", "1"],
        ["2", "0", "1"],
        ["3", "0", "1"],
        [],
        ["PERMITTED"],
    ]


@pytest.mark.requirement("B36")
@pytest.mark.fault("drill-without-a-guard-is-permitted")
def test_without_the_constraint_it_fails_loudly(folder: Path, run: Any) -> None:
    """
    Two inserts, two rows, exit code 1, and nobody can overlook it.
    """
    ran = run("drill", "retry", "--times", "2", "--guard", "off")

    assert ran.code == 1
    assert ["2", "1", "2"] in [line.split() for line in ran.out.splitlines()]
    assert "!!! BLOCKED\n!!! retry: does not hold: each operation has one effect" in ran.out


def test_the_evidence_is_written_and_verified_and_an_edited_one_found_out(folder: Path, run: Any) -> None:
    """
    `--json` and `--bundle` are one document; `--verify` computes digest and verdict again.
    """
    made = run("drill", "changed-body", "retry", "--seed", "7", "--json", "--bundle", "drill.json")
    whole = run("drill", "--verify", "drill.json")
    document = json.loads(Path("drill.json").read_text())
    document["proofs"][1]["guarded"]["counts"] = [1, 1, 2]
    Path("drill.json").write_text(json.dumps(document))
    edited = run("drill", "--verify", "drill.json")
    for_programs = run("drill", "--verify", "drill.json", "--json")

    assert made.document["digest"] == document["digest"]
    assert (made.document["seed"], made.document["chosen"]) == (7, ["changed-body", "retry"])
    assert (whole.code, whole.out.splitlines()[-1]) == (0, "PERMITTED")
    assert edited.code == 1
    assert edited.out.splitlines() == [
        "wrong: the digest does not match: the bundle was edited after it was made",
        "wrong: retry: the bundle says that it holds; its numbers say otherwise. does not hold: the count is 1 "
        "after each insert (operations 1, effects 1, affected [1, 0, 0], counts [1, 1, 2])",
        "wrong: the bundle gives the verdict as PERMITTED; the numbers say BLOCKED",
        "",
        "NOT VERIFIED",
    ]
    assert (for_programs.code, for_programs.document["whole"], for_programs.document["verdict"]) == (1, False, None)


def test_a_blocked_bundle_that_is_whole_is_still_no_permit(folder: Path, run: Any) -> None:
    """
    Verified, and blocked: exit code 1.
    """
    run("drill", "retry", "--guard", "off", "--bundle", "drill.json")
    ran = run("drill", "--verify", "drill.json")

    assert ran.code == 1
    assert "digest and numbers match" in ran.out
    assert "!!! BLOCKED" in ran.out


def test_the_list_names_every_proof_and_its_control(folder: Path, run: Any) -> None:
    """
    For people, and for programs.
    """
    text, document = run("drill", "list"), run("drill", "list", "--json").document

    assert [line.split()[0] for line in text.out.splitlines()[1:]] == [one["name"] for one in document]
    assert len(document) == 13


class TestATarget:
    """A function of somebody's own."""

    @pytest.fixture
    def shop(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "drill_me.py").write_text(SHOP)

    @pytest.mark.usefixtures("shop")
    def test_needs_to_be_told_that_it_really_runs(self, run: Any) -> None:
        """
        Without --yes nothing is run, and how often it would be is said.
        """
        ran = run("drill", "--target", "drill_me:charge", "--args", '["o-{n}"]', "--watch", "file:shop.db")

        assert ran.code == 2
        assert "this really runs drill_me:charge, up to 142 times" in ran.err
        assert "add --yes" in ran.err
        assert not Path("shop.db").exists()

    @pytest.mark.usefixtures("shop")
    def test_that_doubles_is_blocked_with_its_line(self, run: Any) -> None:
        """
        The line that has the effect, in the verdict; and the notice first.
        """
        Path("shop.db").touch()
        words = ("--target", "drill_me:charge", "--args", '["o-{n}"]', "--watch", "rows:sqlite:///shop.db:orders")
        absent = run("drill", *words, "--yes")
        with closing(sqlite3.connect("shop.db")) as database:
            database.execute("CREATE TABLE orders (name)")
        ran = run("drill", *words, "--yes", "--points", "1")

        assert absent.code == 2
        assert "no such table: orders" in absent.err
        assert ran.code == 1
        assert ran.err.startswith("this really runs drill_me:charge, up to 25 times")
        assert "line 6 doubles: with sqlite3.connect" in ran.out

    @pytest.mark.parametrize(
        ("typed", "says"),
        [
            ("drill rerty", "there is no proof 'rerty'. Did you mean retry? `onceward drill list` lists them"),
            ("drill retry --times 0", "from 1 to 1000"),
            ("drill retry --seed -1", "from 1 to"),
            ("drill retry --store sqlite:///nowhere.db", "there is no file nowhere.db"),
            ("drill retry --store mongodb://x", "no store is called mongodb://"),
            ("drill retry --watch file:x", "go with --target"),
            ("drill --target charge --watch file:x", "--target takes MODULE:FUNCTION"),
            ("drill --target a:b", "--target needs --watch"),
            ("drill retry --target a:b --watch file:x", "leave out the names of proofs and --store"),
            ("drill --target a:b --watch x --yes", "--watch names what your function changes"),
            ("drill --target a:b --watch file:x --args '{'", "takes JSON"),
            ("drill --target a:b --watch file:x --args 3", "a JSON array, or an object"),
            ("drill --target a:b --watch file:x --limit 0", "a number of seconds up to"),
            ("drill --verify nowhere.json", "cannot read the bundle 'nowhere.json'"),
            (
                "drill retry --bundle nowhere/drill.json",
                "cannot write nowhere/drill.json: the folder nowhere does not exist",
            ),
        ],
    )
    def test_what_is_wrong_is_refused(self, typed: str, says: str, folder: Path, run: Any) -> None:
        """
        One line, exit code 2.
        """
        ran = run(*shlex.split(typed))

        assert (ran.code, len(ran.err.splitlines())) == (2, 1)
        assert says in ran.err
