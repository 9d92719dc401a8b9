"""The journal of agents' runs: every attempt with its run, turn and tool call, honest about how it ended."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from colours import COLOURS, Colour
from onceward import ConfigurationError, Found, Gate
from onceward.agents import AgentGate, Framework, NotFinal, Tool, ToolCall
from onceward.cli import main
from onceward.journal import Journal, in_run
from onceward.stores._migration_scripts import migration_scripts
from onceward.stores._sqlite_file import split_statements
from servers import postgres

SCOPE = "test:shop"


class Interrupt(BaseException):
    """Control flow of a framework."""


PAUSING = Framework("pausing", control_flow=(Interrupt,))


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> Any:
    """Blocking or awaiting."""
    made = Colour(request.param)
    yield made
    made.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An empty store."""
    return f"sqlite:///{tmp_path}/agent.db"


def opened(url: str, **options: Any) -> AgentGate:
    """A gate with a journal."""
    return AgentGate(url, scope=SCOPE, **{"journal": True, "worker": "shop-v1", "wait": 0, **options})


def noted(url: str, run: str = "order-1") -> Any:
    """The attempts of a run."""
    with Journal(url, scope=SCOPE, worker="reader") as journal:
        return journal.calls(run=run)


def fail(error: BaseException) -> Any:
    """A tool that raises."""
    raise error


def page(capsys: pytest.CaptureFixture[str], url: str, run: str = "order-1", *more: str) -> str:
    """What the command prints."""
    capsys.readouterr()
    assert main(["journal", "show", run, "--store", url, *more]) == 0
    return capsys.readouterr().out


def test_every_attempt_is_noted_with_run_turn_and_tool_call(colour: Colour, url: str) -> None:
    """
    One that ran, one that was given the first answer, one that failed, one that was refused; in both colours.
    """
    gate = opened(url)
    call = ToolCall("order-1", "charge", {"order": 1}, id="call_a", turn=1)
    again = call._replace(id="call_b", turn=2)
    doubtful = ToolCall("order-1", "mail", {"to": 1}, id="call_c", turn=2)
    colour.ask(gate, "call", call, lambda: "paid")
    colour.ask(gate, "call", again, lambda: "paid")
    for _ in range(2):
        colour.ask(gate, "call", doubtful, lambda: fail(ValueError("who@example.com")), tell_errors=True)
    colour.ask(gate, "close")

    found = noted(url)
    assert [(one.tool, one.turn, one.call_id, one.outcome, one.detail) for one in found] == [
        ("charge", 1, "call_a", "executed", None),
        ("charge", 2, "call_b", "replayed", None),
        ("mail", 2, "call_c", "unknown", "ValueError"),
        ("mail", 2, "call_c", "refused", "in_doubt"),
    ]
    assert len({one.digest for one in found}) == 2
    assert {one.worker for one in found} == {"shop-v1"}


def test_what_had_no_effect_is_told_from_what_failed(colour: Colour, url: str) -> None:
    """
    An interrupt and a result that asks for something first are pauses; the call that follows is executed.
    """
    gate = opened(url)
    call = ToolCall("order-1", "charge", {"order": 1})
    with pytest.raises(Interrupt):
        colour.ask(gate, "call", call, lambda: fail(Interrupt()), framework=PAUSING)
    colour.ask(gate, "call", call, lambda: fail(NotFinal("approve?")), framework=PAUSING)
    with pytest.raises(ValueError, match="x"):
        colour.ask(gate, "call", call._replace(tool="poll"), lambda: fail(ValueError("x")), declared=Tool("repeatable"))
    colour.ask(gate, "call", call, lambda: "paid", framework=PAUSING)
    colour.ask(gate, "close")

    told = [(one.outcome, one.detail) for one in noted(url)]
    assert told == [
        ("failed", "paused: Interrupt"),
        ("failed", "paused: nothing_happened"),
        ("failed", "ValueError"),
        ("executed", None),
    ]


def test_a_call_that_somebody_else_makes_is_noted_too(colour: Colour, url: str) -> None:
    """
    Held calls: begun when they are claimed, ended when they are.
    """
    gate = opened(url)
    call = ToolCall("order-1", "charge", {"order": 1}, id="call_a")
    for _ in range(2):
        held = colour.ask(gate, "open_call", call)
        if hasattr(held, "operation"):
            colour.run(held.end, "paid")
    colour.ask(gate, "close")

    assert [one.outcome for one in noted(url)] == ["executed", "replayed"]


_DIES = """
import os, signal, sys
from onceward.agents import AgentGate, ToolCall
gate = AgentGate(sys.argv[1], scope="test:shop", journal=True, worker="shop-v1")
gate.call(ToolCall("order-1", "notify", {}, id="call_n", turn=1), lambda: "sent")
gate.call(ToolCall("order-1", "charge", {}, id="call_c", turn=1), lambda: os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.mark.parametrize("kind", postgres.kinds())
@pytest.mark.fault("an-agents-attempt-is-noted-behind-its-tool")
def test_a_process_that_is_killed_leaves_an_attempt_without_an_end(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    It is noted before the tool runs, so it is there however soon the kill comes; what ended before it has its end. The
    page says crashed, and has the command that decides, which works as it is printed.
    """
    url = _url(kind, tmp_path)
    done = subprocess.run([sys.executable, "-c", _DIES, url], check=False, timeout=120)
    with opened(url) as gate:
        told = gate.call(ToolCall("order-1", "charge", {}, id="call_d", turn=2), lambda: "paid")
    calls = noted(url)
    text = page(capsys, url)
    [command] = [line for line in text.splitlines() if "--happened" in line]
    decided = main([*_words(command, '"paid by hand"'), "--store", url])

    assert done.returncode == -signal.SIGKILL
    assert told.in_doubt
    assert [(one.call_id, one.outcome) for one in calls] == [
        ("call_n", "executed"),
        ("call_c", None),
        ("call_d", "refused"),
    ]
    assert "crashed" in text
    assert "begun 2 times" in text
    assert decided == 0
    with opened(url) as gate:
        assert gate.call(ToolCall("order-1", "charge", {}, id="call_e", turn=2), lambda: "paid") == "paid by hand"


def _url(kind: str, folder: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder}/agent.db"
    server = postgres.running()
    server.execute("DROP DATABASE IF EXISTS agent_journal")
    server.execute("CREATE DATABASE agent_journal")
    return server.url("agent_journal")


def _words(line: str, result: str) -> list[str]:
    command = line[line.index("onceward records") :]
    return [result if one == "?" else one for one in command.replace("'RESULT AS JSON'", "?").split()[1:]]


def test_an_end_that_was_not_noted_is_found_in_the_record(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """
    A process killed right after a call has ended has lost the note of the end. Its record is settled: it was executed.
    """
    dies = _DIES.replace('lambda: "sent")', 'lambda: "sent")\nos.kill(os.getpid(), signal.SIGKILL)')
    subprocess.run([sys.executable, "-c", dies, url], check=False, timeout=120)
    [row] = noted(url)
    text = page(capsys, url)

    assert row.outcome is None
    assert "executed" in text
    assert "crashed" not in text
    assert "1 effects, 0 without an end" in text


def test_a_program_that_ends_well_has_all_of_its_notes(url: str) -> None:
    """
    Also if it never closes its gate.
    """
    ends = _DIES.replace("os.kill(os.getpid(), signal.SIGKILL)", '"paid"')
    subprocess.run([sys.executable, "-c", ends, url], check=True, timeout=120)

    assert [one.outcome for one in noted(url)] == ["executed", "executed"]


def test_a_tool_that_still_runs_is_running(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """
    No end, and its process lives: nobody says that it crashed.
    """
    texts: list[str] = []
    with opened(url) as gate:
        gate.call(ToolCall("order-1", "charge", {}), lambda: texts.append(page(capsys, url)))

    assert "running" in texts[0]
    assert "crashed" not in texts[0]


def test_the_page_has_turns_calls_and_attempts(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """
    A heading, the turns in order, each tool call with its id and key, and each attempt in order.
    """
    with opened(url) as gate:
        for turn, id in ((1, "call_a"), (2, "call_b")):
            gate.call(ToolCall("order-1", "charge", {"order": 1}, id=id, turn=turn), lambda: "paid")
        gate.call(ToolCall("order-1", "mail\x1b[2J", {}, turn=1), lambda: "sent")
    [digest] = {one.digest for one in noted(url) if one.tool == "charge"}
    lines = page(capsys, url).splitlines()
    document = json.loads(page(capsys, url, "order-1", "--json"))

    assert lines[:3] == ["Run order-1", "===========", f"scope {SCOPE}, worker shop-v1"]
    assert lines[4] == "3 attempts, 2 effects, 0 without an end"
    assert [line for line in lines if line.startswith("Turn")] == ["Turn 1", "Turn 2"]
    assert f"charge [call_a] key {digest}" in lines
    assert not any("\x1b" in line for line in lines)
    assert [one["word"] for one in document["attempts"]] == ["executed", "replayed", "executed"]


def test_runs_are_listed_with_how_often_they_were_begun(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """
    Once for each process that sees it: a gate that sees it again does not begin it again.
    """
    for _ in range(2):
        with opened(url) as gate:
            for number in range(3):
                gate.call(ToolCall("order-1", "charge", {"n": number}), lambda: "paid")
    capsys.readouterr()
    assert main(["journal", "runs", "--store", url, "--json"]) == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert main(["journal", "runs", "--store", url]) == 0
    table = capsys.readouterr().out

    assert (run["id"], run["begun"], run["attempts"], run["effects"], run["unended"]) == ("order-1", 2, 6, 3, 0)
    assert run["lastAt"] >= run["startedAt"]
    assert table.split()[:4] == ["RUN", "WORKER", "STARTED", "BEGUN"]


def test_what_a_tool_does_at_another_gate_is_of_the_same_run(url: str, tmp_path: Path) -> None:
    """
    A tool's own gate with a journal's listener notes its attempts under the agent's run; other code says which it is.
    """
    with Journal(url, scope=SCOPE, worker="inner") as journal:
        inner = Gate(f"sqlite:///{tmp_path}/inner.db", scope=SCOPE, listeners=[journal.listener()])
        with inner, opened(url) as gate:
            gate.call(ToolCall("order-1", "charge", {}, id="call_a", turn=3), lambda: inner.run("k:1", lambda: "paid"))
            with in_run("order-2", turn=1):
                inner.run("k:2", lambda: "paid")
            inner.run("k:3", lambda: "paid")
        found = [(one.run, one.turn, one.call_id) for one in journal.calls() if one.worker == "inner"]

    assert found == [("order-1", 3, "call_a"), ("order-2", 1, None), (None, None, None)]


@pytest.mark.parametrize("how", ["damaged", "a folder"])
@pytest.mark.fault("an-agents-journal-fails-its-call")
def test_a_journal_that_cannot_be_written_fails_no_call(how: str, colour: Colour, url: str, tmp_path: Path) -> None:
    """
    The call is made, once, and its answer is replayed.
    """
    beside = tmp_path / "agent.journal.db"
    if how == "damaged":
        beside.write_bytes(b"no database at all" * 400)
    else:
        beside.mkdir()
    effects: list[str] = []
    answers: list[Any] = []
    gate = opened(url)
    for _ in range(2):
        try:
            told = colour.ask(gate, "call", ToolCall("order-1", "charge", {}), lambda: effects.append("x") or "paid")
        except Exception as error:
            told = error
        answers.append(told)
    colour.ask(gate, "close")

    assert answers == ["paid", "paid"]
    assert effects == ["x"]


@pytest.mark.parametrize("store", ["memory://", "redis://localhost/0"])
def test_a_store_that_cannot_keep_a_journal_says_so_if_it_is_asked_for(store: str) -> None:
    """
    When the gate is made; without the option, it works without a journal.
    """
    with pytest.raises(ConfigurationError, match="SQLite or PostgreSQL"):
        AgentGate(store, scope=SCOPE, journal=True)
    with AgentGate("memory://", scope=SCOPE) as gate:
        assert gate.call(ToolCall("order-1", "charge", {}), lambda: "paid") == "paid"


def test_without_the_option_nothing_is_noted(url: str, tmp_path: Path) -> None:
    """
    The negative control: no file beside the records.
    """
    with opened(url, journal=False) as gate:
        gate.call(ToolCall("order-1", "charge", {}), lambda: "paid")

    assert not (tmp_path / "agent.journal.db").exists()


_OLD_ROW = """INSERT INTO onceward_journal_calls (id, scope, run, worker, tool, started_at)
    VALUES (?, 'test:shop', 'order-1', 'old', 'charge', 4000000000000000)"""


def test_rows_of_the_first_schema_are_read_beside_new_ones(url: str, tmp_path: Path) -> None:
    """
    A journal of the version before is moved forward when it is opened; its rows are shown, and a worker of that version
    which still has it open goes on writing.
    """
    file = tmp_path / "agent.journal.db"
    old = sqlite3.connect(file)
    [script] = [text for number, text in migration_scripts("onceward.journal", "sqlite") if number == 1]
    for statement in split_statements(script):
        old.execute(statement)
    old.execute("PRAGMA journal_mode = WAL")
    old.execute(_OLD_ROW, ("00",))
    old.commit()
    with opened(url) as gate:
        gate.call(ToolCall("order-1", "charge", {}, id="call_a"), lambda: "paid")
    old.execute(_OLD_ROW, ("01",))
    old.commit()
    old.close()

    assert [(one.worker, one.call_id, one.process is None) for one in noted(url)] == [
        ("old", None, True),
        ("old", None, True),
        ("shop-v1", "call_a", False),
    ]


def test_what_is_old_is_deleted_by_and_by(url: str, tmp_path: Path) -> None:
    """
    Nobody has to look after an agent's journal: rows of more than a week go, behind the work.
    """
    with opened(url) as gate:
        gate.call(ToolCall("order-1", "charge", {"n": 1}), lambda: "paid")
    file = sqlite3.connect(tmp_path / "agent.journal.db")
    file.execute("UPDATE onceward_journal_calls SET started_at = 1")
    file.commit()
    file.close()
    with opened(url) as gate:
        gate.call(ToolCall("order-1", "charge", {"n": 2}), lambda: "paid")

    assert len(noted(url)) == 1


_FORKS = """
import os, sys
from onceward.agents import AgentGate, ToolCall
gate = AgentGate(sys.argv[1], scope="test:shop", journal=True, worker="shop-v1")
gate.call(ToolCall("order-1", "charge", {"who": "parent"}), lambda: "paid")
child = os.fork()
gate.call(ToolCall("order-1", "charge", {"who": str(child == 0)}), lambda: "paid")
gate.close()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_process_notes_for_itself(url: str) -> None:
    """
    Threads and connections of the parent are not the child's; nothing hangs, and nothing is noted twice.
    """
    subprocess.run([sys.executable, "-c", _FORKS, url], check=True, timeout=120)
    with Journal(url, scope=SCOPE, worker="reader") as journal:
        [run] = journal.runs()

    assert (run.attempts, run.effects, run.begun) == (3, 3, 2)


def test_a_stopped_note_leaves_no_doubt(colour: Colour, url: str) -> None:
    """
    Whoever is interrupted while the attempt is being noted has not run the tool: the key is free again.
    """
    gate = opened(url)
    call, effects = ToolCall("order-1", "charge", {}), []
    runner = gate._awaiting_calls if colour.awaits else gate._blocking_calls
    runner._journal.write = colour.coloured(lambda notes: fail(colour.stop()))  # type: ignore[method-assign, union-attr]
    with pytest.raises(colour.stop):
        colour.ask(gate, "call", call, lambda: effects.append(1), **({"shield": False} if colour.awaits else {}))
    del runner._journal.write  # type: ignore[union-attr]

    assert colour.ask(gate, "call", call, lambda: effects.append(1) or "paid") == "paid"
    assert effects == [1]
    colour.ask(gate, "close")


def test_a_probe_that_finds_it_is_a_replay(url: str) -> None:
    """
    Nothing ran now: what was found is the answer.
    """
    tools = {"charge": Tool("probed", probe=lambda call: Found("paid"))}
    call = ToolCall("order-1", "charge", {})
    with opened(url, tools=tools) as gate:
        gate.call(call, lambda: fail(ValueError()), tell_errors=True)
        answer = gate.call(call, lambda: "paid twice")

    assert answer == "paid"
    assert [one.outcome for one in noted(url)] == ["unknown", "replayed"]
