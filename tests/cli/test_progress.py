"""How far a command is: a line on a real (pseudo) terminal that goes away again; nothing in pipes and for programs."""

from __future__ import annotations

import io
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import pytest

from onceward import Gate
from onceward._core import keys
from onceward.cli import build_parser, main, progress
from onceward.cli.progress import progress_of, watching
from onceward.gate import Sealed

WAIT_SECONDS = 60
UNTIL_STOPPED = {"onceward serve", "onceward dashboard", "onceward mcp", "onceward relay run"}
PATIENCE = "from onceward.cli import progress; progress.AFTER_SECONDS = progress.EVERY_SECONDS = 0.0"
"""For a process: what it does is shown at once, however quick this machine is."""


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "_clock", lambda: made)
    return made


@pytest.fixture
def screen() -> Screen:
    """Not stderr yet: pytest puts its own there when the test begins."""
    return Screen()


def lines(drawn: str) -> list[str]:
    """What was drawn, one line after the other."""
    return [one for one in drawn.split("\r\x1b[K") if one]


class TestTheLine:
    """When it is drawn, and what it says."""

    @pytest.mark.fault("cli-no-estimate")
    def test_it_begins_after_two_seconds_with_an_estimate(self, clock: Clock, screen: Screen) -> None:
        """
        Drawn anew in its place, and taken away at the end.
        """
        with redirect_stderr(screen), watching("records purge", quiet=False), progress_of("purging") as line:
            for second in (0.0, 1.9, 2.0, 2.1, 50.0):
                clock.now = second
                line(second / 100, f"{second:.0f} of 100")

        assert lines(screen.getvalue()) == [
            "purging: 2 of 100, 2%, about 98 s left",
            "purging: 50 of 100, 50%, about 50 s left",
        ]
        assert screen.getvalue().endswith("\r\x1b[K")

    def test_a_share_that_is_not_known_has_no_estimate(self, clock: Clock, screen: Screen) -> None:
        """
        How long it has taken since the command began, all the same.
        """
        with redirect_stderr(screen), watching("records decide", quiet=False):
            clock.now = 3.0
            with progress_of("probing") as line:
                line(0.0, "7 so far")

        assert lines(screen.getvalue()) == ["probing: 7 so far, 3 s so far"]

    @pytest.mark.fault("cli-progress-in-json")
    @pytest.mark.parametrize("how", ["json", "pipe", "part"])
    def test_programs_pipes_and_short_work_are_told_nothing(
        self, how: str, clock: Clock, screen: Screen, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Whoever asked for JSON reads errors as JSON on stderr; a log gets no lines; under two seconds nobody waits.
        """
        monkeypatch.setattr(screen, "isatty", lambda: how != "pipe")
        with redirect_stderr(screen), watching("records purge", quiet=how == "json"), progress_of("purging") as line:
            clock.now = 1.9 if how == "part" else 30.0
            line(0.5)

        assert screen.getvalue() == ""

    def test_what_is_printed_begins_on_a_clean_line(self, clock: Clock, screen: Screen) -> None:
        """
        The line goes away first, and comes again.
        """
        from onceward.cli.output import print_note

        with redirect_stderr(screen), watching("drill", quiet=False), progress_of("drilling") as line:
            clock.now = 5.0
            line(0.5)
            print_note("a note")
            clock.now = 6.0
            line(0.6)

        assert "\x1b[Ka note\n\r\x1b[Kdrilling: 60%" in screen.getvalue()

    def test_a_process_that_was_forked_draws_nothing(self, clock: Clock, screen: Screen) -> None:
        """
        Two processes on one line would be a mess; and a lock that another thread held at the fork is held for ever.
        """
        with redirect_stderr(screen), watching("drill", quiet=False), progress_of("drilling") as line:
            clock.now = 5.0
            with progress._screen._guard:
                if (child := os.fork()) == 0:
                    line(0.5)
                    os._exit(len(screen.getvalue()))
            _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 0


class Terminal:
    """A process on a pseudo-terminal, and what it has shown so far."""

    def __init__(self, script: str, *typed: str, **variables: str) -> None:
        self._ours, theirs = pty.openpty()
        environment = {name: one for name, one in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{script}\nimport sys; from onceward.cli import main; sys.exit(main())", *typed],
            stdout=theirs,
            stderr=theirs,
            stdin=theirs,
            env={**environment, "COLUMNS": "200", "TERM": "xterm", **variables},
        )
        os.close(theirs)
        self.shown = ""

    def read(self) -> bool:
        """Wait for more; whether there was any."""
        try:
            piece = os.read(self._ours, 65_536)
        except OSError:  # Linux says so when the other side is closed.
            piece = b""
        self.shown += piece.decode()
        return bool(piece)

    def end(self) -> str:
        """Wait for its end; everything that it has shown."""
        while self.read():
            continue
        self.process.wait(WAIT_SECONDS)
        os.close(self._ours)
        return self.shown


@contextmanager
def on_terminal(*typed: str, script: str = PATIENCE, **variables: str) -> Iterator[Terminal]:
    """A command on a terminal, ended with the block."""
    terminal = Terminal(script, *typed, **variables)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait(WAIT_SECONDS)


@pytest.mark.slow
class TestOnATerminal:
    """Real processes."""

    @pytest.mark.fault("cli-progress-stands-still")
    def test_the_line_moves_while_a_command_waits_for_one_long_statement(self, store: str) -> None:
        """
        `store migrate` says nothing of its own; whatever keeps it busy, the line counts the seconds, and goes away.
        """
        busy = f"""{PATIENCE}
import threading
from onceward.cli import store
progress.AFTER_SECONDS = progress.TICK_SECONDS = 0.01
drawn, draw = [], progress._Screen._write
progress._Screen._write = lambda screen, text: (draw(screen, text), drawn.append(text))
def upkeep_of(url):
    for _ in range({WAIT_SECONDS} * 50):  # Until two lines were drawn meanwhile; the limit is for a line that is not.
        if len(drawn) > 2 or threading.Event().wait(0.01):
            break
store.upkeep_of = upkeep_of"""
        with on_terminal("store", "migrate", script=busy) as terminal:
            shown = terminal.end()

        assert "store migrate: 0 s so far\r\x1b[Kstore migrate: 0 s so far" in shown
        assert "moved" in shown
        assert "so far" not in shown.rpartition("\r\x1b[K")[2]

    @pytest.mark.parametrize(
        ("typed", "says"),
        [
            (("records", "purge", "--all"), "purging: 0 forgotten"),
            (("records", "list", "--state", "settled"), "looking at records: "),
            (("records", "list", "--in-doubt"), "looking at records: "),
            (("status",), "looking at records: "),
            (("store", "check"), "looking at records: "),
            (("audit", "verify"), "walking the log: 4 of 4 entries"),
            (("ledger", "verify"), "walking the ledger: "),
            (("drill", "changed-body"), "drilling: 1 of 1: changed-body"),
            (("lint", "python", "."), "reading: 0 of 1 files"),
            (("lint", "sql", "."), "reading: 0 of 1 files"),
            (("lint", "migration", "orders.sql"), "reading: 0 of 1 files"),
            pytest.param(
                ("doctor", "--path", "."),
                "reading Python: 0 of 1 files",
                marks=pytest.mark.fault("doctor-says-nothing-for-minutes"),
            ),
            (("simulate", "policy"), "simulating: "),
            (("migrate", "apply", "expenses", "--database", "sqlite:///app.db"), "filling in keys: 3 of 3 rows"),
            (("store", "reseal", "--seal-keys", "seal-keys.txt"), "sealing: looked at "),
            (("db", "export", "acme/shop", "out.jsonl", "--from", "onceward-data"), "moving: exporting "),
            (("db", "import", "export.jsonl", "--to", "onceward-data"), "moving: importing "),
        ],
        ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
    )
    @pytest.mark.dose(10)
    def test_what_may_take_long_says_how_far_it_is(
        self, typed: tuple[str, ...], says: str, store: str, service_folder: Path, folder: Path, run: Any
    ) -> None:
        """
        Each of them, in its own words; and nothing of it is left when it has ended.
        """
        prepare(folder, run)
        with on_terminal(*typed) as terminal:
            shown = terminal.end()

        assert says in shown
        assert says.partition(":")[0] + ":" not in shown.rpartition("\r\x1b[K")[2]

    def test_a_pipe_gets_none_of_it(self, store: str, folder: Path, run: Any) -> None:
        """
        A log is no place for a line that is drawn anew.
        """
        prepare(folder, run)
        script = f"{PATIENCE}\nimport sys; from onceward.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", script, "records", "purge", "--all"]

        piped = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)

        assert (piped.stderr, "\x1b" in piped.stdout) == ("", False)


def prepare(folder: Path, run: Any) -> None:
    """A store with a record, a decision and a customer; a file of Python, one of SQL, and a table."""
    with Gate(os.environ["ONCEWARD_STORE"], scope="live:acme") as gate:
        gate.call("k", lambda: 1)
    run("audit", "reasons", "optional")
    run("ledger", "customer", "acme", "cus_1", "--environment", "test")
    (folder / "shop.py").write_text("x = 1\n")
    (folder / "seal-keys.txt").touch(mode=0o600)
    (folder / "seal-keys.txt").write_text(f"{Sealed.new_key()}\n")
    (folder / "orders.sql").write_text("CREATE TABLE orders (id bigint PRIMARY KEY);\n")
    with closing(sqlite3.connect(folder / "app.db")) as database:
        database.execute("CREATE TABLE expenses (id INTEGER PRIMARY KEY)")
        database.executemany("INSERT INTO expenses VALUES (?)", [(number,) for number in range(3)])
        database.commit()


def test_every_command_that_ends_by_itself_is_watched() -> None:
    """
    "progress with an estimate on everything over two seconds": no command is left out but those that run until somebody
    stops them.
    """
    from test_command_line import leaves

    unwatched = {one.prog for one in leaves(build_parser()) if not one.get_default("label")}

    assert unwatched == UNTIL_STOPPED


def test_ids_tell_how_far_a_walk_is() -> None:
    """
    They are hashes.
    """
    assert progress.share_of_ids(b"") == 0.0
    assert progress.share_of_ids(b"\x80" + bytes(31)) == 0.5
    assert 0.0 <= progress.share_of_ids(keys.record_id("key", "a", "b")) < 1.0


def test_the_main_function_takes_the_line_away_when_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, screen: Screen, clock: Clock
) -> None:
    """
    Ctrl-C leaves a clean line, and no thread.
    """
    import threading

    def interrupted(args: Any) -> int:
        clock.now = 9.0
        with progress_of("looking") as line:
            line(0.5)
            raise KeyboardInterrupt

    monkeypatch.setattr("onceward.cli.key.mint", lambda: interrupted(None))

    with redirect_stderr(screen):
        code = main(["key", "mint"])

    assert code == 130
    assert screen.getvalue().endswith("\r\x1b[K")
    assert [one for one in threading.enumerate() if one.name == "onceward-progress"] == []
