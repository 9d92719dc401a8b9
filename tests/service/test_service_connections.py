"""Connections: how many there may be, who makes room, what is left for files, and clients that do not read."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from raw_http import RawConnection, log_lines, until
from service_support import Heard, Served

from onceward import OncewardError
from onceward.errors import RateLimitError
from onceward.service.access import Accounts, Allowance, FloodControl, Hold, Resource, Totals, trusted_networks
from onceward.service.network.connections import ConnectionTable
from onceward.service.network.server import server_of
from onceward.service.network.sockets import DESCRIPTORS_RESERVED, ListeningSocket, fitting_connections, listen
from onceward.service.settings import Settings
from onceward.service.web.calls import Authenticator
from onceward.service.web.problems import Overloaded
from onceward.service.web.readiness import BURST, Readiness
from onceward.testing.clock import StillEnvironment


class Line:
    """A connection of the table's."""

    def __init__(self) -> None:
        self.hold: Hold | None = None
        self.responses = 0
        self.unsent = 0
        self.is_closing = False
        self.ended = ""

    def unsent_bytes(self) -> int:
        return self.unsent

    def close_idle(self) -> None:
        self.ended = "closed"

    def cut_off(self) -> None:
        self.ended = "cut off"


def table_of(total: int = 100, each: int = 10, **options: Any) -> ConnectionTable:
    accounts = Accounts(lambda: 0.0, Allowance(connections=each), Totals(connections=total))
    return ConnectionTable(accounts, trusted_networks(["10.0.0.0/8"]), **options)


def connected(table: ConnectionTable, address: str) -> Line:
    line = Line()
    table.opened(line, table.admit(address))
    return line


def let_in(table: ConnectionTable, address: str) -> str:
    """Connect, or the code of the refusal."""
    try:
        connected(table, address)
    except OncewardError as refusal:
        return refusal.code
    return "in"


class TestRoom:
    """Who may connect."""

    @pytest.mark.fault("connections-of-one-address-are-not-counted")
    def test_an_address_has_so_many_and_others_have_theirs(self) -> None:
        """
        IPv6 by its /64. One that ends makes room.
        """
        table = table_of()
        lines = [connected(table, f"2001:db8::{number:x}") for number in range(10)]

        with pytest.raises(RateLimitError):
            table.admit("2001:db8::ffff")
        connected(table, "2001:db8:0:1::1")
        table.lost(lines[0])
        connected(table, "2001:db8::ffff")
        assert (len(table), table.counts["refused_address"]) == (11, 1)

    @pytest.mark.fault("proxies-are-counted-as-one-caller")
    def test_the_connections_of_a_trusted_proxy_are_many_callers(self) -> None:
        """
        All that are free are for it: the bound of one address is not its.
        """
        table = table_of(total=20, each=5)
        lines = [connected(table, "10.1.2.3") for _ in range(5)]

        assert [let_in(table, "10.1.2.3") for _ in range(16)] == ["in"] * 15 + [Overloaded.code]
        for line in lines:
            table.lost(line)
        assert (len(table), table.accounts.free(Resource.CONNECTIONS)) == (15, 5)

    @pytest.mark.fault("no-room-is-made-by-idle-connections")
    def test_a_connection_that_waits_for_a_request_makes_room(self) -> None:
        """
        One of the same address, the one that has waited longest; not one that works, and not somebody else's.
        """
        table = table_of(each=3)
        working, first, second = (connected(table, "192.0.2.1") for _ in range(3))
        other = connected(table, "192.0.2.2")
        for line in (other, first, second):
            table.idle(line)

        assert let_in(table, "192.0.2.1") == "in"
        assert [line.ended for line in (working, first, second, other)] == ["", "closed", "", ""]
        table.busy(second)
        assert let_in(table, "192.0.2.1") == RateLimitError.code
        table.lost(first)
        assert len(table) == 4

    @pytest.mark.fault("no-room-is-made-by-idle-connections")
    def test_when_nothing_is_left_somebody_who_waits_makes_room_for_whoever_comes(self) -> None:
        """
        And if nobody waits: 503.
        """
        table = table_of(total=4)
        lines = [connected(table, address) for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3")]

        assert let_in(table, "192.0.2.4") == Overloaded.code
        table.idle(lines[2])
        assert let_in(table, "192.0.2.4") == "in"
        assert [line.ended for line in lines] == ["", "", "closed", ""]


class TestReaders:
    """Clients that do not take their responses."""

    @pytest.mark.fault("slow-readers-are-waited-for-for-ever")
    def test_a_client_that_does_not_read_is_cut_off_in_time(self) -> None:
        """
        One that takes one response after the other is not, however long that goes on.
        """
        table = table_of(send_seconds=10)
        stuck, steady, quiet = (connected(table, "192.0.2.1") for _ in range(3))
        stuck.unsent = steady.unsent = 1_000
        for now in range(12):
            table.check_readers(lambda now=now: float(now))  # type: ignore[misc]
            steady.responses += 1

        assert [line.ended for line in (stuck, steady, quiet)] == ["cut off", "", ""]

    @pytest.mark.fault("unread-bytes-are-not-bounded")
    def test_whoever_reads_for_longest_goes_when_too_much_waits(self) -> None:
        """
        Only as many as must.
        """
        table = table_of(unsent_bytes_max=2_500)
        lines = [connected(table, "192.0.2.1") for _ in range(3)]
        for now, line in enumerate(lines):
            line.unsent = 1_000
            table.check_readers(lambda now=now: float(now))  # type: ignore[misc]

        assert [line.ended for line in lines] == ["cut off", "", ""]

    def test_one_that_has_everything_and_does_not_end_tls_is_not_waited_for(self) -> None:
        """
        At the second look; not while something is unsent.
        """
        table = table_of()
        done, reading = connected(table, "192.0.2.1"), connected(table, "192.0.2.1")
        done.is_closing = reading.is_closing = True
        reading.unsent = 10
        for _ in range(2):
            table.check_readers(lambda: 0.0)

        assert [done.ended, reading.ended] == ["cut off", ""]

    def test_a_real_client_that_does_not_read_is_cut_off(self, tmp_path: Path) -> None:
        """
        Responses of most of a megabyte, a small window, and nobody reads: the log says that it was cut off.
        """
        served = Served.started(tmp_path, "--send-seconds", "1")
        path = served.database()
        sql = b'{"sql": "SELECT hex(zeroblob(400000))"}'
        kind = {"Content_Type": "application/json", "Content_Length": str(len(sql))}
        with RawConnection(served.address, buffer=4_096) as line:
            for _ in range(20):  # The system itself takes a few megabytes before we have to wait.
                line.head("POST", f"{path}/query", served.token, **kind).send(sql)
            until(lambda: log_lines(served, "a client was disconnected"))
            code = served.stop()

        assert code == 0


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Served]:
    """A service with room for few connections."""
    served = Served.started(tmp_path, "--connections", "40", "--connections-per-address", "10")
    yield served
    served.stop()


def test_an_address_at_its_limit_is_told_and_others_are_served(small: Served) -> None:
    """
    429 with Retry-After, before it has said anything, and the connection ends; a line in the log. Another address is
    served. When one has gone, the next is let in.
    """
    lines = [RawConnection(small.address, source="127.0.0.2") for _ in range(10)]
    with RawConnection(small.address, source="127.0.0.2") as line:
        refused = line.answer()
        ended = line.has_ended()
    with RawConnection(small.address) as line:
        other = line.head("GET", "/health").answer()
    lines.pop().close()
    again = until(lambda: served_from(small, "127.0.0.2"))
    for one in lines:
        one.close()

    assert refused is not None
    assert (refused.status, refused.code, refused.headers["connection"]) == (429, "rate_limited", "close")
    assert int(refused.headers["retry-after"]) >= 1
    assert ended
    assert other is not None
    assert other.status == 200
    assert again
    assert log_lines(small, "connections are refused: address:127.0.0.2")


def served_from(served: Served, source: str) -> bool:
    with RawConnection(served.address, source=source) as line:
        answer = line.head("GET", "/health").answer()
    return answer is not None and answer.status == 200


@pytest.mark.fault("no-room-is-made-by-idle-connections")
def test_idle_connections_make_room_over_a_real_socket(small: Served) -> None:
    """
    Ten have had their response and wait; an eleventh is served, and one of the ten has ended.
    """
    lines = [RawConnection(small.address) for _ in range(10)]
    for line in lines:
        line.head("GET", "/health").answer()
    with RawConnection(small.address) as line:
        answer = line.head("GET", "/health").answer()

    assert answer is not None
    assert answer.status == 200
    assert lines[0].has_ended()
    for line in lines:
        line.close()


LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.fault("descriptors-are-not-reserved")
def test_descriptors_are_left_for_files_however_many_connect(tmp_path: Path) -> None:
    """
    A process that may open 160 files: 32 connections at most, whatever is set; a hundred try, from many addresses.
    Databases are made and written meanwhile, on a connection that was there, and the log says why there are fewer.
    """
    served = Served.started(tmp_path, before=(sys.executable, "-c", LIMITED))
    kept = RawConnection(served.address)  # It has not had a response, and so makes room for nobody.
    crowd = [RawConnection(served.address, source=f"127.0.0.{number}") for number in range(2, 102)]
    until(lambda: log_lines(served, "connections are refused"))
    statuses = []
    for number in range(10):
        kept.head("PUT", f"/v1/db/demo/d{number}", served.token)
        answer = kept.answer()
        statuses.append(0 if answer is None else answer.status)
    for line in (kept, *crowd):
        line.close()
    after = until(lambda: served_from(served, "127.0.0.1"))
    code = served.stop()

    assert statuses == [201] * 10
    assert after
    assert log_lines(served, "32 connections are allowed instead of 2048")
    assert log_lines(served, "connections are refused")
    assert not log_lines(served, "no connection can be accepted")
    assert code == 0


def test_a_limit_on_files_that_leaves_no_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    And one that can be raised is raised.
    """
    raised: list[Any] = []
    limits = {"now": (100, 4_096)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: raised.append(limit))

    assert fitting_connections(1_000) == 1_000
    assert raised == [(1_000 + DESCRIPTORS_RESERVED, 4_096)]
    limits["now"] = (100, 100)
    with pytest.raises(Exception, match="raise the limit"):
        fitting_connections(1_000)


class Exhausted(socket.socket):
    """A listening socket that once has no descriptor left."""

    failures = 1

    def accept(self) -> Any:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@pytest.mark.fault("a-failed-accept-is-silent")
def test_when_no_descriptor_is_left_it_is_told_and_callers_wait(caplog: pytest.LogCaptureFixture) -> None:
    """
    The listener pauses, says so, and goes on: whoever waited is served.
    """

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def run() -> tuple[bytes, int]:
        own = listen("127.0.0.1", 0)
        listening = ListeningSocket(Exhausted(fileno=own.socket.detach()), is_handed_over=False)
        server = server_of(app, Settings(port=0), listening)
        server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
        serving = asyncio.create_task(server.serve())
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        line = await reader.readline()
        writer.close()
        server.should_exit = True
        await serving
        return line, server.connections.counts["accept_failed"]

    with caplog.at_level(logging.ERROR, "onceward.service"):
        line, failed = asyncio.run(run())

    assert line.startswith(b"HTTP/1.1 200")
    assert failed == 1
    assert "no connection can be accepted (no descriptors or memory are left" in caplog.text


@pytest.mark.fault("a-request-without-a-host-is-served")
@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /health HTTP/1.1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost:\r\n\r\n", 200),
        (b"GET /health HTTP/1.0\r\n\r\n", 200),
        (b"GET /health HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    ],
    ids=["none", "two", "the same twice", "empty", "1.0 without", "1.0 with two"],
)
def test_a_request_has_one_host(served: Served, head: bytes, status: int) -> None:
    """
    RFC 9112, 3.2: HTTP/1.1 without a Host, or with more than one, is answered 400; HTTP/1.0 may go without.
    """
    with RawConnection(served.address) as line:
        answer = line.send(head).answer()

    assert answer is not None
    assert answer.status == status
    assert status == 200 or answer.code == "request_invalid"


class Asked:
    """A store that counts who asks it."""

    def __init__(self) -> None:
        self.times = 0
        self.error: Exception | None = None

    async def check(self) -> None:
        self.times += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error


class TestReady:
    """`/ready` asks the store."""

    @pytest.mark.fault("ready-asks-the-store-each-time")
    def test_the_store_is_asked_once_a_second_however_many_ask(self) -> None:
        """
        Also while it does not answer: everybody gets the same.
        """
        from starlette.applications import Starlette
        from starlette.routing import Route
        from starlette.testclient import TestClient

        environment, store = StillEnvironment(), Asked()
        authenticator = Authenticator(None, FloodControl(environment.monotonic))  # type: ignore[arg-type]
        readiness = Readiness(store, authenticator, environment)  # type: ignore[arg-type]
        with TestClient(Starlette(routes=[Route("/ready", readiness.serve)])) as client:
            first = [client.get("/ready").status_code for _ in range(10)]
            store.error = RateLimitError("away")
            still = client.get("/ready").status_code
            environment.advance(1.0)
            away = [client.get("/ready").status_code for _ in range(10)]

        assert (first, still, away) == ([200] * 10, 200, [429] * 10)
        assert store.times == 2

    @pytest.mark.fault("ready-has-no-flood-control")
    def test_an_address_that_asks_without_end_is_slowed(self, small: Served) -> None:
        """
        429 with Retry-After; `/health` is free, and calls without a token are counted elsewhere.
        """

        def calls(path: str, count: int) -> list[Heard]:
            with RawConnection(small.address) as line:
                found = [line.head("GET", path).answer() for _ in range(count)]
            return [one for one in found if one is not None]

        slowed = until(lambda: [one for one in calls("/ready", BURST + 50) if one.status == 429])
        health = calls("/health", BURST + 50)
        token = calls("/v1/db/demo", 1)

        assert int(slowed[0].headers["retry-after"]) >= 1
        assert {one.status for one in health} == {200}
        assert token[0].status == 401
