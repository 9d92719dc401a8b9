"""`onceward mcp` as a process before a server of a few lines: bytes, exit codes, signals, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proxy_kit import call, line

from onceward.cli import main

pytestmark = pytest.mark.slow

SERVER = [sys.executable, str(Path(__file__).with_name("raw_server.py"))]
PATIENCE = 120
COMMAND = ("-m", "onceward")
IMPATIENT = (
    "-c",
    "import sys, onceward.agents.mcp_proxy.server_process as server; from onceward.cli import main; "
    "server.CLOSE_SECONDS = 0.1; sys.exit(main(sys.argv[1:]))",
)
"""One that does not wait five seconds, twice, for a server that will not end by itself."""


def _hears_hang_ups() -> None:
    """What `nohup` started ignores them, and so would the server."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Process:
    """A proxy, its stdin and stdout."""

    def __init__(
        self, *options: str, server: list[str] = SERVER, run: str = "order-42", program: tuple[str, ...] = COMMAND
    ) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable, *program, "mcp", "--store", "sqlite:///agent.db", "--run", run, *options,
                "--scope", "test:raw", "--", *server,
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, preexec_fn=_hears_hang_ups,
        )  # fmt: skip

    def says(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def hears(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ended(self) -> tuple[int, bytes, str]:
        """Close its stdin; its exit code, and what else it wrote."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err.decode()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Path]:
    """An empty folder with a store."""
    monkeypatch.chdir(tmp_path)
    assert main(["store", "init", "--store", "sqlite:///agent.db"]) == 0
    yield tmp_path


def effects() -> list[str]:
    """What the server did."""
    path = Path("effects")
    return path.read_text().split() if path.exists() else []


def states() -> list[str]:
    """The states of the records of calls."""
    from onceward import Gate

    with Gate("sqlite:///agent.db", scope="test:raw") as gate:
        return sorted(one.state for one in gate.records.list() if one.operation != "delivered")


def test_bytes_stderr_and_the_exit_code_are_the_servers() -> None:
    """
    Long lines, odd spelling; stderr as it is; the exit code of the server is that of the proxy.
    """
    process = Process()
    lines = [b'{ "jsonrpc":"2.0", "id":1,"x":1.50 }', line(id=2, method="x", big="y" * 5_000_000).strip()]
    heard = []
    for one in lines:
        process.says(one + b"\n")
        heard.append(process.hears())
    code, _, stderr = process.ended()

    assert heard == [b'{"echo":' + one + b"}\n" for one in lines]
    assert code == 7
    assert stderr == "a line on stderr\n"


def test_what_is_under_way_when_the_client_leaves_is_stored() -> None:
    """
    stdin ends right after a call: it is made, its result is stored, and only then the server's stdin is closed.
    """
    process = Process()
    process.says(call(1, "charge"))
    code, out, _ = process.ended()

    assert json.loads(out)["result"] == {"content": []}
    assert (effects(), states(), code) == (["charge"], ["settled"], 7)


@pytest.mark.parametrize(("tool", "code"), [("exit", 5), ("die", 137)])
def test_a_server_that_ends_in_a_call_leaves_doubt_and_its_exit_code(tool: str, code: int) -> None:
    """
    The client is told, the proxy ends as the server did, and the next proxy does not run the call.
    """
    first = Process()
    first.says(call(1, tool))
    told = json.loads(first.hears())
    first_code = first.process.wait(PATIENCE)
    first.ended()
    second = Process()
    second.says(call(1, tool))
    _, out, _ = second.ended()

    assert first_code == code
    assert "may have happened" in told["result"]["content"][0]["text"]
    assert "may already have happened" in json.loads(out)["result"]["content"][0]["text"]
    assert (effects(), states()) == ([tool], ["in_doubt"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_go_to_the_server(number: signal.Signals) -> None:
    """
    The server ends as it likes to, and the proxy with its exit code; the call that it had is in doubt.
    """
    process = Process()
    process.says(call(1, "hang"))
    assert json.loads(process.hears())["method"] == "notifications/hangs"
    process.process.send_signal(number)
    told = json.loads(process.hears())
    code, _, _ = process.ended()

    assert code == (9 if number == signal.SIGTERM else 128 + number)
    assert "may have happened" in told["result"]["content"][0]["text"]
    assert states() == ["in_doubt"]


def test_a_call_that_hangs_is_in_doubt_once_the_grace_is_over() -> None:
    """
    The client has left, the call does not end: the server is ended, and the record says that nobody knows.
    """
    process = Process("--grace", "0.2")
    process.says(call(1, "hang"))
    process.hears()
    code, _, _ = process.ended()

    assert (code, states()) == (9, ["in_doubt"])


def test_a_line_of_the_server_that_is_too_long_ends_it() -> None:
    """
    Nobody can know whether an answer is in it: the call is in doubt, and stderr says why.
    """
    process = Process(program=IMPATIENT)
    process.says(call(1, "flood"))
    told = json.loads(process.hears())
    code, _, stderr = process.ended()

    assert "may have happened" in told["result"]["content"][0]["text"]
    assert code == 1
    assert "a line has more than 67,108,864 bytes" in stderr


def test_a_proxy_that_is_killed_before_its_save_leaves_doubt() -> None:
    """
    SIGKILL while the server has the call: the next proxy sees that its holder is dead, and does not run it.
    """
    first = Process()
    first.says(call(1, "hang"))
    first.hears()
    first.process.kill()
    first.ended()
    second = Process()
    second.says(call(1, "hang"))
    _, out, _ = second.ended()

    assert "may already have happened" in json.loads(out)["result"]["content"][0]["text"]
    assert effects() == ["hang"]


def test_without_the_proxy_the_same_kill_has_two_effects() -> None:
    """
    The negative control: a client starts the server anew, and calls again.
    """
    for _ in range(2):
        process: Any = subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(call(1, "hang"))
        process.stdin.flush()
        process.stdout.readline()
        process.kill()
        process.communicate()

    assert effects() == ["hang", "hang"]


def test_a_server_that_cannot_be_started_is_told_in_one_line() -> None:
    """
    No traceback: which command, why, and what to do.
    """
    code, out, stderr = Process(server=["there-is-no-such-server"]).ended()

    assert (code, out) == (2, b"")
    assert stderr.startswith("onceward: there-is-no-such-server cannot be started: No such file or directory")


def test_answers_that_nobody_reads_are_stored_all_the_same() -> None:
    """
    The client has closed its end: the call ends, its result is stored, and the next client is given it.
    """
    first = Process()
    assert first.process.stdout is not None
    first.process.stdout.close()
    first.says(call(1, "charge"))
    assert first.process.stdin is not None
    first.process.stdin.close()
    first.process.wait(PATIENCE)
    assert first.process.stderr is not None
    first.process.stderr.close()
    second = Process()
    second.says(call(2, "charge"))
    _, out, _ = second.ended()

    assert effects() == ["charge"]
    assert json.loads(out)["result"]["_meta"] == {"dev.onceward/replayed": True}
