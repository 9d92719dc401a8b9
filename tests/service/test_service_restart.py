"""A service is replaced while a crowd calls it: nobody is refused, nothing is reset, and each key has one effect."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from raw_http import RawConnection, until
from service_support import INSERT, Served

from onceward import ConfigurationError
from onceward.service.network.sockets import handed_over_socket

pytestmark = pytest.mark.slow

CROWD = 8
RESTARTS = 3
_HAND_OVER = """
import os, sys
os.dup2(int(os.environ.pop("SOCKET_FD")), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[1], sys.argv[1:])
"""
WITH_SOCKET = (sys.executable, "-c", _HAND_OVER)
"""What systemd does: the socket is descriptor 3, and two variables say so."""


class Holder:
    """Holds a listening socket, as systemd would, and starts services on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=1_024)
        self.socket.set_inheritable(True)
        self.token = ""

    def start(self) -> Served:
        number = self.socket.fileno()
        served = Served.started(
            self.folder, before=WITH_SOCKET, pass_fds=(number,), SOCKET_FD=str(number), PYTHONUNBUFFERED="1"
        )
        self.token = served.token = served.token or self.token
        return served


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    made = Holder(tmp_path)
    yield made
    made.socket.close()


class Crowd:
    """Clients that write a row under a new key again and again, each time on a new connection."""

    def __init__(self, served: Served, path: str) -> None:
        self._where = urlsplit(served.address).netloc
        self._path, self._token = path, served.token
        self._stop = threading.Event()
        self.numbers = itertools.count()
        self.written: list[str] = []
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(CROWD)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            name = f"row-{next(self.numbers)}"
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json",
                       "Idempotency-Key": name}  # fmt: skip
            connection = http.client.HTTPConnection(self._where, timeout=120)
            try:
                connection.request("POST", f"{self._path}/query", json.dumps({"sql": INSERT, "params": [name, "x"]}),
                                   headers)  # fmt: skip
                answer = connection.getresponse()
                body = answer.read()
                if answer.status == 200:
                    self.written.append(name)
                else:
                    self.failures.append(f"{answer.status} {body[:200]!r}")
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
            finally:
                connection.close()

    def advance(self) -> None:
        """Wait until each client has written some more."""
        enough = len(self.written) + 5 * CROWD
        until(lambda: len(self.written) >= enough or self.failures)

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(180)


@pytest.mark.parametrize("overlap", [True, False], ids=["the next starts first", "one after the other"])
@pytest.mark.fault("a-handed-over-socket-is-not-used")
@pytest.mark.dose(1)
def test_a_restart_refuses_and_resets_nobody(holder: Holder, overlap: bool) -> None:
    """
    Three restarts on a socket that somebody holds. With an overlap two services work on one folder for a while; without
    one, callers wait in the socket's queue. No error, and every row once, under its key.
    """
    service = holder.start()
    path = service.database()
    crowd = Crowd(service, path)
    codes = []
    try:
        for _ in range(RESTARTS):
            crowd.advance()
            before = service
            if overlap:
                service = holder.start()
                crowd.advance()
                codes.append(before.stop())
            else:
                codes.append(before.stop())
                service = holder.start()
        crowd.advance()
    finally:
        crowd.end()
        rows = service.count(path)
        replays = [service.query(path, INSERT, [name, "x"], key=name) for name in crowd.written[::20]]
        codes.append(service.stop())

    assert crowd.failures == []
    assert rows == len(crowd.written) == next(crowd.numbers)
    assert {one.headers.get("idempotency-replayed") for one in replays} == {"true"}
    assert codes == [0] * (RESTARTS + 1)


@pytest.mark.fault("a-restart-resets-new-connections")
def test_a_connection_that_was_just_made_may_still_bring_its_request(tmp_path: Path) -> None:
    """
    SIGTERM between connecting and sending: the request is answered, and told that the connection ends. One that is idle
    after a response, too.
    """
    served = Served.started(tmp_path)
    fresh, idle = RawConnection(served.address), RawConnection(served.address)
    first = idle.head("GET", "/health").answer()
    with RawConnection(served.address) as last:
        last.head("GET", "/health").answer()  # Those before are accepted.
    served.process.terminate()
    until(lambda: "Shutting down" in served.log)
    answers = [fresh.head("GET", "/health").answer(), idle.head("GET", "/health").answer()]
    ended = [fresh.has_ended(), idle.has_ended()]
    code = served.stop()
    for one in (fresh, idle):
        one.close()

    assert first is not None
    assert [one.status for one in answers if one is not None] == [200, 200]
    assert [one.headers.get("connection") for one in answers if one is not None] == ["close", "close"]
    assert (ended, code) == ([True, True], 0)


def test_who_waits_in_the_queue_of_our_own_socket_is_served_at_the_end(tmp_path: Path) -> None:
    """
    Nobody comes after us: whoever had connected is answered.
    """
    served = Served.started(tmp_path)
    served.process.send_signal(signal.SIGSTOP)  # It does not accept, and they wait.
    waiting = [RawConnection(served.address) for _ in range(5)]
    for one in waiting:
        one.head("GET", "/health")
    served.process.terminate()
    served.process.send_signal(signal.SIGCONT)
    answers = [one.answer() for one in waiting]
    code = served.stop()
    for one in waiting:
        one.close()

    assert [one.status for one in answers if one is not None] == [200] * 5
    assert code == 0


class TestHandedOver:
    """What LISTEN_FDS may say."""

    def test_what_is_for_another_process_is_not_ours_and_is_not_passed_on(self) -> None:
        """
        Worker processes must not find the variables.
        """
        environ = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x", "HOME": "/"}

        assert handed_over_socket(environ) is None
        assert environ == {"HOME": "/"}
        assert handed_over_socket({}) is None

    @pytest.mark.parametrize("count", ["0", "2", "x"])
    def test_anything_but_one_socket_is_told(self, count: str) -> None:
        """
        There is one socket to listen on.
        """
        with pytest.raises(ConfigurationError, match="LISTEN_FDS must be 1"):
            handed_over_socket({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": count})

    @pytest.mark.parametrize("kind", ["file", "datagram", "unix"])
    def test_what_is_no_tcp_socket_that_listens_is_told(self, kind: str, tmp_path: Path) -> None:
        """
        In one line, with exit code 2, from the command itself.
        """
        made: Any = {
            "file": lambda: (tmp_path / "file").open("wb"),
            "datagram": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            "unix": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
        }[kind]()
        with made:
            os.set_inheritable(made.fileno(), True)
            with pytest.raises(RuntimeError, match="descriptor 3, which LISTEN_FDS announces"):
                Served.started(tmp_path, before=WITH_SOCKET, pass_fds=(made.fileno(),), SOCKET_FD=str(made.fileno()))
