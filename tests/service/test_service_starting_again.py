"""`onceward serve` where it used to be a dead end: a second start, a port in use, a missing right."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from onceward.cli import main
from onceward.service.network.port_holder import find_port_holder
from onceward.stores import open_store
from servers import postgres

pytestmark = pytest.mark.slow

SCRIPT = Path(sys.executable).parent / "onceward"
WAIT_SECONDS = 120


def typed(line: str, folder: Path) -> str:
    """What a line for the shell prints; curl does not talk besides."""
    if "curl" in line and shutil.which("curl") is None:
        pytest.skip("NOT TESTED HERE: no curl on this machine, which the printed lines are for")
    line = line.replace("curl ", "curl -sS ", 1)
    done = subprocess.run(line, shell=True, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done
    return done.stdout


def started(folder: Path, *options: str) -> str:
    """What a service prints when it is started by a name that is not on the PATH; it is stopped then."""
    with serving(folder, *options) as (text, _):
        return text


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[str, str]]:
    """A service, what it printed until it was done with that, and its address."""
    command = [str(SCRIPT), "serve", "--port", "0", "--folder", "data", *options]
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder, env=environment
    )
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if "Stop with Ctrl-C" in line:
            break
    try:
        yield text, re.findall(r"http://[^\s/]+", text)[0]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
        process.stdout.close()


@pytest.mark.fault("serve-a-second-start-is-a-dead-end")
def test_a_second_start_prints_the_command_that_makes_a_token(tmp_path: Path) -> None:
    """
    As it can be typed here, with its store: typed, it makes one. Without a tenant, the command for that is first.
    """
    first = started(tmp_path, "--first-token", "none")
    commands = re.findall(r"^  (\S*onceward .*)$", first, re.M)
    made = [
        subprocess.run(
            one, shell=True, capture_output=True, text=True, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, check=False
        )
        for one in commands
    ]
    second = started(tmp_path)

    assert [one.split(" ")[1:3] for one in commands] == [["tenant", "create"], ["token", "create"], ["token", "list"]]
    assert all("--store sqlite:///" in one for one in commands)
    assert [one.returncode for one in made] == [0, 0, 0], made
    assert re.search(r"ow_(?:live|test)_[0-9a-z]{12}_[0-9A-Za-z]{39}", made[1].stdout)
    assert "Tokens are shown only once, when they are made" in second
    assert "tenant create" not in second
    assert "onceward token create --tenant demo --environment test --role admin --store sqlite:///" in second


@pytest.mark.fault("serve-a-second-start-has-nothing-to-try")
def test_whatever_the_start_there_are_three_lines_to_try_and_the_dashboards_address(tmp_path: Path) -> None:
    """
    The first time with the token itself, later with the one that the printed command makes: what was written is there.
    """
    answers: list[str] = []
    for number in range(2):
        with serving(tmp_path, "--first-token", "stdout") as (text, address):
            made = re.findall(r"^  (\S*onceward token create .*)$", text, re.M)
            given = f"TOKEN=$({made[0]}); " if made else ""
            lines = [line.strip() for line in text.splitlines() if line.startswith("  curl ")]
            answers += [typed(given + line, tmp_path) for line in lines]
            answers.append(typed(f"curl -i {address}/dashboard/login", tmp_path))

            assert (bool(made), len(lines)) == (number == 1, 3)
            assert f"{address}/dashboard" in text

    first, later = answers[2], answers[6]
    assert "idempotency-replayed" not in first.lower()
    assert "idempotency-replayed: true" in later.lower()
    assert [answers[at].splitlines()[0] for at in (2, 3, 6, 7)] == ["HTTP/1.1 200 OK"] * 4


@pytest.mark.fault("serve-a-port-in-use-is-a-dead-end")
def test_a_port_in_use_names_who_has_it_and_another_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """
    Here it is this very process; what it was started with is not told, because it may be secret.
    """
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        code = main(["serve", "--port", str(port), "--folder", str(tmp_path / "data")])
        holder = find_port_holder(port)

    said = capsys.readouterr().err
    assert code == 2
    assert f"cannot listen on 127.0.0.1:{port}: process {os.getpid()}" in said
    assert f"--port {port + 1}" in said
    assert holder is not None
    assert holder.pid == os.getpid()


def test_a_holder_is_named_without_its_options(tmp_path: Path) -> None:
    """
    A made-up /proc: an option, a URL or an assignment ends what is shown; without a process, nobody is named.
    """
    (tmp_path / "net").mkdir()
    line = "0: 0100007F:{:04X} 00000000:0000 0A 0:0 0:0 0 1000 0 4711 1"
    (tmp_path / "net" / "tcp").write_text(f"heading\n{line.format(8600)}\n")
    assert find_port_holder(8600, tmp_path) is None
    (tmp_path / "17" / "fd").mkdir(parents=True)
    (tmp_path / "17" / "fd" / "3").symlink_to("socket:[4711]")
    (tmp_path / "17" / "cmdline").write_bytes(b"/usr/bin/onceward\0serve\0--store\0postgresql://u:secret@h/d\0")

    assert str(find_port_holder(8600, tmp_path)) == "process 17 (onceward serve)"
    assert find_port_holder(8601, tmp_path) is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--host", "203.0.113.7"], "--host 127.0.0.1 (this machine only)"),
        (
            ["--folder", "/proc/nowhere/data"],
            "Choose another with --folder FOLDER, or create it for this user: sudo install",
        ),
    ],
)
def test_a_place_that_cannot_be_used_says_what_to_type(
    options: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    An address of another machine; a folder that cannot be made.
    """
    folder = ["--folder", str(tmp_path / "data")] if "--folder" not in options else []

    code = main(["serve", "--port", "0", *options, *folder])

    assert (code, says in capsys.readouterr().err) == (2, True)


@pytest.mark.skipif(not postgres.wanted(), reason="STORES leaves PostgreSQL out")
def test_a_role_without_rights_is_told_which_command_prints_the_grants(capsys: pytest.CaptureFixture[str]) -> None:
    """
    On a real server, as a role that owns nothing.
    """
    server = postgres.running()
    server.execute("CREATE DATABASE without_rights")
    url = server.url("without_rights")
    open_store(url).close()
    with psycopg.connect(url, autocommit=True) as admin:
        assert main(["store", "init", "--store", url]) == 0
        admin.execute("CREATE ROLE nobody_much LOGIN")
    stranger = re.sub(r"//[^@/]*@", "//nobody_much@", url) if "@" in url else url.replace("//", "//nobody_much@", 1)
    capsys.readouterr()

    code = main(["records", "list", "--store", stranger])

    said = capsys.readouterr().err
    assert (code, "this role lacks a privilege" in said) == (4, True), said
    assert "`onceward store init --sql` prints it all, with the GRANTs" in said
