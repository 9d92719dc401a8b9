"""Colour and width, in real processes on a real (pseudo) terminal; and none of it in a pipe."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from typing import Any

import pytest

from onceward.cli.text_tables import format_table

ESCAPE = "\x1b["
WAIT_SECONDS = 60


def on_terminal(*typed: str, columns: int = 100, **variables: str) -> str:
    """What a command prints on a terminal of that width."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"COLUMNS": str(columns), "TERM": "xterm", **variables}
    process = subprocess.Popen(
        [sys.executable, "-m", "onceward", *typed], stdout=theirs, stderr=theirs, stdin=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], WAIT_SECONDS)[0]:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # Linux says so when the other side is closed.
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    process.wait(WAIT_SECONDS)
    return shown.decode().replace("\r\n", "\n")


def in_pipe(*typed: str, **variables: str) -> str:
    """What a command prints into a pipe."""
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    command = [sys.executable, "-m", "onceward", *typed]
    ran = subprocess.run(
        command, capture_output=True, text=True, env={**environment, **variables}, timeout=WAIT_SECONDS, check=False
    )
    return ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.fault("cli-colour-in-a-pipe")
def test_colour_is_where_a_terminal_is(doubted: Any) -> None:
    """
    And not in a pipe, nor where NO_COLOR is set; FORCE_COLOR and --color decide otherwise.
    """
    doubted()
    listed = ("records", "list", "--in-doubt")

    assert f"{ESCAPE}31min_doubt" in on_terminal(*listed)
    assert ESCAPE not in on_terminal(*listed, NO_COLOR="1")
    assert ESCAPE not in on_terminal(*listed, TERM="dumb")
    assert ESCAPE not in on_terminal(*listed, "--color", "never")
    assert ESCAPE not in in_pipe(*listed)
    assert ESCAPE in in_pipe(*listed, FORCE_COLOR="1")
    assert ESCAPE in in_pipe(*listed, "--color=always", NO_COLOR="1")
    assert ESCAPE not in on_terminal(*listed, "--json")
    assert f"{ESCAPE}31monceward:" in on_terminal("recrods")


@pytest.mark.slow
@pytest.mark.fault("cli-a-table-is-as-wide-as-it-likes")
@pytest.mark.parametrize("columns", [90, 120, 200])
def test_a_table_fits_the_terminal(doubted: Any, columns: int) -> None:
    """
    Whatever is in it: no line is longer than the terminal is wide. A pipe gets all of it.
    """
    doubted("charge:" + "x" * 80, message="a long message " * 20, name="a.long.name.of.an.operation" * 2)

    shown = on_terminal("records", "list", "--in-doubt", "--color", "never", columns=columns).splitlines()

    assert max(map(len, shown[:2])) <= columns
    assert shown[1].startswith("e") or shown[1][:12].strip()
    assert max(map(len, in_pipe("records", "list", "--in-doubt").splitlines())) > columns


def test_columns_keep_their_headings(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The widest give way first; a terminal that is too narrow for the headings gets rows that wrap.
    """
    monkeypatch.setattr("onceward.cli.text_tables.table_width", lambda: 30)

    narrow = format_table(("NAME", "VALUE"), [("a" * 12, "b" * 40)]).splitlines()

    assert narrow[1].startswith("a" * 12)
    assert len(narrow[1]) == 30
    monkeypatch.setattr("onceward.cli.text_tables.table_width", lambda: 5)
    assert format_table(("NAME", "VALUE"), [("a" * 12, "b" * 40)]).splitlines()[0].split() == ["NAME", "VALUE"]


@pytest.mark.fault("cli-a-narrow-table-cuts-the-digest")
def test_a_narrow_terminal_has_fewer_columns_and_names_that_can_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The first column names the row and stays whole; what has no room is left out from the right, and is said.
    """
    monkeypatch.setattr("onceward.cli.text_tables.table_width", lambda: 60)
    headings = ("DIGEST", "STATE", "AGE", "OPERATION", "FAILURE", "SCOPE", "KEY")
    row = ("e9bb26a3a693", "in_doubt", "1 min 7 s", "payments.charge", "ConnectionError: reset", "live:acme", "k" * 30)

    lines = format_table(headings, [row]).splitlines()

    assert lines[0].split() == ["DIGEST", "STATE", "AGE", "OPERATION", "FAILURE"]
    assert lines[1].startswith("e9bb26a3a693  in_doubt")
    assert lines[2] == "(no room for SCOPE, KEY; --json has all)"
    assert max(map(len, lines)) <= 60
