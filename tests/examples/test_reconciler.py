"""The Reconciler, killed and resumed: a small dose of `pytest examples/reconciler --runs 300`, and what it rests on."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
for _folder in (EXAMPLES, EXAMPLES / "reconciler"):
    sys.path.insert(0, str(_folder))

import reconcile  # noqa: E402
from mail_server import MailServer  # noqa: E402
from reconciler_drill import Drill, kills_of, prepare  # noqa: E402

from onceward.journal import Journal  # noqa: E402
from servers import postgres  # noqa: E402

SEED = 1
LINES = len(reconcile.lines_of(reconcile.STATEMENT))


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    """Workers to be killed, and a real mail server."""
    folder = tmp_path_factory.mktemp("drill")
    mails = folder / "mails.jsonl"
    with MailServer(file=mails) as server, Drill(folder, server.port, mails) as made:
        yield made


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An empty database."""
    return f"sqlite:///{tmp_path}/books.db"


def rows(url: str, table: str) -> int:
    """How many rows are committed."""
    books = reconcile.Books(url)
    (count,) = books.connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    books.close()
    return int(count)


@pytest.mark.slow
@pytest.mark.requirement("B21", "B40", "B41", "B43", "B45")
@pytest.mark.parametrize(("kind", "runs"), [("sqlite", 6), ("postgres", 3)])
def test_one_row_and_one_mail_for_each_line_wherever_it_is_killed(
    kind: str, runs: int, drill: Drill, tmp_path: Path
) -> None:
    """
    At random places of a seed: one expense, one confirmation and one mail a line, and every attempt in the journal.
    """
    if kind == "postgres" and not postgres.wanted():
        pytest.skip("STORES leaves postgres out")
    killed = 0
    for number in range(runs):
        url = f"sqlite:///{tmp_path}/books-{number}.db" if kind == "sqlite" else postgres.running().url()
        kills = kills_of(SEED, number)
        tally = drill.run(url, kills)
        assert tally.faults == (), f"run {number}, killed at {kills}: {tally}"
        killed += tally.killed

    assert killed >= runs


@pytest.mark.requirement("B36")
def test_without_the_constraint_the_drill_goes_red(drill: Drill, url: str) -> None:
    """
    The negative control: the same worker, killed once and resumed, on tables that refuse nothing.
    """
    tally = drill.run(url, [{"place": "reconciler.committed", "skip": 2}], constraint=False)

    assert 3 + LINES == tally.expenses == tally.confirmations == tally.mails
    assert {"not one expense a line", "not one confirmation an expense", "not one mail a line"} <= set(tally.faults)


@pytest.mark.requirement("B40")
@pytest.mark.parametrize("place", ["reconciler.expense", "reconciler.confirmation", "reconciler.commit"])
def test_killed_between_the_two_rows_neither_is_there(place: str, drill: Drill, url: str, tmp_path: Path) -> None:
    """
    Expense, confirmation and mail are of one transaction: both rows commit, or neither.
    """
    assert drill.start(url, tmp_path / "witness", place=place, skip=2) == "killed"

    assert 2 == rows(url, "expenses") == rows(url, "confirmation_emails")


@pytest.mark.requirement("B43")
def test_the_journal_tells_of_the_attempt_that_was_killed_and_of_the_one_that_found_it_done(
    drill: Drill, url: str
) -> None:
    """
    Killed after its commit and before anybody was told: the first attempt has no end, the second wrote nothing.
    """
    tally = drill.run(url, [{"place": "reconciler.committed", "skip": 1}])
    with Journal(url, scope=reconcile.SCOPE, worker=reconcile.WORKER) as journal:
        second = [call.outcome for call in journal.calls() if call.turn == 2]
        [run] = journal.runs()

    assert second == [None, "replayed"]
    assert (
        run.begun,
        run.status,
        run.attempts,
        run.effects,
        run.unended,
    ) == (2, "completed", LINES + 2, LINES - 1, 1)
    assert tally.faults == ()


@pytest.mark.fault("the-category-is-in-the-key", "a-correction-is-ignored")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_line_that_is_categorised_otherwise_is_corrected(kind: str, tmp_path: Path) -> None:
    """
    One row with the newer category and the newer time, one mail; the other lines are not touched, nor is a retry.
    """
    if kind == "postgres" and not postgres.wanted():
        pytest.skip("STORES leaves postgres out")
    url = f"sqlite:///{tmp_path}/books.db" if kind == "sqlite" else postgres.running().url()
    prepare(url)
    text = reconcile.STATEMENT.read_text(encoding="utf-8")
    corrected = text.replace(
        "4,2030-03-05,carol,carol@example.com,Books,31.90", "4,2030-03-05,carol,carol@example.com,Travel,31.95"
    )
    told = io.StringIO()
    with MailServer(file=tmp_path / "mails.jsonl") as server:
        for number, statement in enumerate((text, corrected, corrected)):
            file = tmp_path / str(number) / reconcile.STATEMENT.name
            file.parent.mkdir()
            file.write_text(statement, encoding="utf-8")
            reconcile.main([url, "--mail-port", str(server.port), "--statement", str(file)], told)
    books = reconcile.Books(url)
    found = books.connection.execute("SELECT category, amount FROM expenses ORDER BY id").fetchall()
    books.close()

    assert [(category, str(amount)) for category, amount in found] == [
        ("Food", "12.50"), ("Travel", "48.00"), ("Food", "12.50"), ("Travel", "31.95"), ("Food", "7.25"),
        ("Rent", "950.00"),
    ]  # fmt: skip
    assert len((tmp_path / "mails.jsonl").read_text(encoding="utf-8").splitlines()) == LINES
    assert rows(url, "confirmation_emails") == LINES
    assert [
        line.partition(": ")[2] for line in told.getvalue().splitlines()
    ] == [f"{LINES} lines written, 0 found done", f"1 lines written, {LINES - 1} found done",
            f"0 lines written, {LINES} found done"]  # fmt: skip


def test_a_line_that_is_about_another_user_is_refused(url: str, tmp_path: Path) -> None:
    """
    That is no correction but another statement under the same name: nothing is written for it.
    """
    books = reconcile.Books(url)
    row = {"worker_id": "w", "user_id": "al", "category": "Food", "amount": Decimal("1.00"), "spent_at": "2030-03-01",
           "idempotency_key": "k"}  # fmt: skip

    assert [books.write_expense(row), books.write_expense(row)] == [1, 0]
    with pytest.raises(ValueError, match="another statement"):
        books.write_expense({**row, "user_id": "bob"})
    books.close()


@pytest.mark.requirement("B41")
def test_a_mail_that_was_delivered_and_not_noted_is_delivered_again_under_the_same_message_id(
    drill: Drill, url: str
) -> None:
    """
    What SMTP cannot tell: the server took it, and the relay died. Deliveries are more than mails; mails are one a line.
    """
    tally: Any = drill.run(url, [{"place": "relay.deliver.after", "skip": 0}])

    assert tally.faults == ()
    assert tally.deliveries > tally.mails == LINES
