"""A row's idempotency key leads to its attempts, also where record and row committed together."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from onceward import ConfigurationError, Gate, insert_once
from onceward.cli import main
from onceward.journal import Journal

SCOPE = "live:acme"


@pytest.fixture
def booked(tmp_path: Path) -> tuple[str, str]:
    """A row that was written in atomic mode, while a journal listened: the URL, and the row's idempotency key."""
    path = tmp_path / "agent.db"
    url = f"sqlite:///{path}"
    mine = sqlite3.connect(path)
    mine.execute("CREATE TABLE expenses (amount TEXT, idempotency_key TEXT UNIQUE)")
    mine.commit()
    with Journal(url, scope=SCOPE, worker="w-1") as journal, Gate(url, scope=SCOPE) as gate:
        gate.listen(journal.listener())

        def book(operation: Any) -> int:
            row = {"amount": "12.50", "idempotency_key": operation.key}
            return insert_once(mine, "expenses", row, key=["idempotency_key"])

        gate.atomic(mine, "expense:1", book, name="book")
        gate.atomic(mine, "expense:2", book, name="book")
    [(key,)] = mine.execute("SELECT idempotency_key FROM expenses LIMIT 1").fetchall()
    mine.close()
    return url, key


@pytest.mark.fault("atomic-runs-tell-nobody")
def test_the_journal_is_asked_by_the_key_of_a_row(booked: tuple[str, str]) -> None:
    """
    One attempt, executed; by its digest it is the same one.
    """
    url, key = booked
    with Journal(url, scope=SCOPE, worker="w-1") as journal:
        found = journal.calls(key=key)
        same = journal.calls(digest=found[0].digest) if found else []
        with pytest.raises(ConfigurationError, match="not both"):
            journal.calls(key=key, digest="0" * 12)

    assert [(one.tool, one.outcome) for one in found] == [("book", "executed")]
    assert same == found


def test_the_command_line_is_asked_so_too(booked: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """
    With the scope that the key belongs to; without it there is nothing to find it by.
    """
    url, key = booked
    code = main(["journal", "list", "--scope", SCOPE, "--key", key, "--json", "--store", url])
    found = json.loads(capsys.readouterr().out)["attempts"]
    refused = main(["journal", "list", "--key", key, "--store", url])
    said = capsys.readouterr().err

    assert (code, [one["tool"] for one in found]) == (0, ["book"])
    assert refused == 2
    assert "--scope" in said
