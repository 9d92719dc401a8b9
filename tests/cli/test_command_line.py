"""How commands fail, and how the command behaves among other programs."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import onceward
from onceward._core import errors
from onceward.cli import build_parser, exit_codes, main
from onceward.cli.command_table import GROUPS
from onceward.gate import Sealed
from onceward.stores import sqlite

EXIT_CODES = {
    "record_not_found": 1,
    "requeue_failed": 1,
    "tenant_not_found": 1,
    "token_not_found": 1,
    "usage": 2,
    "digest_ambiguous": 2,
    "configuration": 2,
    "scope_missing": 2,
    "key_invalid": 2,
    "key_missing": 2,
    "request_invalid": 2,
    "result_invalid": 2,
    "store_unavailable": 4,
    "store_contended": 4,
    "store_full": 4,
    "record_refused": 4,
    "store_corrupt": 4,
    "unrecorded": 4,
    "schema_mismatch": 4,
    "seal_broken": 4,
    "seal_key_missing": 4,
    "source_unknown": 1,
}
"""Everything else is 3: the record does not allow it."""


def typed_for_real(*typed: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Type a command, in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONCEWARD_")}
    return subprocess.run(
        [sys.executable, "-m", "onceward", *typed],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment | options.pop("env", {}),
        **options,
    )


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser of every command."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield parser
    for action in below:
        for child in action.choices.values():
            yield from leaves(child)


LONG = ("jitter", "collapse", "storm")
COMMANDS = {parser.prog: parser for parser in leaves(build_parser())}
EXAMPLES = [
    pytest.param(line.strip(), id=f"{name} {number}")
    for name, parser in {"onceward": build_parser(), **COMMANDS}.items()
    for number, line in enumerate(parser.format_help().splitlines())
    # A service runs until it is told to stop: `tests/service` starts it, with these flags and others.
    # A proxy starts a server, and runs until its client leaves: `test_mcp_command.py` has it.
    # Three simulations take seconds each: `tests/testing/simulator` has them, and `policy` is run here.
    if line.startswith("  onceward ")
    and not line.startswith(
        ("  onceward serve", "  onceward dashboard", "  onceward mcp", *(f"  onceward simulate {one}" for one in LONG))
    )
    and "--url http" not in line
    # Of a server: `test_command_store_servers.py` has them.
    and not re.search(r"--store (redis|postgresql)", line)
]


class TestHelp:
    """What --help says is true."""

    @pytest.mark.parametrize("line", EXAMPLES)
    def test_the_examples_run_as_they_stand(
        self, line: str, doubted: Any, given_up: Any, shop: Any, folder: Path, run: Any, request: pytest.FixtureRequest
    ) -> None:
        """
        With a store named and the record, the letter, the tenant and the token there that they speak of; `# exit N`
        says how one ends that fails.
        """
        if line.startswith(("onceward token", "onceward tenant")):
            request.getfixturevalue("customers")
        if line.startswith(("onceward hooks test", "onceward hooks requeue")):
            request.getfixturevalue("given_up_event")
        if line.startswith("onceward relay") or "msg_" in line or "--of messages" in line:
            request.getfixturevalue("outgoing")
        if line.startswith("onceward journal"):
            request.getfixturevalue("attempts")
        if line.startswith("onceward migrate"):
            with closing(sqlite3.connect(folder / "app.db")) as database:
                database.execute("CREATE TABLE expenses (id INTEGER PRIMARY KEY)")
        if " onceward-data" in line:
            request.getfixturevalue("service_folder")
        doubted("charge:order-17")
        given_up("charge:order-18")
        shop()
        (folder / "call.json").write_text('{"order": 17}')
        (folder / "serve.toml").write_text("retain = 3600\n")
        (folder / "seal-keys.txt").touch(mode=0o600)
        (folder / "seal-keys.txt").write_text(f"{Sealed.new_key()}\n")
        typed, _, code = line.partition("  # exit ")
        if line.startswith("onceward audit"):
            run("records", "release", "e9bb26a3a693", "--yes")
        if line.startswith("onceward ledger verify"):
            run("ledger", "customer", "acme", "cus_1", "--environment", "test")

        ran = run(*shlex.split(typed)[1:])

        assert int(code or 0) == ran.code, ran.err

    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_command_has_an_example_and_its_exit_codes(self, name: str) -> None:
        """
        An example of the command itself; the codes that it can end with.
        """
        text = COMMANDS[name].format_help()

        assert any(line.startswith(f"  {name}") for line in text.splitlines())
        assert "exit codes:\n  0    fine\n" in text
        assert "--json" in text

    def test_the_page_of_exit_codes_is_what_the_commands_say(self) -> None:
        """
        "exit codes on one page": written from the table by `python tools/exit_codes_page.py`; what 1 means is said of
        every command that may end with it.
        """
        tool = Path(__file__).parents[2] / "tools" / "exit_codes_page.py"
        found = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, check=False)
        unsaid = [
            name for name, parser in COMMANDS.items() if f"  1    {exit_codes.MEANINGS[1]}" in parser.format_help()
        ]

        assert (found.returncode, found.stderr) == (0, "")
        assert unsaid == []

    @pytest.mark.parametrize("name", COMMANDS)
    def test_help_begins_with_an_example(self, name: str) -> None:
        """
        Before the usage, the arguments, and everything else that has to be read.
        """
        text = COMMANDS[name].format_help()

        assert text.index(f"\n  {name}") < text.index("usage: ")

    @pytest.mark.parametrize("typed", [["--help"], ["records", "--help"], ["records", "list", "--help"]])
    def test_help_is_an_answer(self, typed: list[str], run: Any) -> None:
        """
        On stdout, with exit code 0.
        """
        ran = run(*typed)

        assert (ran.code, ran.err) == (0, "")
        assert "exit codes:" in ran.out

    @pytest.mark.parametrize(
        "typed", [[], ["records"], ["key"], ["store"], ["dead"], ["token"], ["tenant"], ["ledger"], ["relay"]]
    )
    def test_too_little_shows_what_there_is(self, typed: list[str], run: Any) -> None:
        """
        On stderr, with exit code 2: a script that forgot its command must notice.
        """
        ran = run(*typed)

        assert (ran.code, ran.out) == (2, "")
        assert "commands:" in ran.err

    def test_the_version_is_the_packages(self, run: Any) -> None:
        """
        One line.
        """
        assert run("--version") == (0, f"onceward {onceward.__version__}\n", "")


MODULES_MAX = 12
"""Of ours, that `onceward --version` may load: ten, and a little room."""


@pytest.mark.parametrize("typed", ["--version", "--help", "recrods"])
def test_what_runs_no_command_imports_next_to_nothing(typed: str) -> None:
    """
    Counted in modules, which no busy machine changes: a few of ours, no database, no event loop, no TLS.
    """
    script = (
        "import sys; from onceward.cli import main; main(sys.argv[1:]);print('loaded', *sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", script, typed], capture_output=True, text=True, timeout=60, check=True)
    loaded = ran.stderr.rpartition("loaded ")[2].split()

    assert len([name for name in loaded if name.partition(".")[0] == "onceward"]) <= MODULES_MAX
    assert {"sqlite3", "asyncio", "ssl"}.isdisjoint(loaded)


@pytest.mark.parametrize("group", GROUPS)
def test_a_command_imports_no_other_group(group: str) -> None:
    """
    `onceward key --help` does not wait for what `onceward serve` needs.
    """
    script = (
        "import sys; from onceward.cli import main; main([sys.argv[1], '--help']);"
        "print('loaded', *sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", script, group], capture_output=True, text=True, timeout=60, check=True)
    loaded = ran.stderr.rpartition("loaded ")[2].split()
    others = {"serve": {"contract"}}.get(group, set())  # The texts beside settings are read as those of the contract.

    assert {one for one in GROUPS if f"onceward.cli.{one}" in loaded} - {group} == others


class TestBadInput:
    """One line that says what is wrong, an exit code, and never a traceback."""

    @pytest.mark.parametrize(
        ("typed", "code", "says"),
        [
            ("recrods list", 2, "there is no command 'recrods'. Did you mean records?"),
            ("records lst", 2, "onceward records --help"),
            ("records list --lmit 3", 2, "no option --lmit. Did you mean --limit? See `onceward records list --help`"),
            ("records list --stat in_doubt", 2, "Did you mean --state?"),
            ("records list --zzz=3", 2, "there is no option --zzz. See"),
            ("records show abcdef fedcba", 2, "one argument too many: 'fedcba'"),
            ("--verson", 2, "Did you mean --version?"),
            ("nothing-like-it", 2, "there is no command 'nothing-like-it'. See `onceward --help`"),
            ("records list --limit 0", 2, "from 1 to 10000"),
            ("records list --limit 10001", 2, "from 1 to 10000"),
            ("records list --limit ten", 2, "from 1 to 10000"),
            ("records list --limit 99999999999999999999", 2, "from 1 to 10000"),
            ("records list --state lost", 2, "in_doubt"),
            ("records list --after xyz", 2, "hex digits"),
            ("records purge --limit 5000", 2, "from 1 to 1000"),
            ("records show", 2, "no record was named"),
            ("records show --scope live:acme", 2, "both --scope and --key"),
            ("records show abcdef --scope live:acme --key a", 2, "not both"),
            ("records show abcdef", 1, "no record's id begins with abcdef"),
            ("records show abc", 2, "4 to 64 hex digits"),
            ("records show nothexatall", 2, "4 to 64 hex digits"),
            (f"records show {'a' * 65}", 2, "4 to 64 hex digits"),
            (f"records show {'a' * 64}", 1, "no record"),
            ("records show 0000", 1, "no record"),
            ("records show --scope live:acme --key never:seen", 1, "no record of that key"),
            ("records show --scope live:acme --key 'a b'", 2, "spaces"),
            ("records show --scope '' --key a", 2, "scope"),
            ("records show --scope live:acme --key test:a", 2, "environment"),
            ("records release abcdef", 2, "--yes"),
            ("records release abcdef --yes", 1, "no record"),
            ("records reconcile abcdef", 2, "--happened"),
            ("records reconcile abcdef --happened 1 --did-not-happen", 2, "not allowed with"),
            ("records reconcile abcdef --happened '{'", 2, "takes JSON"),
            ("records reconcile abcdef --happened @nowhere", 2, "cannot read 'nowhere'"),
            ("records reconcile abcdef --happened 1 --retain soon", 2, "number of seconds"),
            ("records reconcile abcdef --happened 1 --retain nan", 2, "finite"),
            ("records reconcile abcdef --happened 1 --retain -5", 2, "greater than zero"),
            ("records reconcile abcdef --did-not-happen --retain 5", 2, "--happened"),
            ("records list --store sqlite3:///agent.db", 2, "did you mean sqlite://?"),
            ("records list --store mongodb://host/db", 2, "no store is called mongodb://"),
            ("records list --store agent.db", 2, "sqlite:///agent.db"),
            ("records list --store 'sqlite://[x'", 2, "cannot be read"),
            ("records list --store sqlite://agent.db", 2, "three slashes"),
            ("records list --store sqlite:///", 2, "names no file"),
            ("records list --store sqlite:///agent.db?bsy=2", 2, "no option bsy"),
            ("records list --store sqlite:///nowhere.db", 2, "there is no file nowhere.db"),
            ("records list --store sqlite:///nowhere/agent.db", 2, "there is no file nowhere/agent.db"),
            ("records list --store sqlite:///agent.db/agent.db", 2, "there is no file"),
            ("records list --store sqlite:///.", 2, "is a folder"),
            ("store init --store sqlite:///nowhere/agent.db", 2, "does not exist"),
            ("store check --store memory://a/path", 2, "no path"),
            ("key explain", 2, "--recipe"),
            ("key explain a --recipe b", 2, "not allowed with"),
        ],
    )
    def test_is_refused(self, typed: str, code: int, says: str, store: str, run: Any) -> None:
        """
        For people one line on stderr, for programs a document there; stdout stays empty.
        """
        text, document = run(*shlex.split(typed)), run(*shlex.split(typed), "--json")

        assert (code, "", 1) == (text.code, text.out, len(text.err.splitlines()))
        assert text.err.startswith("onceward: ")
        assert says in text.err
        assert (code, "") == (document.code, document.out)
        assert json.loads(document.err).keys() == {"code", "message", "retry", "retryAfterSeconds"}

    def test_no_store_named_says_both_ways_to_name_one(self, folder: Path, run: Any) -> None:
        """
        The option, and the environment variable.
        """
        ran = run("records", "list")

        assert ran.code == 2
        assert "--store" in ran.err
        assert "ONCEWARD_STORE" in ran.err

    def test_the_option_wins_over_the_variable(self, store: str, run: Any) -> None:
        """
        What is typed is meant.
        """
        ran = run("records", "list", "--store", "memory://")

        assert ran == (0, "", "no records\n")

    def test_a_key_is_not_shown_in_an_error(self, store: str, run: Any) -> None:
        """
        People put personal data into keys: an error has at most a digest.
        """
        keys = ["bob@example.com", "bob@example.com with a blank", "bob@example.com" * 20, "test:bob@example.com"]
        errors = [run("records", "show", "--scope", "live:acme", "--key", key).err for key in keys]

        assert [error for error in errors if "bob" in error] == []

    @pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
    def test_a_file_that_may_not_be_read_is_refused(self, store: str, folder: Path, run: Any) -> None:
        """
        The store is not usable: exit code 4, and what is needed.
        """
        (folder / "agent.db").chmod(0)

        ran = run("records", "list")

        assert ran.code == 4
        assert "needs to read and write" in ran.err


class TestExitCodes:
    """Which error means which exit code."""

    @pytest.mark.parametrize(
        "error",
        [
            *(one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.OncewardError)),
            exit_codes.NoSuchRecord,
            exit_codes.UsageError,
            exit_codes.DigestAmbiguous,
        ],
    )
    def test_every_error_has_one(self, error: type[errors.OncewardError]) -> None:
        """
        By its class, so that a new error falls under the nearest one that is known.
        """
        assert EXIT_CODES.get(error.code, 3) == exit_codes.exit_code_of(error.__new__(error))

    def test_an_error_is_told_with_its_advice(self, store: str, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Code, whether to retry, and when.
        """

        def away(*_: object) -> None:
            raise errors.StoreUnavailable("the disk is asleep", retry_after_seconds=1.5)

        monkeypatch.setattr(sqlite.SqliteStore, "scan", away)

        text, document = run("records", "list"), run("records", "list", "--json")

        assert text == (4, "", "onceward: the disk is asleep\n")
        assert json.loads(document.err) == {
            "code": "store_unavailable",
            "message": "the disk is asleep",
            "retry": "same-key",
            "retryAfterSeconds": 1.5,
        }

    def test_an_interrupt_is_130(self, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        As shells count it; no traceback.
        """

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(sqlite.SqliteStore, "purge", interrupt)

        assert main(["records", "purge", "--all"]) == 130


class TestAsAProcess:
    """The command as a program among others."""

    def test_python_dash_m_and_the_script_are_the_same(self, folder: Path) -> None:
        """
        Where scripts are not on the path, the module is.
        """
        script = Path(sys.executable).parent / "onceward"

        installed = subprocess.run(
            [script, "--version"], capture_output=True, text=True, timeout=60, check=False, cwd=folder
        )

        assert (
            installed.returncode,
            installed.stdout,
            installed.stderr,
        ) == (0, f"onceward {onceward.__version__}\n", "")
        assert installed.stdout == typed_for_real("--version", cwd=folder).stdout

    def test_a_day_in_an_operators_life(self, folder: Path) -> None:
        """
        Make a store, find what is in doubt, decide it; each command in a process of its own.
        """
        environment = {"ONCEWARD_STORE": "sqlite:///agent.db"}
        script = (
            "from onceward import Gate\n"
            "gate = Gate('sqlite:///agent.db', scope='live:acme')\n"
            "def charge(): raise RuntimeError('connection reset')\n"
            "gate.run('charge:order-17', charge)\n"
        )
        assert typed_for_real("store", "init", cwd=folder, env=environment).returncode == 0
        subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False, cwd=folder)

        listed = typed_for_real("records", "list", "--state", "in_doubt", "--json", cwd=folder, env=environment)
        [found] = json.loads(listed.stdout)["records"]
        decided = typed_for_real(
            *("records", "reconcile", found["digest"], "--happened", "-", "--json"),
            cwd=folder,
            env=environment,
            input='{"charge": "ch_1"}',
        )

        assert (decided.stderr, json.loads(decided.stdout)["state"]) == ("", "settled")
        again = typed_for_real("records", "list", "--state", "in_doubt", cwd=folder, env=environment)
        assert (again.returncode, again.stdout, again.stderr) == (0, "", "no records are in doubt\n")

    def test_a_reader_that_has_seen_enough_causes_no_noise(self, folder: Path) -> None:
        """
        `onceward ... | head`: no traceback, and the code that shells give a closed pipe.
        """
        process = subprocess.Popen(
            [sys.executable, "-m", "onceward", "contract"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()

        noise = process.stderr.read()
        process.stderr.close()

        assert (process.wait(timeout=60), noise) == (141, b"")

    def test_an_interrupt_from_the_keyboard_causes_no_traceback(self, folder: Path) -> None:
        """
        While it waits for its input, which never comes.
        """
        process = subprocess.Popen(
            [sys.executable, "-m", "onceward", "key", "explain", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
        )
        try:
            _wait_until_it_reads(process.pid)
            process.send_signal(signal.SIGINT)
            _, noise = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()

        assert (process.returncode, noise) == (130, b"")


def _wait_until_it_reads(pid: int) -> None:
    """Until the process sleeps in a read of its stdin, as the kernel tells."""
    import time

    if not Path(f"/proc/{pid}/syscall").exists():
        pytest.skip("this system does not tell what a process waits for")
    for _ in range(1_000):
        # On x86-64 and on arm64, where the numbers of `read` are 0 and 63; its first argument is the file, 0.
        words = Path(f"/proc/{pid}/syscall").read_text().split()
        if words[:2] in (["0", "0x0"], ["63", "0x0"]):
            return
        time.sleep(0.01)
    pytest.skip("it never came to read")
