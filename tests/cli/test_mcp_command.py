"""`onceward mcp`: what is typed, and what is refused before any server is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onceward.cli.mcp import COMMANDS, _scope_of

TOUCH = ["--", sys.executable, "-c", "open('started', 'w')"]


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["--run", "r"], "name one server: either its command after --, or its address with --url"),
        (["--run", "r", "--url", "http://127.0.0.1:1/mcp", *TOUCH], "name one server"),
        (
            TOUCH,
            "name the piece of work that the calls belong to, with --run ID or ONCEWARD_MCP_RUN; or use --require-keys",
        ),
        (["--run", "r", "--require-keys", *TOUCH], "name the piece of work"),
        (["--run", "r", "--header", "A: b", *TOUCH], "--header goes with --url"),
        (["--run", "r", "--url", "http://h/", "--header", "nonsense"], "--header takes 'Name: value'"),
        (
            ["--run", "r", "--url", "http://h/", "--header", "A: env:NOT_SET"],
            "in the variable NOT_SET, which is not set",
        ),
        (["--run", "r", "--url", "ftp://h/"], "--url is an address such as https://example.com/mcp"),
        (["--run", "r", "--tools", "nowhere.toml", *TOUCH], "nowhere.toml cannot be read"),
        (["--run", "r", "--scope", "a scope", *TOUCH], "scope"),
        (["--run", "r" * 1_001, *TOUCH], "the name of a run is 1 to 1,000 characters"),
        (["--run", "r", "--store", "sqlite:///nowhere.db", *TOUCH], "there is no file"),
        (["--run", "r", "--delivered", "never", *TOUCH], "invalid choice"),
    ],
)
def test_a_mistake_is_told_before_the_server_is_started(typed: list[str], says: str, store: str, run: Any) -> None:
    """
    One line, exit code 2, and nothing was started.
    """
    ran = run("mcp", *typed)

    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert not Path("started").exists()


def test_the_run_may_be_in_the_environment(store: str, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A program that starts its servers for each piece of work says which one in ONCEWARD_MCP_RUN.
    """
    monkeypatch.setenv("ONCEWARD_MCP_RUN", "order-42")
    ran = run("mcp", *TOUCH)

    assert ran.code == 0
    assert Path("started").exists()


@pytest.mark.parametrize("code", [0, 1, 7])
def test_the_exit_code_is_the_servers(code: int, store: str, run: Any) -> None:
    """
    Whoever starts the proxy sees what it would see of the server.
    """
    assert run("mcp", "--run", "r", "--", sys.executable, "-c", f"raise SystemExit({code})").code == code


def test_arguments_of_the_server_are_its_own(store: str, folder: Path) -> None:
    """
    Whatever stands after -- goes to the server, also what looks like our options, and another --.
    """
    server = [sys.executable, "-c", "import sys; print(sys.argv[1:])", "--run", "x", "--", "-y"]
    ran = subprocess.run(
        [sys.executable, "-m", "onceward", "mcp", "--run", "r", "--", *server],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip

    assert (ran.stdout, ran.stderr) == ("['--run', 'x', '--', '-y']\n", "")


def test_each_server_has_a_scope_of_its_own() -> None:
    """
    Two servers may have a tool of one name; without --scope, neither is given the other's answers.
    """
    scopes = {_scope_of(["npx", "a"], None), _scope_of(["npx", "b"], None), _scope_of(["npx", "", "a"], None)}
    scopes |= {_scope_of([], "https://example.com/mcp")}

    assert len(scopes) == 4
    assert all(one.startswith("mcp:") for one in scopes)


def test_the_examples_are_commands_of_ours() -> None:
    """
    The examples in the help can be parsed, as far as they can be tried without a network.
    """
    assert all(one.startswith("onceward mcp --run order-42 ") for one in COMMANDS[0].examples)
