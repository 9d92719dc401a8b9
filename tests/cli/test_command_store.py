"""`onceward store`: making ready, looking over, moving forward."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from onceward import Gate


def test_a_store_is_made_ready_and_again_does_no_harm(folder: Path, run: Any) -> None:
    """
    The second time everything is there already, records included.
    """
    first = run("store", "init", "--store", "sqlite:///agent.db")
    with Gate("sqlite:///agent.db", scope="live:acme") as gate:
        gate.run("job:1", lambda: 1)

    second = run("store", "init", "--store", "sqlite:///agent.db", "--json")

    assert (first.code, second.code) == (0, 0)
    assert {"ready": True, "at": str((folder / "agent.db").resolve())} == second.document
    assert len(run("records", "list", "--store", "sqlite:///agent.db", "--json").document["records"]) == 1


@pytest.mark.fault("cli-check-healthy-in-doubt")
def test_a_store_is_counted_and_not_healthy_while_somebody_is_needed(
    gate: Gate, claimed: Any, doubted: Any, run: Any
) -> None:
    """
    By the states that people see, with the oldest record in doubt. While that waits for a decision, the answer is no.
    """
    gate.run("job:1", lambda: 1)
    doubted()
    oldest = claimed("dead:1", seconds_ago=7_200)

    ran = run("store", "check", "--json")

    assert (ran.code, ran.document["healthy"]) == (1, False)
    assert [one["subject"] for one in ran.document["waiting"]] == ["in doubt"]
    assert "onceward records list --in-doubt" in run("store", "check").out
    assert ran.document["records"] == {"in_doubt": 2, "settled": 1}
    assert ran.document["inDoubt"] == 2
    assert oldest.id.hex()[:12] == ran.document["oldestInDoubt"]["digest"]
    assert {"damage", "schema", "journal", "synchronous"} <= {one["name"] for one in ran.document["checks"]}
    assert oldest.id.hex()[:12] in run("store", "check").out


def test_a_problem_makes_the_answer_no(store: str, folder: Path, run: Any) -> None:
    """
    A file that others may read is one: exit code 1, and which check it was.
    """
    (folder / "agent.db").chmod(0o644)

    ran = run("store", "check", "--json")

    assert (ran.code, ran.document["healthy"]) == (1, False)
    assert [one["name"] for one in ran.document["checks"] if not one["ok"]] == ["mode"]
    assert "PROBLEM" in run("store", "check").out


def test_a_store_of_this_version_does_not_move(store: str, run: Any) -> None:
    """
    Migrating again does no harm.
    """
    ran = run("store", "migrate", "--json")

    assert ran.code == 0
    assert (False, ran.document["before"]) == (ran.document["moved"], ran.document["after"])


@pytest.mark.parametrize("command", [["store", "check"], ["store", "migrate"], ["records", "list"]])
def test_a_store_of_a_later_version_is_refused(command: list[str], store: str, folder: Path, run: Any) -> None:
    """
    Half understood is worse than an error: exit code 4, and what to do.
    """
    connection = sqlite3.connect(folder / "agent.db")
    connection.execute("UPDATE onceward_meta SET value = 99 WHERE name = 'schema_version'")
    connection.commit()
    connection.close()

    ran = run(*command)

    assert ran.code == 4
    assert "upgrade" in ran.err


@pytest.mark.parametrize("command", [["store", "init"], ["store", "check"], ["store", "migrate"], ["records", "list"]])
def test_a_file_that_is_no_store_is_refused(command: list[str], folder: Path, run: Any) -> None:
    """
    Exit code 4, one line, and the file is left as it was.
    """
    (folder / "notes.txt").write_text("my notes, " * 1_000)

    ran = run(*command, "--store", "sqlite:///notes.txt")

    assert (ran.code, len(ran.err.splitlines())) == (4, 1)
    assert (folder / "notes.txt").read_text() == "my notes, " * 1_000


@pytest.mark.parametrize(
    "command",
    [
        ["store", "check"],
        ["store", "migrate"],
        ["records", "list"],
        ["records", "purge"],
        ["records", "show", "abcdef"],
    ],
)
def test_a_mistyped_path_makes_no_empty_store(command: list[str], folder: Path, run: Any) -> None:
    """
    An empty store in which nothing is in doubt would be a wrong answer; the message says how to make one.
    """
    ran = run(*command, "--store", "sqlite:///agnet.db")

    assert ran.code == 2
    assert "`onceward store init --store sqlite:///agnet.db` makes it" in ran.err
    assert list(folder.iterdir()) == []


def test_a_memory_store_needs_nothing(folder: Path, run: Any) -> None:
    """
    It lives as long as its process, so there is nothing to make, move or mend.
    """
    codes = [run("store", verb, "--store", "memory://").code for verb in ("init", "check", "migrate")]

    assert codes == [0, 0, 0]
