"""What a client's call is on the wire: the bytes of it, as a server that is not ours reads them, in both colours."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from own_client_support import INSERT, Maker

from onceward import KeyMissing, OncewardError, Retry
from onceward.service.access.issued_token import issue_token
from onceward.testing.clock import StillEnvironment
from servers.faults import FaultServer, respond

pytestmark = pytest.mark.dose(1, of="client_of")

TOKEN = issue_token("test", bytes).text
DONE = {"columns": [], "rows": [], "rowsRead": 0, "rowsWritten": 1, "lastInsertRowid": 1, "meta": {}}
BUSY = respond(503)


class Read(NamedTuple):
    """A request, taken apart by hand: nothing of ours has read it."""

    line: str
    fields: list[tuple[str, str]]
    body: bytes

    def named(self, name: str) -> list[str]:
        return [value for field, value in self.fields if field.lower() == name.lower()]


def read(request: bytes) -> Read:
    head, _, body = request.partition(b"\r\n\r\n")
    line, *fields = head.decode("ascii").split("\r\n")
    pairs = [(name, value.strip()) for name, _, value in (field.partition(":") for field in fields)]
    return Read(line, pairs, body)


class Meddling(StillEnvironment):
    """Between two attempts somebody changes what the caller handed over."""

    def __init__(self, meddle: Any) -> None:
        super().__init__()
        self.meddle, self.pauses = meddle, 0

    def sleep(self, seconds: float) -> None:
        self.pauses += 1
        self.meddle()
        super().sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        self.pauses += 1
        self.meddle()
        await super().asleep(seconds)


@pytest.mark.requirement("A02")
@pytest.mark.fault("the-key-travels-under-another-name", "parameters-are-not-sent")
@pytest.mark.parametrize(
    "params", [["e-1", "click"], {"id": "e-1", "name": "click"}, None], ids=["list", "named", "none"]
)
def test_a_query_is_one_key_field_and_a_body_with_sql_and_params(client_of: Maker, params: Any) -> None:
    """
    `query(sql, params, idempotency_key)`: the field once, with the value as it was given; the body is these two.
    """
    with FaultServer(respond(body=json.dumps(DONE).encode())) as server:
        database = client_of(server.url, token=TOKEN).db("demo", "shop")
        written = database.query(INSERT, params, idempotency_key="evt_2026-11-16_1").rows_written
        request = read(server.requests[0])

        assert (written, len(server.requests)) == (1, 1)
        assert request.line == "POST /v1/db/demo/shop/query HTTP/1.1"
        assert request.named("Idempotency-Key") == ["evt_2026-11-16_1"]
        assert {"sql": INSERT, "params": params} == json.loads(request.body)


@pytest.mark.requirement("A02")
@pytest.mark.fault("the-key-travels-under-another-name")
def test_without_a_key_there_is_no_such_field(client_of: Maker) -> None:
    """
    None is made up: a key that only this attempt knows would name nothing. With one, there it is.
    """
    with FaultServer(respond(body=json.dumps(DONE).encode())) as server:
        database = client_of(server.url, token=TOKEN).db("demo", "shop")
        database.query("SELECT 1")
        database.query("SELECT 1", idempotency_key="k")

        assert [read(one).named("Idempotency-Key") for one in server.requests] == [[], ["k"]]


@pytest.mark.requirement("C22")
@pytest.mark.fault("a-retry-reads-the-callers-object-again")
@pytest.mark.parametrize("what", ["query", "query by name", "batch", "emit"])
def test_what_the_caller_changes_between_attempts_is_not_sent(client_of: Maker, what: str) -> None:
    """
    A list, an object, a batch, a delta's metadata: each is changed while the first attempt fails, and the second is
    byte for byte the first.
    """
    row, named, metadata = ["e-1", "click"], {"id": "e-1", "name": "click"}, {"model": "m", "parts": [1]}
    statements = [(INSERT, row), (INSERT, named)]

    def meddle() -> None:
        row[1], named["name"], metadata["model"] = "changed", "changed", "changed"
        metadata["parts"].append(2)  # type: ignore[attr-defined]
        statements.append((INSERT, ["changed"]))

    still = Meddling(meddle)
    with FaultServer(BUSY, respond(400, body=b'{"code": "request_invalid", "title": "no", "status": 400}')) as server:
        client = client_of(server.url, token=TOKEN, retry=Retry(attempts=2, environment=still))
        database = client.db("demo", "shop")
        calls = {
            "query": lambda: database.query(INSERT, row, idempotency_key="k"),
            "query by name": lambda: database.query(INSERT, named, idempotency_key="k"),
            "batch": lambda: database.batch(statements, idempotency_key="k"),
            "emit": lambda: client.balance.emit("cus_1", -1, "call", reference_id="r1", metadata=metadata),
        }
        with pytest.raises(Exception, match="400"):
            calls[what]()
        first, second = map(read, server.requests)

    assert still.pauses == 1
    assert first.body == second.body
    assert b"changed" not in second.body
    assert first.named("Idempotency-Key") == second.named("Idempotency-Key")


@pytest.mark.requirement("C01")
@pytest.mark.fault("a-delta-without-a-name-is-sent")
def test_a_delta_without_a_name_is_refused_before_it_is_sent(client_of: Maker) -> None:
    """
    Neither key nor reference: `KeyMissing`, and no byte travels. With a key, the field is on the wire.
    """
    with FaultServer(respond(400, body=b'{"code": "request_invalid", "title": "no", "status": 400}')) as server:
        balance = client_of(server.url, token=TOKEN).balance
        with pytest.raises(OncewardError) as refused:
            balance.emit("cus_1", -1, "call")
        before = len(server.requests)
        with pytest.raises(Exception, match="400"):
            balance.emit("cus_1", -1, "call", idempotency_key="k-1")

        assert (KeyMissing, 0) == (refused.type, before)
        assert [read(one).named("Idempotency-Key") for one in server.requests] == [["test:k-1"]]
