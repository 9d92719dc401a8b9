"""
`onceward relay`: deliver, look, decide.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

LATER = "1970-01-01T00:00:0"


def states(folder: Path) -> dict[str, int]:
    database = sqlite3.connect(folder / "agent.db")
    try:
        return dict(database.execute("SELECT state, count(*) FROM onceward_outbox_messages GROUP BY state").fetchall())
    finally:
        database.close()


def test_an_operator_sees_what_is_dead_and_disabled(outgoing: str, run: Any) -> None:
    """
    As a table and as a document; payloads are in neither.
    """
    status, dead = run("relay", "status", "--json").document, run("dead", "list", "--json").document
    shown = run("dead", "list")

    assert status["messages"] == [
        {"endpoint": "billing", "state": "dead", "messages": 1, "oldestAt": f"{LATER}1+00:00"}
    ]
    assert status["disabled"] == [{"endpoint": "billing", "since": f"{LATER}3+00:00", "reason": "HTTP 410"}]
    assert [(outgoing, 10, "HTTP 500")] == [(one["id"], one["attempts"], one["reason"]) for one in dead["letters"]]
    assert run("dead", "list", "--json", "--after", outgoing).document["letters"] == []
    assert run("dead", "list", "--json", "--endpoint", "other").document["letters"] == []
    assert "HTTP 500" in shown.out
    assert "billing has been disabled since" in run("relay", "status").err


def test_what_was_given_up_is_requeued_enabled_and_delivered(outgoing: str, run: Any, folder: Path) -> None:
    """
    Each decision is made once; a second time the answer is no.
    """
    codes = [run("dead", "requeue", outgoing).code for _ in range(2)]
    held = run("relay", "run", "--config", "relay.toml", "--once", "--json").document
    codes += [run("relay", "enable", "billing").code for _ in range(2)]
    sent = run("relay", "run", "--config", "relay.toml", "--once", "--json").document

    assert codes == [0, 1, 0, 1]
    assert (held, sent) == ({"tries": 0}, {"tries": 1})
    assert states(folder) == {"delivered": 1}


def test_a_dead_message_is_let_go_of_only_with_a_yes(outgoing: str, run: Any, folder: Path) -> None:
    """
    It is deleted for good.
    """
    without, kept = run("dead", "discard", outgoing), states(folder)
    done, again = run("dead", "discard", outgoing, "--yes"), run("dead", "discard", outgoing, "--yes")

    assert (without.code, kept) == (2, {"dead": 1})
    assert (done.code, again.code, states(folder)) == (0, 1, {})


def test_a_mistyped_database_is_not_taken_for_an_empty_outbox(store: str, run: Any, folder: Path) -> None:
    """
    Only `relay init` and a relay make tables.
    """
    ran = run("relay", "status", "--store", "sqlite:///other.db")
    none_yet = run("relay", "status")
    made = run("relay", "init")

    assert (ran.code, (folder / "other.db").exists()) == (2, False)
    assert (none_yet.code, made.code, run("relay", "status").code) == (2, 0, 0)
    assert "onceward relay init" in none_yet.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no endpoints to deliver to"),
        ("= nonsense", "not TOML"),
        ("speed = 1\n[endpoints.a]\nkind = 'python'\ncall = 'builtins:str'", "no setting 'speed'"),
        ("retain = -1\n[endpoints.a]\nkind = 'python'\ncall = 'builtins:str'", "retain must be a number of seconds"),
        ("[endpoints.a]\nkind = 'pigeon'", "[endpoints.a] kind"),
        (None, "cannot be read"),
    ],
    ids=["empty", "broken", "unknown", "negative", "kind", "absent"],
)
def test_a_wrong_file_is_refused_before_anything_is_delivered(
    outgoing: str, run: Any, folder: Path, text: str | None, said: str
) -> None:
    """
    The error names the file and what is wrong in it.
    """
    if text is not None:
        (folder / "wrong.toml").write_text(text)

    ran = run("relay", "run", "--config", "wrong.toml")

    assert ran.code == 2
    assert said in ran.err
    assert "wrong.toml" in ran.err
