"""What the conformance suite tries stores with: a line that can be cut, and a process whose clock is wrong."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from onceward.runtime.environment import REAL
from onceward.stores import StoreKind, open_store
from onceward.stores.memory import MemoryStore
from onceward.testing.clock import StillEnvironment
from onceward.testing.store_suite import Candidate, tcp_line
from onceward.testing.store_suite.rows import HOUR_US, row
from onceward.testing.store_suite.store_under_test import StoreUnderTest

DAYS = 400
DAY_US = 24 * HOUR_US


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that says what it is told; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    line, _ = listener.accept()
                    threading.Thread(target=_say, args=(line,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _say(line: socket.socket) -> None:
    with suppress(OSError), line:
        while data := line.recv(100):
            line.sendall(data)


def said(port: int) -> bytes:
    """What comes back on a new line; nothing if it is cut."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=30) as line:
        line.sendall(b"hello")
        return line.recv(100)
    return b""


@pytest.mark.fault("a-cut-line-goes-on-working")
def test_a_line_is_cut_and_restored(echo: int) -> None:
    """
    While it is cut nobody gets an answer, on lines that are open or on new ones; the rest of the URL stays as it is.
    """
    with tcp_line(f"acme://user:pass@127.0.0.1:{echo}/name?x=1") as line:
        port = int(line.url.partition("@")[2].partition("/")[0].partition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as before:
            before.sendall(b"one")
            heard = [before.recv(100), said(port)]
            line.cut()
            with suppress(OSError):
                before.sendall(b"two")
            with suppress(OSError):
                heard.append(before.recv(100))
        heard.append(said(port))
        line.restore()
        heard.append(said(port))

    assert [b"one", b"hello", b"", b"", b"hello"] in (heard, [*heard[:2], b"", *heard[2:]])
    assert (line.url, port != echo) == (f"acme://user:pass@127.0.0.1:{port}/name?x=1", True)


@pytest.mark.slow
@pytest.mark.fault("the-clock-of-a-process-is-right-after-all")
@pytest.mark.parametrize("days", [-DAYS, DAYS])
def test_a_program_with_a_wrong_clock_tells_another_time(tmp_path: Path, days: int) -> None:
    """
    On a store that goes by the machine's clock it shows: its claim begins so many days off, and it takes another's
    lease for over, or for longer.
    """
    url, scope = f"sqlite:///{tmp_path}/agent.db", "test:clock"
    store = open_store(url)
    store.put(row(scope, "fair", lease=HOUR_US), None)
    store.close()
    command = [sys.executable, "-m", "onceward.testing.skewed", url, scope, str(days * 86_400), "blocking"]
    told = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)

    assert abs(told["instants"]["first_at"] - REAL.wall_us() - days * DAY_US) < HOUR_US
    assert abs(told["hours"]["loaded"] - HOUR_US + days * DAY_US) < HOUR_US
    assert abs(told["hours"]["own"] - HOUR_US) < HOUR_US


@pytest.mark.fault("another-process-opens-the-base-class")
def test_other_processes_open_the_class_that_is_judged() -> None:
    """
    An inherited class method opens the class it is called on, here and in every other process.
    """

    kind = StoreKind(open=Derived.from_url)
    place = StoreUnderTest(Candidate(kind=kind, url="derived://"), "blocking", StillEnvironment())

    assert place.opener() == f"{__name__}:Derived.from_url"


class Derived(MemoryStore):
    """A store that inherits how it is opened."""
