"""Up, down and up: printed, and rehearsed on a copy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from migrate_subject import Subject, expected

AWKWARD = "Ex%s :p\"en'ses; --"


@pytest.mark.requirement("B29")
def test_up_down_and_up_are_printed_and_run(subject: Subject, typed: Any) -> None:
    """
    Down takes everything back and leaves the rows; the second up makes the same keys.
    """
    subject.expenses(20)
    words = ("generate", "expenses", "--database", subject.url)
    up, down = typed(*words).out, typed(*words, "--down").out
    shapes = [subject.shape()]

    for script in (up, down, up):
        subject.script(script)
        shapes.append(subject.shape())

    assert shapes[2] == shapes[0]
    assert shapes[3] == shapes[1]
    assert subject.stored_keys() == expected(range(1, 21))


def test_what_was_applied_is_taken_back_by_what_is_printed(subject: Subject, typed: Any) -> None:
    """
    Applying leaves a check on PostgreSQL that the printed migration does not have; down takes it away as well.
    """
    subject.expenses(20)
    before = subject.shape()
    subject.apply()

    subject.script(typed("generate", "expenses", "--database", subject.url, "--down").out)

    assert subject.shape() == before


@pytest.mark.requirement("B29")
@pytest.mark.fault("migrate-rehearses-on-the-table")
def test_a_rehearsal_is_on_a_copy_and_shows_the_differences(subject: Subject, typed: Any) -> None:
    """
    Up, down and up succeed there; the table itself is as it was, and nothing of the copy is left.
    """
    subject.expenses(30)
    before = subject.shape()

    ran = typed("apply", "expenses", "--database", subject.url, "--rehearse", "--json")

    found = json.loads(ran.out)
    assert (ran.code, found["good"], found["down"], found["again"]) == (0, True, [], [])
    assert any("expenses_worker_idem_key" in line for line in found["up"])
    assert all(line.startswith("+ ") for line in found["up"])
    assert subject.shape() == before
    if subject.kind == "postgres":
        assert subject.run("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'onceward%'") == []


def test_a_rehearsal_of_a_large_table_is_refused(subject: Subject, typed: Any) -> None:
    """
    The copy has a limit; the message says how large the table is, and how to allow more.
    """
    subject.expenses(30)
    before = subject.shape()

    ran = typed("apply", "expenses", "--database", subject.url, "--rehearse", "--copy-max", "1000")

    assert (ran.code, "--copy-max" in ran.err) == (2, True)
    assert subject.shape() == before


def test_a_table_on_its_way_is_rehearsed_and_left_there(subject: Subject, typed: Any) -> None:
    """
    The copy begins from before the migration; the table keeps its columns.
    """
    subject.expenses(10)
    typed("apply", "expenses", "--database", subject.url, "--until", "add")
    before = subject.shape()

    ran = typed("apply", "expenses", "--database", subject.url, "--rehearse")

    assert (ran.code, "no difference" in ran.out) == (0, True)
    assert subject.shape() == before


def test_names_that_need_quoting_are_quoted(subject: Subject, typed: Any) -> None:
    """
    Quotes, blanks, colons, percent signs and a comment: applied, printed, taken back and rehearsed.
    """
    quoted = '"' + AWKWARD.replace('"', '""') + '"'
    subject.expenses(10, quoted)
    words = (AWKWARD, "--database", subject.url)

    up, down = typed("generate", *words).out, typed("generate", *words, "--down").out
    subject.script(up)
    subject.script(down)
    rehearsed = typed("apply", *words, "--rehearse")
    applied = typed("apply", *words)

    assert (rehearsed.code, applied.code) == (0, 0), applied.err
    assert subject.stored_keys(quoted) == expected(range(1, 11))


def test_nothing_is_left_of_a_copied_file(tmp_path: Path, subject: Subject, typed: Any) -> None:
    """
    Beside the database there is nothing new.
    """
    subject.expenses(10)
    before = sorted(one.name for one in tmp_path.iterdir())

    typed("apply", "expenses", "--database", subject.url, "--rehearse")

    assert {one.name for one in tmp_path.iterdir()} <= {*before, "app.db-wal", "app.db-shm"}
