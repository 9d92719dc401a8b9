"""The examples do what they say: each is run as a reader would, in an empty folder, and its last line counts."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from servers import postgres

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECONDS_MAX = 300
DATABASE = "charge_api"
DOUBT_IS_LOGGED = "onceward: charge was not run (in_doubt)"
"""A person must hear of it, so it is on stderr, unless logging is set up otherwise."""

LAST_LINES = {
    "agent_tools.py": "6 tool calls, 2 invoices: acme: 12.50, globex: 7.00",
    "async_calls.py": "21 tasks, 1 mail",
    "charge_card.py": "4 calls, 2 requests to the bank, 1 charge",
    "charge_create.py": "2 charges: 12.5000 + 0.3000 = 12.8000",
    "demo_key.py": "expenses under demo-key-001: 1",
    "django_async_charges.py": "20 requests, 1 charge",
    "django_charges.py": "6 requests, 2 rows",
    "drf_charges.py": "5 requests, 1 charge",
    "expenses.py": "expenses in the table: 1",
    "fastapi_charges.py": "14 requests, 2 charges at the provider, one for each of 2 tenants",
    "langgraph_killed.py": "2 requests, 1 charge",
    "litestar_charges.py": "15 requests, 2 charges, one for each of 2 tenants",
    "starlette_charges.py": "13 requests, 2 charges, one for each of 2 tenants",
    "flask_charges.py": "5 requests, 2 charges",
    "migrate_and_seed.py": "replayed in the last run: 3 of 3",
    "stripe_in_outbox_out.py": "3 deliveries, 2 runs, 1 payment, 2 tries, 1 parcel",
    "webhook_once.py": "10 deliveries, 1 parcel",
}

AGENTS = {
    "agents/anthropic_agent.py": ("anthropic", "2 processes, 1 charge"),
    "agents/google_adk_agent.py": ("google.adk", "charges=1"),
    "agents/langchain_agent.py": ("langchain", "2 runs, 1 charge"),
    "agents/langgraph_node.py": ("langgraph", "3 entries of the node, 2 requests, 1 charge"),
    "agents/mcp_server.py": ("mcp", "1 charge, receipt replayed: True"),
    "agents/openai_agents_agent.py": ("agents.testing", "2 processes, 1 charge"),
    "agents/openai_loop.py": ("openai", "2 processes, 1 charge"),
    "agents/order_agent.py": ("onceward", "ONE CHARGE, ONE MAIL, ONE ROW. Each tool call of the agent happened once."),
    "agents/pydantic_ai_agent.py": ("pydantic_ai", "charges=1"),
    "agents/temporal_activity.py": ("temporalio", "2 bookings, 1 seat"),
    "queues/celery_shop.py": ("celery", "charges: 2 for 2 orders; dead letters: 1, for a person to decide"),
}
"""What each needs, and its last line. Those whose framework is not installed here are run by `make test-agents`."""
LINES_MAX = 60
"""An example of a framework fits on a screen or two; `order_agent.py` is the demo's third act, and longer."""

# The demo has a test file of its own; bank and mail server are what examples talk to; some are served by `serving`.
# `charge_api.py` needs PostgreSQL, and has a test below.
NOT_HERE = {"demo.py", "bank.py", "mail_server.py", "serving.py", "charge_api.py"}


def run(name: str, folder: Path, *arguments: str) -> list[str]:
    """Run an example in a folder; warnings are errors. What it printed, line by line."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if not line.startswith(DOUBT_IS_LOGGED)]
    assert (done.returncode, complaints) == (0, []), done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", sorted(LAST_LINES))
@pytest.mark.dose(8)
def test_an_example_ends_as_it_says(name: str, tmp_path: Path) -> None:
    """
    It exits with 0, prints its last line, and leaves nothing behind in the folder it was run in; run again, the same.
    """
    printed, again = run(name, tmp_path), run(name, tmp_path)

    assert (LAST_LINES[name], LAST_LINES[name]) == (printed[-1], again[-1])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not postgres.wanted(), reason="STORES leaves postgres out")
def test_an_api_on_postgresql_is_killed_while_it_charges_and_charges_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The server dies after the bank has booked and before it hears of it; the same request to the next one is answered.
    """
    postgres.running().execute(f"CREATE DATABASE {DATABASE}")
    monkeypatch.setenv("DATABASE_URL", postgres.running().url(DATABASE))
    for _ in range(2):
        killed, ran, replayed, counted = run("charge_api.py", tmp_path)
        assert killed.startswith("the server was killed while it charged")
        assert (ran[:3], ran[-3:], replayed[:3], replayed[-8:]) == ("201", "ran", "201", "replayed")
        assert counted == "3 requests, 2 at the bank, 1 charge"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(AGENTS))
@pytest.mark.dose(2)
def test_an_agent_of_each_framework_ends_as_it_says(name: str, tmp_path: Path) -> None:
    """
    As above; and none is longer than sixty lines.
    """
    needs, last = AGENTS[name]
    pytest.importorskip(needs, reason="in make test-agents")
    printed, again = run(name, tmp_path), run(name, tmp_path)

    assert (last, last) == (printed[-1], again[-1])
    assert list(tmp_path.iterdir()) == []
    assert name.endswith("order_agent.py") or len((EXAMPLES / name).read_text().splitlines()) <= LINES_MAX


def test_every_example_is_run() -> None:
    """
    A new example is added to the table above, or it proves nothing.
    """
    assert {path.name for path in EXAMPLES.glob("*.py")} == LAST_LINES.keys() | NOT_HERE
    framed = [path for folder in ("agents", "queues") for path in (EXAMPLES / folder).glob("*.py")]
    assert {path.relative_to(EXAMPLES).as_posix() for path in framed} == AGENTS.keys()


@pytest.mark.requirement("B21")
def test_the_expenses_example_ships_its_table_and_writes_one_row(tmp_path: Path) -> None:
    """
    Worker, user, category, amount, time and key are columns; run after run there is one expense.
    """
    file = tmp_path / "expenses.db"
    first = run("expenses.py", tmp_path, str(file))
    again = run("expenses.py", tmp_path, str(file))

    with closing(sqlite3.connect(file)) as connection:
        columns = {name for _, name, *_ in connection.execute("PRAGMA table_info(expenses)")}
        rows = connection.execute("SELECT amount FROM expenses").fetchall()
    assert columns == {"worker_id", "user_id", "category", "amount", "spent_at", "idempotency_key", "id", "updated_at"}
    assert rows == [("12.50",)]
    assert [line for line in first if "written:" in line] == ["  rows written: 1", "  rows written: 0"]
    assert [line for line in again if "written:" in line] == ["  rows written: 0"]


@pytest.mark.requirement("E12", "E13", "E14", "E21")
def test_the_charge_example_answers_in_one_shape_and_keeps_four_places(tmp_path: Path) -> None:
    """
    First run, replay and both racers get the same reply; 0.1 + 0.2 is 0.3000; another constraint's violation surfaces.
    """
    file = tmp_path / "charges.db"
    first = run("charge_create.py", tmp_path, str(file))
    again = run("charge_create.py", tmp_path, str(file))

    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT customer_id, amount, typeof(amount) FROM charges ORDER BY id").fetchall()
    reply = "{'status': 201, 'body': {'status': 'created'}}"
    ways = ("first run:  ", "replay:     ", "in a race:  ", "in a race:  ")
    assert [way + reply for way in ways] == first[:4]
    assert first[4] == "another charge with the same receipt: UNIQUE constraint failed: charges.receipt"
    assert rows == [(7, "12.5000", "text"), (8, "0.3000", "text")]
    assert first == again
