"""
Every error, provoked: what a program that makes this mistake, or meets this trouble, really sees.

`seen(error class, folder)` is what the errors page shows. Most of it is the last part of a traceback; what HTTP clients
meet is the response. Time stands still, so that dates and fences are the same each time.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import httpx

from onceward import NOT_FOUND, AsyncGate, Breaker, Budget, Client, Emitter, Found, Gate, Retry, errors
from onceward.agents import AgentGate, ForModel, Spend, Tool, ToolCall
from onceward.gate import Sealed
from onceward.http import raise_for_status
from onceward.http.asgi import IdempotencyMiddleware as AsgiMiddleware
from onceward.http.wsgi import IdempotencyMiddleware
from onceward.messaging.emitter import Cadence
from onceward.messaging.inbox import Inbox, Source
from onceward.messaging.webhooks import PacSpace, Secret, parse_target
from onceward.retry import deadline
from onceward.service.access import Access
from onceward.service.access.issued_token import issue_token
from onceward.service.access.peppers import VARIABLE
from onceward.stores import open_store
from onceward.testing.clock import StillEnvironment

SCOPE = "live:acme"
KEY = "charge:order-17"
DAY = 86_400.0
MONDAY_US = 1_772_442_000_000_000
"""2026-03-02, 9:00 UTC."""
PEPPER = "pepper-of-a-test-0123456789abcdef"

Scene = Callable[["Place"], Any]


class Place:
    """An empty folder, and a time that stands still."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = StillEnvironment(wall_us=MONDAY_US)
        self.file = folder / "shop.db"
        self.url = f"sqlite:///{self.file}"

    def gate(self, **options: Any) -> Gate:
        """A gate over the file."""
        store = open_store(self.url, environment=self.environment)
        return Gate(store, scope=SCOPE, environment=self.environment, **options)

    def sql(self, *statements: str) -> None:
        """Reach past the store, as an accident or an attacker does."""
        with closing(sqlite3.connect(self.file, isolation_level=None)) as connection:
            for one in statements:
                connection.execute(one)

    def forget(self) -> None:
        """Lose every record."""
        self.sql("DELETE FROM onceward_records")


@dataclass
class Charge:
    """What a later version of the function returns."""

    id: str
    cents: int


def charge() -> dict[str, str]:
    """The function that the scenes are about."""
    return {"charge": "ch_1"}


def broken() -> NoReturn:
    """The same, when the line to the bank breaks."""
    raise ConnectionError("connection reset by peer")


def named(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Let a function inside a scene have the name that it would have in a program."""

    def rename(fn: Callable[[], Any]) -> Callable[[], Any]:
        fn.__qualname__ = fn.__name__ = name
        return fn

    return rename


def seen(error: type[errors.OncewardError], folder: Path) -> str:
    """What is seen of an error."""
    scene = SCENES[error]
    try:
        answer = scene(Place(folder))
    except error as raised:
        if type(raised) is not error:
            raise
        return f"onceward.{error.__name__}: {raised}"
    if isinstance(answer, errors.OncewardError):
        return f"onceward.{type(answer).__name__}: {answer}"
    status, document = answer
    return f"HTTP {status}\n{json.dumps(document, indent=2)}"


# --- declaring and calling ---


def oncewarderror(place: Place) -> Any:
    return errors.OncewardError()


def configurationerror(place: Place) -> Any:
    place.gate(lease=100_000)


def scopemissing(place: Place) -> Any:
    Gate(place.url, scope="")


def keyinvalid(place: Place) -> Any:
    place.gate().run("charge order 17", charge)


def keymissing(place: Place) -> Any:
    place.gate().run("", charge)


def requestinvalid(place: Place) -> Any:
    place.gate().run(KEY, charge, request={"amount": float("nan")})


def resultinvalid(place: Place) -> Any:
    gate = place.gate()

    @gate.once(key="charge:{order_id}", name="charge")
    def first(order_id: str) -> dict[str, str]:
        return charge()

    @gate.once(key="charge:{order_id}", name="charge")
    def today(order_id: str) -> Charge:
        return Charge("ch_1", 1250)

    first("order-17")
    today("order-17")


def sealbroken(place: Place) -> Any:
    gate = place.gate(seal=Sealed(Sealed.new_key()))
    gate.run(KEY, charge, name="charge")
    other = "CASE WHEN substr(result, -1) = x'00' THEN x'01' ELSE x'00' END"
    place.sql(f"UPDATE onceward_records SET result = CAST(substr(result, 1, length(result) - 1) || {other} AS BLOB)")
    gate.run(KEY, charge, name="charge")


def sealkeymissing(place: Place) -> Any:
    place.gate(seal=Sealed(Sealed.new_key())).run(KEY, charge, name="charge")
    place.gate(seal=Sealed(Sealed.new_key())).run(KEY, charge, name="charge")


def keyreused(place: Place) -> Any:
    gate = place.gate()
    gate.run(KEY, charge, name="charge", request={"amount": "12.50"})
    gate.run(KEY, charge, name="charge", request={"amount": "99.00"})


def inflight(place: Place) -> Any:
    gate = place.gate(in_flight="refuse")
    gate.run(KEY, lambda: gate.run(KEY, charge, name="charge"), name="charge")


def indoubt(place: Place) -> Any:
    gate = place.gate()
    with suppress(ConnectionError):
        gate.run(KEY, broken, name="charge")
    gate.run(KEY, charge, name="charge")


def storeforgot(place: Place) -> Any:
    gate = place.gate()

    def forgotten() -> dict[str, str]:
        place.forget()
        place.environment.advance(1)
        place.gate().run(KEY, charge, name="charge")
        return charge()

    gate.run(KEY, forgotten, name="charge")


def expired(place: Place) -> Any:
    gate = place.gate(retain=DAY)
    gate.run(KEY, charge, name="charge")
    place.environment.advance(2 * DAY)
    gate.run(KEY, charge, name="charge")


def notreplayable(place: Place) -> Any:
    gate = place.gate(result_bytes_max=10)
    gate.run(KEY, charge, name="charge")
    gate.run(KEY, charge, name="charge")


def nothinghappened(place: Place) -> Any:
    def declined() -> NoReturn:
        raise errors.NothingHappened("the bank declined the card; nothing was charged")

    place.gate().run(KEY, declined, name="charge")


def ownershiplost(place: Place) -> Any:
    gate = place.gate(guarantee="repeatable", lease=30, lease_max=30)

    def slow() -> dict[str, str]:
        place.environment.advance(31)
        place.gate(guarantee="repeatable").run(KEY, charge, name="charge")
        return charge()

    gate.run(KEY, slow, name="charge")


def alreadysettled(place: Place) -> Any:
    gate = place.gate()
    with suppress(ConnectionError):
        gate.run(KEY, broken, name="charge")
    gate.reconcile(KEY, Found({"charge": "ch_1"}))
    gate.reconcile(KEY, Found({"charge": "ch_2"}))


def illegalmove(place: Place) -> Any:
    gate = place.gate()
    gate.run(KEY, charge, name="charge")
    gate.reconcile(KEY, NOT_FOUND)


def recordedfailure(place: Place) -> Any:
    gate = place.gate(remember="all", guarantee="repeatable")

    def declined() -> NoReturn:
        raise ValueError("the card has expired")

    with suppress(ValueError):
        gate.run(KEY, declined, name="charge")
    gate.run(KEY, charge, name="charge")


def outoforder(place: Place) -> Any:
    place.gate().sequence("ledger").run(2, charge)


def sequenceforgotten(place: Place) -> Any:
    sequence = place.gate(retain=1, tombstone=1).sequence("ledger")
    sequence.run(1, charge)
    sequence.run(2, charge)
    place.environment.advance(DAY)
    place.sql("DELETE FROM onceward_records WHERE kind = 'sequence-entry'")
    sequence.run(1, charge)


# --- transactions and stores ---


def notsettled(place: Place) -> Any:
    gate = place.gate()

    def rolled_back(operation: Any) -> None:
        with closing(sqlite3.connect(place.file, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            operation.settle_inside(connection, charge())
            connection.execute("ROLLBACK")

    gate.run(KEY, rolled_back, name="charge", guarantee="atomic", settle="inside")


def retrytransaction(place: Place) -> Any:
    gate = place.gate()
    gate.run("other", charge)
    with closing(sqlite3.connect(place.file, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM onceward_records").fetchone()  # The transaction sees this moment...
        gate.run("another", charge)  # ... and somebody writes after it.
        gate.atomic(connection, KEY, charge, name="charge")


def storeunavailable(place: Place) -> Any:
    Gate("postgresql://shop@127.0.0.1:1/shop", scope=SCOPE).run(KEY, charge)


def storecontended(place: Place) -> Any:
    gate = place.gate()
    gate.run("other", charge)
    place.sql("CREATE TRIGGER nothing_lands BEFORE INSERT ON onceward_records BEGIN SELECT raise(IGNORE); END")
    gate.run(KEY, charge)


def storefull(place: Place) -> Any:
    gate = place.gate()
    gate.run("other", charge)
    store: Any = gate.store
    connection = store._database.connections.writer.connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(1_000):
        gate.run(f"charge:order-{number}", charge)


def recordrefused(place: Place) -> Any:
    store = open_store(place.url, environment=place.environment)
    gate = Gate(store, scope=SCOPE, environment=place.environment)
    gate.run("other", charge)
    sqlite: Any = store
    sqlite._database.connections.writer.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 500)
    gate.run(KEY, charge, name="charge" * 200)


def storecorrupt(place: Place) -> Any:
    place.file.write_text("This is not a database, whatever its name says. " * 100)
    place.gate().run(KEY, charge)


def unrecorded(place: Place) -> Any:
    gate = place.gate()

    def full() -> dict[str, str]:
        store: Any = gate.store
        connection = store._database.connections.writer.connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return {"charge": "ch_1", "receipt": "x" * 100_000}

    gate.run(KEY, full, name="charge")


def schemamismatch(place: Place) -> Any:
    place.gate().run("other", charge)
    place.sql("UPDATE onceward_meta SET value = 99 WHERE name = 'schema_version'")
    place.gate().run(KEY, charge)


# --- retrying ---


def outcomeunknown(place: Place) -> Any:
    @named("charge")
    def send() -> NoReturn:
        raise TimeoutError("no response within 5 s")

    Retry(environment=place.environment).call(send)


def deadlineexceeded(place: Place) -> Any:
    @named("charge")
    def busy() -> NoReturn:
        raise errors.RateLimitError("slow down", retry_after_seconds=60)

    with deadline(5, environment=place.environment):
        Retry(environment=place.environment).bind(key=KEY).call(busy)


def budgetexhausted(place: Place) -> Any:
    @named("charge")
    def send() -> NoReturn:
        raise ConnectionRefusedError("connection refused")

    policy = Retry(environment=place.environment, budget=Budget(ratio=0.1, burst=1, environment=place.environment))
    for _ in range(5):
        with suppress(ConnectionRefusedError):
            policy.bind(key=KEY).call(send)


def spendexhausted(place: Place) -> Any:
    spend = Spend("usd", limit="20.00", per="run")
    with AgentGate("memory://", scope=SCOPE, spend=spend, default=Tool("blind", price="25.00"), wait=0) as gate:
        told = gate.call(ToolCall("order-17", "render", {"pages": 3}), charge)
    return told.error if isinstance(told, ForModel) else told


def circuitopen(place: Place) -> Any:
    made = Breaker("payments", threshold=1, environment=place.environment)
    with suppress(ConnectionError):
        made.call(broken)
    made.call(charge)


def ratelimiterror(place: Place) -> Any:
    response = httpx.Response(429, headers={"Retry-After": "7"}, request=httpx.Request("POST", "https://api.example/"))
    raise_for_status(response, environment=place.environment)


def serviceunreachable(place: Place) -> Any:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    token = issue_token("live", place.environment.random).text
    with Client(f"http://127.0.0.1:{port}", token=token, environment="live", retry=Retry(attempts=1)) as client:
        client.db("acme", "shop").query("SELECT 1")


def spoolfull(place: Place) -> Any:
    cadence = Cadence(size=2, seconds=60)
    emitter = Emitter(
        place.gate(),
        "usage",
        lambda items: None,
        reference="usage:{number}",
        retry=Retry(),
        cadence=cadence,
        spool_max=2,
        timer=False,
    )
    with emitter:
        for number in range(3):
            emitter.emit({"number": number})


# --- HTTP ---


def ask(place: Place, headers: dict[str, str], body: bytes = b"{}", handler: Any = None, **profile: Any) -> Any:
    """What the WSGI middleware answers."""

    def served(environ: Any, start_response: Any) -> list[bytes]:
        start_response("201 Created", [("Content-Type", "application/json")])
        return [b"{}"]

    app = IdempotencyMiddleware(handler or served, gate=place.gate(), scope=SCOPE, **profile)
    given: dict[str, Any] = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    environ = given | {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/charges",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": BytesIO(body),
        "wsgi.errors": BytesIO(),
        "wsgi.url_scheme": "http",
        "SERVER_NAME": "shop.example",
        "SERVER_PORT": "80",
    }
    status: list[str] = []
    pieces: Any = app(environ, lambda line, headers, exc_info=None: status.append(line))
    content = b"".join(pieces)
    return status[0], json.loads(content)


def planincomplete(place: Place) -> Any:
    return ask(place, {"Plan-Key": "order-17"})


def ambiguousidentity(place: Place) -> Any:
    return ask(place, {"Idempotency-Key": KEY, "Plan-Key": "order-17", "Plan-Step": "charge"})


def bodytoolarge(place: Place) -> Any:
    return ask(place, {"Idempotency-Key": KEY}, b'"0123456789"', body_bytes_max=10)


def handlerfailed(place: Place) -> Any:
    def fails(environ: Any, start_response: Any) -> NoReturn:
        raise KeyError("amount")

    with suppress(KeyError):
        ask(place, {"Idempotency-Key": KEY}, handler=fails, remember="all")
    return ask(place, {"Idempotency-Key": KEY}, handler=fails, remember="all")


def uploadtimeout(place: Place) -> Any:
    sent: list[dict[str, Any]] = []

    async def receive() -> Any:
        await asyncio.Event().wait()  # The body never comes.

    async def send(message: Any) -> None:
        sent.append(message)

    async def request() -> None:
        async with AsyncGate(place.url, scope=SCOPE) as gate:
            app = AsgiMiddleware(lambda *_: None, gate=gate, scope=SCOPE, upload_seconds_max=0.01)  # type: ignore[arg-type, return-value]
            headers = [(b"idempotency-key", KEY.encode()), (b"content-length", b"9"), (b"content-type", b"text/plain")]
            scope = {"type": "http", "method": "POST", "path": "/charges", "raw_path": b"/charges", "headers": headers,
                     "query_string": b"", "http_version": "1.1"}  # fmt: skip
            await app(scope, receive, send)

    asyncio.run(request())
    return f"{sent[0]['status']} Request Timeout", json.loads(sent[1]["body"])


# --- webhooks ---


def inbox(place: Place, secrets: list[Secret]) -> Inbox:
    made = Inbox(place.url, scope=SCOPE, environment=place.environment)
    made.add(Source("pacspace", PacSpace(), secrets, print))
    return made


def signed(place: Place, secret: Secret, id: str = "evt_1") -> tuple[dict[str, str], bytes]:
    body = b'{"event": "paid"}'
    return PacSpace().sign(id, body, [secret], now=place.environment.wall_us() / 1e6), body


def signatureinvalid(place: Place) -> Any:
    inbox(place, [Secret(b"a" * 32)]).receive("pacspace", *signed(place, Secret(b"b" * 32)))


def eventinvalid(place: Place) -> Any:
    headers, body = signed(place, Secret(b"a" * 32))
    del headers[next(name for name in headers if name.lower() == "x-event-id")]
    inbox(place, [Secret(b"a" * 32)]).receive("pacspace", headers, body)


def sourceunknown(place: Place) -> Any:
    inbox(place, [Secret(b"a" * 32)]).receive("stripe", *signed(place, Secret(b"a" * 32)))


def sourceunready(place: Place) -> Any:
    inbox(place, []).receive("pacspace", *signed(place, Secret(b"a" * 32)))


def targetrefused(place: Place) -> Any:
    parse_target("https://localhost/hooks")


# --- the service ---


def access(place: Place) -> Access:
    store = open_store(place.url)
    store.load(bytes(32))  # Makes the tables of records.
    store.close()
    with patch.dict(os.environ, {VARIABLE: PEPPER}):
        return Access.open(place.url, create=True, environment=place.environment)


def tokeninvalid(place: Place) -> Any:
    opened = access(place)
    opened.create_tenant("acme")
    made = opened.create_token("acme")
    opened.revoke_token(made.view.id)
    opened.authenticate(made.issued.text)


def forbidden(place: Place) -> Any:
    opened = access(place)
    opened.create_tenant("acme")
    made = opened.create_token("acme", role="read")
    opened.authenticate(made.issued.text).require(role="write")


def balanceexhausted(place: Place) -> Any:
    opened = access(place)
    opened.create_tenant("acme", prepaid=True)
    opened.charge("acme", 250_000)


def quotaexceeded(place: Place) -> Any:
    opened = access(place)
    opened.create_tenant("acme", quota_records=1)
    place.gate().run("other", charge)
    opened.admit("acme")


SCENES: dict[type[errors.OncewardError], Scene] = {
    getattr(errors, name): globals()[name.lower()]
    for name in errors.__all__
    if name.lower() in globals() and isinstance(getattr(errors, name), type)
}
