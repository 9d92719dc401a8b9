"""Routes whose handler settles inside its own transaction: key and rows commit together, behind either middleware."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from onceward import AsyncGate, Gate, Reply, current_operation
from onceward.http.asgi import IdempotencyMiddleware as AsgiMiddleware
from onceward.http.wsgi import IdempotencyMiddleware as WsgiMiddleware

SETTLED = Reply.json({"id": 7}, status=201, headers={"Location": "/orders/7"})


class Shop:
    """One application: what its handler does is said by the test, step by step."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop.db"
        self.runs = 0
        self.story: tuple[str, ...] = ("insert", "settle", "commit", "200")
        with self.connect() as connection:
            connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        connection.close()

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)

    def handle(self) -> tuple[int, bytes]:
        self.runs += 1
        operation, connection, status = current_operation(), self.connect(), 0
        try:
            for step in self.story:
                match step:
                    case "insert":
                        connection.execute("INSERT INTO orders DEFAULT VALUES")
                    case "settle":
                        operation.settle_inside(connection, SETTLED)
                    case "commit":
                        connection.commit()
                    case "rollback":
                        connection.rollback()
                    case "raise":
                        raise ValueError("the handler raised")
                    case _:
                        status = int(step)
        finally:
            connection.close()
        return status, json.dumps({"said": "by the handler"}).encode()

    @property
    def orders(self) -> int:
        connection = self.connect()
        try:
            return int(connection.execute("SELECT count(*) FROM orders").fetchone()[0])
        finally:
            connection.close()


class Caller:
    """Sends the same keyed request, through one middleware or the other."""

    def __init__(self, shop: Shop, shell: str) -> None:
        self.shop, self.shell = shop, shell
        self.url = f"sqlite:///{shop.path}"

    def send(self, key: str = "k") -> httpx.Response | None:
        """The answer; None if the handler's exception came through."""
        headers = {"Idempotency-Key": key}
        with suppress(ValueError):
            if self.shell == "asgi":
                return asyncio.run(self._send_asgi(headers))
            return self._send_wsgi(headers)
        return None

    async def _send_asgi(self, headers: dict[str, str]) -> httpx.Response:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            status, body = self.shop.handle()
            kind = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": status, "headers": kind})
            await send({"type": "http.response.body", "body": body})

        async with AsyncGate(self.url, scope="test:shop") as gate:
            guarded = AsgiMiddleware(app, gate=gate, scope="test:shop", transactional=True)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(guarded), base_url="http://shop") as client:
                return await client.post("/orders", json={}, headers=headers)

    def _send_wsgi(self, headers: dict[str, str]) -> httpx.Response:
        def app(environ: Any, start_response: Any) -> list[bytes]:
            status, body = self.shop.handle()
            start_response(f"{status} Said", [("Content-Type", "application/json")])
            return [body]

        with Gate(self.url, scope="test:shop") as gate:
            guarded = WsgiMiddleware(app, gate=gate, scope="test:shop", transactional=True)
            with httpx.Client(transport=httpx.WSGITransport(guarded), base_url="http://shop") as client:
                return client.post("/orders", json={}, headers=headers)


@pytest.fixture(params=["asgi", "wsgi"])
def caller(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Caller]:
    """A shop behind one of the two."""
    yield Caller(Shop(tmp_path), request.param)


def code(response: httpx.Response | None) -> tuple[int, str]:
    return (0, "raised") if response is None else (response.status_code, str(response.json().get("code", "")))


def test_what_was_settled_is_the_answer_whatever_the_handler_said(caller: Caller) -> None:
    """
    Status, headers and body as settled, the first time and every time after; one row.
    """
    first, *others = [caller.send() for _ in range(3)]

    assert first is not None
    assert (first.status_code, first.content, first.headers["location"]) == (201, b'{"id":7}', "/orders/7")
    assert "idempotency-replayed" not in first.headers
    assert {
        (one.status_code, one.content, one.headers["idempotency-replayed"]) for one in others if one is not None
    } == {(201, b'{"id":7}', "true")}
    assert (caller.shop.orders, caller.shop.runs) == (1, 1)


@pytest.mark.parametrize(
    ("story", "told"),
    [
        (("insert", "raise"), (0, "raised")),
        (("insert", "settle", "raise"), (0, "raised")),
        (("insert", "settle", "rollback", "raise"), (0, "raised")),
        (("insert", "rollback", "422"), (422, "")),
        (("insert", "rollback", "500"), (500, "")),
        (("insert", "settle", "rollback", "409"), (409, "")),
        (("insert", "settle", "rollback", "200"), (500, "not_settled")),
        (("insert", "settle", "200"), (500, "not_settled")),
    ],
)
def test_what_was_not_committed_did_not_happen_and_may_be_sent_again(
    caller: Caller, story: tuple[str, ...], told: tuple[int, str]
) -> None:
    """
    The client hears the handler's own refusal, or that it did not work; the same key then runs, and there is one row.
    """
    caller.shop.story = story
    heard = code(caller.send())
    rows = caller.shop.orders
    caller.shop.story = ("insert", "settle", "commit", "200")

    again = caller.send()

    assert told == heard
    assert rows == 0
    assert again is not None
    assert (again.status_code, again.headers.get("idempotency-replayed")) == (201, None)
    assert (caller.shop.orders, caller.shop.runs) == (1, 2)


@pytest.mark.parametrize("after", ["raise", "500"])
def test_what_was_committed_happened_whatever_came_after(caller: Caller, after: str) -> None:
    """
    The retry is given the answer, and nothing runs again.
    """
    caller.shop.story = ("insert", "settle", "commit", after)
    caller.send()

    again = caller.send()

    assert again is not None
    assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")
    assert (caller.shop.orders, caller.shop.runs) == (1, 1)


def test_a_success_that_was_never_settled_is_in_doubt(caller: Caller) -> None:
    """
    Rows may stand without their record: nobody is told that it worked, and it does not run again.
    """
    caller.shop.story = ("insert", "commit", "200")
    first, second = code(caller.send()), code(caller.send())

    assert first[0] >= 409
    assert second == (409, "in_doubt")
    assert (caller.shop.orders, caller.shop.runs) == (1, 1)
