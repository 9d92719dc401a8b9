"""Bad inputs (see `bad_inputs`) against a running service, over bare sockets, because clients would not send them."""

from __future__ import annotations

import re
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bad_inputs import BAD, CAP, ELSEWHERE, FINE, JSON, SAME, SELECT, Sent, key, sql
from service_support import Heard, Served

from onceward import Gate
from onceward.service.settings import Settings, store_url_of

pytestmark = pytest.mark.dose(1, of="world")


class World:
    """The service under test, and what the braces stand for."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.database = served.database()
        cut = served.token[:-1]
        _, environment, id, secret = served.token.split("_")
        self.words = {
            "{database}": self.database,
            "{token}": served.token,
            "{expired}": served.new_token("demo", expires=0.001),
            "{stranger}": served.new_token("stranger", role="admin"),
            "{cut}": cut,
            "{id}": f"ow_{environment}_{id}",
            "{swapped}": f"ow_live_{id}_{secret}",
            "{doubt}": self.in_doubt(),
        }

    def in_doubt(self) -> str:
        with Gate(store_url_of(Settings(folder=str(self.served.folder))), scope="test:demo") as gate:
            with pytest.raises(OSError, match="cut off"):
                gate.run("doubted", fail)
            found = gate.records.get("doubted")
        return "" if found is None else found.id

    def state(self) -> tuple[int, int, str]:
        """What a bad input must not change: rows, records, and the record that is in doubt."""
        served = self.served
        records = served.call("GET", "/v1/records").document["records"]
        doubt = served.call("GET", f"/v1/records/{self.words['{doubt}']}").document["state"]
        return served.count(self.database), len(records), doubt

    def fill(self, text: str) -> str:
        return re.sub(r"\{[a-z]+\}", lambda found: self.words.get(found[0], found[0]), text)

    def send(self, sent: Sent) -> Heard:
        """Send bytes, and read one answer."""
        where = urlsplit(self.served.address)
        with socket.create_connection((where.hostname or "", where.port or 0), timeout=30) as line:
            with suppress(BrokenPipeError, ConnectionResetError):  # Refused before all of it was taken.
                line.sendall(self.spelled(sent) if sent.raw is None else sent.raw)
            return answer_on(line)

    def spelled(self, sent: Sent) -> bytes:
        head = f"{sent.method} {self.fill(sent.path)} HTTP/1.1\r\nHost: service\r\n".encode()
        if sent.authorization is not None:
            head += f"Authorization: {self.fill(sent.authorization)}\r\n".encode()
        if sent.type is not None:
            head += b"Content-Type: " + sent.type + b"\r\n"
        if sent.length:
            head += b"Content-Length: %d\r\n" % len(sent.body)
        headers = sent.headers
        for name, value in self.words.items():
            headers = headers.replace(name.encode(), value.encode())
        return head + headers + b"\r\n" + sent.body


def fail() -> None:
    raise OSError("cut off")


def answer_on(line: socket.socket) -> Heard:
    """One answer, by its length."""
    heard = b""
    while b"\r\n\r\n" not in heard:
        piece = line.recv(65_536)
        if not piece:
            raise RuntimeError(f"the connection ended without an answer: {heard[:200]!r}")
        heard += piece
    head, _, body = heard.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
    length = int(headers.get("content-length", "0"))
    while len(body) < length and (piece := line.recv(65_536)):
        body += piece
    return Heard(int(first.split()[1]), headers, body[:length])  # What follows is the answer to something else.


@pytest.fixture(scope="module", params=["httptools", "h11"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A service that loses patience quickly, with each of the parsers that uvicorn may have."""
    with tempfile.TemporaryDirectory(prefix="onceward-bad-") as folder:
        flags = ("--flood-burst", "100000", "--statement-seconds", "0.5", "--receive-seconds", "1")
        environment = {}
        if request.param == "h11":  # What there is without the faster one.
            (Path(folder) / "httptools.py").write_text("raise ImportError\n")
            environment["PYTHONPATH"] = folder
        served = Served.started(Path(folder), *flags, **environment)
        try:
            yield World(served)
        finally:
            served.stop()


def test_bad_inputs_are_refused_and_change_nothing(world: World) -> None:
    """
    Every row of the table: its status and code, as problem+json that leads to a page; never a 500, and nothing written.
    """
    before = world.state()
    wrong, codes = [], set()
    for bad in BAD:
        heard = world.send(bad.sent)
        code = heard.document.get("code")
        found = (heard.status, code in (bad.code, bad.or_code), heard.headers["content-type"], code)
        blames = b"on this side" in heard.body
        if blames or found[:3] != (bad.status, True, "application/problem+json"):
            wrong.append((bad.number, bad.what, found, heard.body[:200]))
        codes.add(heard.document.get("type"))

    assert wrong == [], "\n".join(map(str, wrong))
    assert before == world.state()
    assert {world.served.call("GET", page, token="").status for page in codes} == {200}
    assert '"status": 500' not in world.served.log


def test_the_check_itself_sees_what_is_written(world: World) -> None:
    """
    The control: the same request without anything bad about it is taken, and the count says so.
    """
    before = world.state()

    assert world.send(Sent()).status == 200
    assert before[0] + 1 == world.state()[0]


def test_every_number_is_in_a_table() -> None:
    """
    1 to 81: refused, fine, the same, or elsewhere with a reason.
    """
    tried = {bad.number for bad in BAD} | FINE.keys() | SAME.keys()

    assert tried | ELSEWHERE.keys() == set(range(1, 82))
    assert all(ELSEWHERE.values())


def test_keys_that_look_odd_are_keys_of_their_own(world: World) -> None:
    """
    Each runs once and replays; none meets another, nor the same key of another tenant.
    """
    before, keys = world.state()[0], [one for some in FINE.values() for one in some]
    first = [world.send(key(one)) for one in keys]
    again = [world.send(key(one)) for one in keys]

    assert {one.status for one in (*first, *again)} == {200}
    assert [one.body for one in first] == [one.body for one in again]
    assert not any("idempotency-replayed" in one.headers for one in first)
    assert {one.headers.get("idempotency-replayed") for one in again} == {"true"}
    assert before + len(keys) == world.state()[0]


@pytest.mark.parametrize("number", SAME)
def test_one_request_in_several_spellings_is_one_request(world: World, number: int) -> None:
    """
    By the canonical form of JSON.
    """
    heard = [world.send(key(b"same-%d" % number, body)) for body in SAME[number]]

    assert {(200, heard[0].body)} == {(one.status, one.body) for one in heard}
    assert [None] + ["true"] * (len(heard) - 1) == [one.headers.get("idempotency-replayed") for one in heard]


def test_what_is_odd_and_means_one_thing_works(world: World) -> None:
    """
    20 a blank behind the key; 41 NUL in a value; 44 chunks; 45 a charset that is the same; 47 a body at the cap;
    73 names that are empty or there twice; 75 the scheme in any case, with blanks.
    """
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(SELECT), SELECT)
    requests = [
        key(b"blank", SELECT), key(b"blank  ", SELECT),
        Sent(rb'{"sql": "SELECT ?", "params": ["a\u0000b"]}'),
        Sent(chunked, b"Transfer-Encoding: chunked\r\n", length=False),
        Sent(SELECT, type=JSON + b"; charset=UTF-8"),
        Sent(SELECT.ljust(CAP)),
        sql('SELECT 1 AS a, 2 AS a, 3 AS ""'),
        *(Sent(SELECT, authorization=one) for one in ("bearer {token}", "BEARER   {token}", "Bearer {token} ")),
    ]  # fmt: skip
    heard = [world.send(one) for one in requests]

    assert [200] * len(requests) == [one.status for one in heard]
    assert heard[1].headers["idempotency-replayed"] == "true"
    assert heard[2].document["rows"] == [["a\0b"]]
    assert (heard[6].document["columns"], heard[6].document["rows"]) == (["a", "a", ""], [[1, 2, 3]])


def test_who_is_refused_at_the_door_is_told_once(world: World) -> None:
    """
    A body of a megabyte behind a token that is none: one answer, however much of it is sent after that.
    """
    where = urlsplit(world.served.address)
    head = world.spelled(Sent(b"", b"Content-Length: 1000000\r\n", length=False, authorization="Bearer nobody"))
    heard = b""
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=30) as line:
        line.sendall(head)
        heard += line.recv(65_536)
        with suppress(OSError):
            line.sendall(b" " * 900_000)
            while piece := line.recv(65_536):
                heard += piece

    assert (heard.count(b"HTTP/1.1 "), heard.startswith(b"HTTP/1.1 401")) == (1, True)


def test_the_head_of_an_answer(world: World) -> None:
    """
    54: HEAD is answered as GET, without a body, and the connection goes on.
    """
    where = urlsplit(world.served.address)
    request = Sent(b"", method="HEAD", path="/v1/db/demo", type=None, length=False)
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=30) as line:
        line.sendall(world.spelled(request) + world.spelled(request._replace(method="GET")))
        heard = b""
        while b'"databases"' not in heard and (piece := line.recv(65_536)):
            heard += piece

    assert heard.count(b"HTTP/1.1 200 OK") == 2
    assert heard.count(b'"databases"') == 1


def test_those_who_send_nothing_hinder_nobody(world: World) -> None:
    """
    44, a crowd of them: a hundred connections that never finish their head; others are served, then they are let go.
    """
    where = urlsplit(world.served.address)
    lines = [socket.create_connection((where.hostname or "", where.port or 0), timeout=30) for _ in range(100)]
    try:
        for number, line in enumerate(lines):
            line.sendall(b"POST /v1/db HTTP/1.1\r\nHost: x\r\n" if number % 2 else b"")
        served = world.send(Sent(SELECT)).status
        ends = [line.recv(65_536) for line in lines]
    finally:
        for line in lines:
            line.close()

    assert served == 200
    assert {one[:12] for one in ends} == {b"", b"HTTP/1.1 408"}
