"""
Every number that a service publishes about itself is tried over a socket: at the limit it is taken, beyond it refused.

The service here has other limits than usual, so that a number which was written down instead of asked for is wrong.
"""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from math import prod
from pathlib import Path
from time import sleep
from typing import Any
from urllib.parse import urlsplit

import pytest
from service_support import Heard, Served
from test_service_hooks import Hooked
from test_service_in_flight import PATIENT, stopped

from onceward.cli import main
from onceward.service.sql.limits import PUBLISHED, Limits

LIMITS: dict[str, float] = {
    "statement_seconds": 1.5, "statements": 3, "answer_rows": 5, "answer_bytes": 2_000, "request_bytes": 60_000,
    "database_bytes": 500_000, "value_bytes": 52_500, "sql_bytes": 2_000, "columns": 40, "parameters": 41,
    "expression_depth": 30, "compound_selects": 4, "function_arguments": 8, "pattern_bytes": 19, "trigger_depth": 3,
    "queue_length": 3, "queue_seconds": 20, "group_length": 1,
}  # fmt: skip
COUNT = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT i FROM n"
ENDLESS = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that takes little."""
    folder = tmp_path_factory.mktemp("narrow")
    Hooked(folder)  # Sources.
    service = Served.limited(
        folder, LIMITS, "--mcp", "--receive-seconds", "1.25", "--retain", "1234.5",
        "--in-flight-seconds", "7.5", "--flood-burst", "100000",
    )  # fmt: skip
    yield service
    service.stop()


class Tried:
    """One service and one of its databases."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.path = served.database(table="")

    def query(self, sql: str, params: Any = None, **more: Any) -> Heard:
        return self.served.query(self.path, sql, params, **more)


def batch(tried: Tried, number: int) -> Heard:
    return tried.served.call("POST", f"{tried.path}/batch", {"statements": [{"sql": "SELECT 1"}] * number})


def triggers(tried: Tried, depth: int) -> Heard:
    """A write that sets off a trigger, which sets off another, as deep as that."""
    for number in range(depth + 1):
        tried.query(f"CREATE TABLE IF NOT EXISTS t{depth}_{number} (n)")
        if number:
            tried.query(
                f"CREATE TRIGGER IF NOT EXISTS g{depth}_{number} AFTER INSERT ON t{depth}_{number - 1} "
                f"BEGIN INSERT INTO t{depth}_{number} VALUES (1); END"
            )
    return tried.query(f"INSERT INTO t{depth}_0 VALUES (1)")


def padded(tried: Tried, size: int) -> Heard:
    """A body of so many bytes, most of them spaces."""
    raw = json.dumps({"sql": "SELECT 1"}).encode().ljust(size)
    return tried.served.call("POST", f"{tried.path}/query", raw=raw)


def nested(tried: Tried, size: int) -> Heard:
    """A request of so many bytes, as the engine counts: statement and parameters."""
    sql = "SELECT length(?) + length(?)"
    rest = size - len(f'["{sql}",["",""]]')
    return tried.query(sql, ["x" * (rest // 2), "y" * (rest - rest // 2)])


def result_of(tried: Tried, size: int) -> Heard:
    """A result of so many bytes: short of what comes around the value, which is told."""
    return tried.query("SELECT substr(hex(zeroblob(5000)), 1, ?)", [size])


def sql_of(tried: Tried, size: int) -> Heard:
    return tried.query("SELECT 1".ljust(size))


SQL_LIMITS: dict[str, tuple[Callable[[Tried, int], Heard], str]] = {
    "statementsMax": (batch, "tooLarge"),
    "resultRowsMax": (lambda tried, n: tried.query(COUNT, [n]), "tooLarge"),
    "valueBytesMax": (lambda tried, n: tried.query("SELECT length(?)", ["x" * n]), "tooLarge"),
    "sqlBytesMax": (sql_of, "tooLarge"),
    "columnsMax": (lambda tried, n: tried.query(f"SELECT {','.join(['1'] * n)}"), "tooLarge"),
    "parametersMax": (lambda tried, n: tried.query(f"SELECT 0 IN ({','.join(['?'] * n)})", [1] * n), "tooManyParams"),
    "expressionDepthMax": (lambda tried, n: tried.query(f"SELECT {'+'.join(['1'] * n)}"), "tooLarge"),
    "compoundSelectsMax": (lambda tried, n: tried.query(" UNION ALL ".join(["SELECT 1"] * n)), "tooLarge"),
    "functionArgumentsMax": (lambda tried, n: tried.query(f"SELECT max({','.join(['1'] * n)})"), "tooLarge"),
    "patternBytesMax": (lambda tried, n: tried.query("SELECT 'x' LIKE ?", ["x" * n]), "tooLarge"),
    "triggerDepthMax": (triggers, "tooLarge"),
    "requestBytesMax": (nested, "tooLarge"),
}
"""Limits that are exact: a request of that size, and the kind of the error beyond it."""

APART = {"statementSeconds", "resultBytesMax", "databaseBytesMax", "queueSeconds", "queuedRequestsMax"}
"""Limits that have a test of their own below."""


def test_every_published_limit_of_sql_is_tried(narrow: Served) -> None:
    """
    And none of the limits is forgotten: it is published, or it is about processes.
    """
    published = narrow.app_contract("SQL")["limits"]
    unpublished = set(Limits.__dataclass_fields__) - PUBLISHED.keys()

    assert set(published) == SQL_LIMITS.keys() | APART
    assert unpublished == {
        *("group_length", "memory_bytes", "address_bytes", "open_databases", "instructions"),
        *("slice_seconds", "quick_value_bytes", "compiled_names"),
    }


@pytest.mark.parametrize("name", SQL_LIMITS)
@pytest.mark.fault("a-published-limit-is-a-constant", "an-error-does-not-say-which-limit")
def test_a_limit_of_sql_is_what_is_published(narrow: Served, name: str) -> None:
    """
    At the limit it runs; one more is refused with the kind of its error, and the text says the limit in force.
    """
    tried, (act, kind) = Tried(narrow), SQL_LIMITS[name]
    limit = narrow.app_contract("SQL")["limits"][name]
    at, beyond = act(tried, limit), act(tried, limit + 1)

    assert at.status == 200, at.body
    assert (beyond.code, beyond.document["kind"]) == ("sql_error", kind)
    assert str(limit) in beyond.document["detail"]


@pytest.mark.fault("a-published-limit-is-a-constant")
def test_a_statement_runs_as_long_as_is_published(narrow: Served) -> None:
    """
    One that has no end is stopped, and the text says after how many seconds.
    """
    seconds = narrow.app_contract("SQL")["limits"]["statementSeconds"]
    heard = Tried(narrow).query(ENDLESS)

    assert (heard.status, heard.document["kind"]) == (408, "timeout")
    assert f" {seconds} s" in heard.document["detail"]


def test_a_result_may_be_as_large_as_is_published(narrow: Served) -> None:
    """
    A response of at most that many bytes is sent; one whose value alone has that many is not.
    """
    limit = narrow.app_contract("SQL")["limits"]["resultBytesMax"]
    tried = Tried(narrow)
    around = len(result_of(tried, 0).body) + 10  # The time that it took has more or fewer digits.
    at, beyond = result_of(tried, limit - around), result_of(tried, limit)

    assert (at.status, len(at.body) <= limit) == (200, True)
    assert (beyond.status, beyond.document["kind"]) == (413, "tooLarge")
    assert str(limit) in beyond.document["detail"]


@pytest.mark.fault("an-error-does-not-say-which-limit")
def test_a_database_may_be_as_large_as_is_published(narrow: Served) -> None:
    """
    Filled until it is full: nearly that many bytes, and not one more.
    """
    limit = narrow.app_contract("SQL")["limits"]["databaseBytesMax"]
    tried = Tried(narrow)
    tried.query("CREATE TABLE kept (b)")
    heard = tried.query("INSERT INTO kept VALUES (zeroblob(20000))")
    while heard.status == 200:
        heard = tried.query("INSERT INTO kept VALUES (zeroblob(20000))")
    file = narrow.folder / "databases" / "test-demo" / f"{tried.path.rpartition('/')[2]}.db"
    with closing(sqlite3.connect(file)) as connection:
        used = prod(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))

    assert (heard.status, heard.document["kind"]) == (507, "full")
    assert str(limit) in heard.document["detail"]
    assert used <= limit
    assert used > limit - 50_000


@pytest.fixture(scope="module")
def queueing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with a short queue, whose statements may be stopped for minutes."""
    service = Served.limited(
        tmp_path_factory.mktemp("queueing"), {**LIMITS, "statement_seconds": 600, "queue_seconds": 3}, "--writers", "1"
    )
    yield service
    service.stop()


def test_as_many_wait_for_a_database_as_is_published(queueing: Served) -> None:
    """
    One runs, so many wait, and one more is refused at once with the number; nothing of it was run.
    """
    path = queueing.database(table="CREATE TABLE kept (n)")
    limit = queueing.app_contract("SQL")["limits"]["queuedRequestsMax"]
    with ThreadPoolExecutor(limit + 2) as pool:
        with stopped(queueing):
            sent = [pool.submit(queueing.query, path, "INSERT INTO kept VALUES (1)") for _ in range(limit + 2)]
            while not any(one.done() for one in sent):
                queueing.call("GET", "/v1/db/demo")
        heard = [one.result(PATIENT) for one in sent]
    refused = [one for one in heard if one.status != 200]
    at_once = [one for one in refused if f"{limit} requests wait" in one.document["detail"]]

    assert {(one.status, one.document["kind"]) for one in refused} == {(503, "locked")}
    assert len(at_once) == 1, "one more than may wait; those that waited for too long hear something else"
    assert "retry-after" in at_once[0].headers


def test_a_request_waits_as_long_as_is_published(queueing: Served) -> None:
    """
    What waited for longer than that when its turn came is refused, and was not run.
    """
    path = queueing.database(table="CREATE TABLE kept (n)")
    seconds = queueing.app_contract("SQL")["limits"]["queueSeconds"]
    with ThreadPoolExecutor(2) as pool:
        with stopped(queueing):
            pool.submit(queueing.query, path, "INSERT INTO kept VALUES (1)")
            queueing.call("GET", "/v1/db/demo")  # What was sent before this has arrived.
            waited = pool.submit(queueing.query, path, "INSERT INTO kept VALUES (2)")
            queueing.call("GET", "/v1/db/demo")
            sleep(seconds + 0.2)  # At least so long; longer does no harm.
        heard = waited.result(PATIENT)

    assert (heard.status, heard.document["kind"]) == (503, "locked")
    assert f" {seconds} s" in heard.document["detail"]
    assert queueing.count(path, "kept") == 1


# --- keys ---


@pytest.mark.parametrize("where", ["key", "plan", "step"])
@pytest.mark.parametrize("quoted", [False, True], ids=["bare", "quoted"])
@pytest.mark.fault("the-longest-key-is-another-apps")
def test_a_key_may_be_as_long_as_is_published(narrow: Served, where: str, quoted: bool) -> None:
    """
    At the limit it is a key; one more is refused, the text says the limit in force, and no text says another.
    """
    keys, tried = narrow.sql_contract(), Tried(narrow)
    longest = keys["keyCharactersMax"]

    def sent(length: int) -> Heard:
        text = f'"{"k" * length}"' if quoted else "k" * length
        if where == "key":
            return tried.query("SELECT 1", headers={keys["keyHeader"]: text})
        other = {"plan": keys["stepHeader"], "step": keys["planHeader"]}[where]
        return tried.query("SELECT 1", headers={keys[f"{where}Header"]: text, other: "p"})

    at, beyond = sent(longest), sent(longest + 1)

    assert at.status == 200
    assert (beyond.status, beyond.code) == (400, "key_invalid")
    assert str(longest) in beyond.document["detail"]
    assert "255" not in beyond.body.decode()


def test_what_is_published_about_keys_is_done(narrow: Served) -> None:
    """
    Headers, the marks of replays, the status for another request under the same key, a key and a step at once.
    """
    keys, tried = narrow.sql_contract(), Tried(narrow)
    plan = {keys["planHeader"]: "p", keys["stepHeader"]: "s"}
    kept = [tried.query("SELECT 1", headers={keys["keyHeader"]: "k"}) for _ in range(2)]
    steps = [tried.query("SELECT 1", headers=plan) for _ in range(2)]
    reused = tried.query("SELECT 2", headers={keys["keyHeader"]: "k"})
    both = tried.query("SELECT 1", headers={**plan, keys["keyHeader"]: "k"})

    assert [keys["replayHeader"].lower() in one.headers for one in kept] == [False, True]
    assert [keys["planReplayHeader"].lower() in one.headers for one in steps] == [False, True]
    assert (reused.status, reused.code) == (keys["mismatchStatus"], "key_reused")
    assert (keys["both"], both.status, both.code) == ("refuse", 400, "ambiguous_identity")
    assert (keys["requireKey"], tried.query("CREATE TABLE unkeyed (n)").status) == (False, 200)
    assert (keys["inFlight"], keys["waitSeconds"]) == ("wait", 7.5)
    assert "pendingCode" not in keys, "there is none while a second request waits"


@pytest.mark.fault("the-service-publishes-another-apps-guarantee")
def test_the_guarantee_that_is_published_is_that_of_the_records(narrow: Served) -> None:
    """
    `atomic`, and for as long as is published: the record that a write has made says so itself.
    """
    keys, tried = narrow.sql_contract(), Tried(narrow)
    tried.query("CREATE TABLE kept (n)", key="made")
    tried.query("INSERT INTO nowhere VALUES (1)", key="failed")
    [made] = narrow.call("GET", f"/v1/records?key=made&database={tried.path.rpartition('/')[2]}").document["records"]
    failed = narrow.call("GET", f"/v1/records?key=failed&database={tried.path.rpartition('/')[2]}").document["records"]

    assert (keys["guarantee"], keys["transactional"]) == (made["guarantee"], True)
    assert failed == [], "the record goes with what it is about"
    assert keys["retainSeconds"] == narrow.contract()["retainSeconds"] == 1234.5
    assert keys["retainSeconds"] - PATIENT < made["replaySecondsLeft"] <= keys["retainSeconds"]


# --- the other apps, and what is before all of them ---


def delta(served: Served, **members: Any) -> Heard:
    body = {"customerId": "c", "delta": 1, "reason": "r", "referenceId": f"x:{len(str(members))}", **members}
    return served.call("POST", "/api/v1/balance/delta", body)


BALANCE_LIMITS: dict[str, Callable[[Served, int], Heard]] = {
    "deltasMax": lambda served, n: served.call("POST", "/api/v1/balance/delta/batch", {"deltas": [
        {"customerId": "c", "delta": 1, "reason": "r", "referenceId": f"batch:{i}"} for i in range(n)]}),
    "customerCharactersMax": lambda served, n: delta(served, customerId="c" * n),
    "reasonCharactersMax": lambda served, n: delta(served, reason="r" * n, referenceId="reason"),
    "referenceCharactersMax": lambda served, n: delta(served, referenceId="r" * n),
    "metadataBytesMax": lambda served, n: delta(
        served, metadata={"m": "x" * (n - len('{"m":""}'))}, referenceId="metadata"),
}  # fmt: skip


@pytest.mark.parametrize("name", BALANCE_LIMITS)
def test_a_limit_of_the_ledger_is_what_is_published(narrow: Served, name: str) -> None:
    """
    At the limit it is booked, one more is refused.
    """
    limits = narrow.app_contract("Balance")["limits"]
    at, beyond = (BALANCE_LIMITS[name](narrow, limits[name] + more) for more in (0, 1))

    assert set(limits) == BALANCE_LIMITS.keys()
    assert at.status == 200, at.body
    assert beyond.status in (400, 422), beyond.body


@pytest.mark.parametrize("app", ["Records", "Journal", "Decisions"])
def test_a_page_has_as_many_entries_as_is_published(narrow: Served, app: str) -> None:
    """
    One more is refused.
    """
    limits = narrow.app_contract(app)["limits"]
    statuses = [
        narrow.call("GET", f"/v1/{app.lower()}?limit={limits['pageEntriesMax'] + more}").status for more in (0, 1)
    ]

    assert (set(limits), statuses) == ({"pageEntriesMax"}, [200, 400])


def test_a_body_may_be_as_long_as_is_published(narrow: Served) -> None:
    """
    Of a statement, of a call of a tool, of a webhook: one byte more is a 413.
    """
    whole, tried = narrow.contract()["limits"]["bodyBytesMax"], Tried(narrow)
    tools, hooks = (narrow.app_contract(name)["limits"]["bodyBytesMax"] for name in ("MCP", "Hooks"))
    ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    statements = [padded(tried, whole + more) for more in (0, 1)]
    calls = [narrow.call("POST", "/mcp", raw=ping.ljust(tools + more)) for more in (0, 1)]
    events = [narrow.call("POST", "/hooks/bare", raw=b" " * (hooks + more), token="") for more in (0, 1)]

    assert [one.status for one in statements] == [200, 413]
    assert [one.status for one in calls] == [200, 413]
    assert [one.status for one in events] == [503, 413], "its secret is not set, and that is looked at next"
    assert str(whole) in statements[1].document["detail"]


def raw(served: Served, data: bytes) -> bytes:
    """What comes back for these bytes, up to the end of the connection or of the response."""
    host = urlsplit(served.address)
    with socket.create_connection((host.hostname or "", host.port or 0), timeout=PATIENT) as line:
        line.sendall(data)
        told = b""
        while b"\r\n\r\n" not in told and (piece := line.recv(65_536)):
            told += piece
        return told


def test_a_head_may_be_as_long_as_is_published(narrow: Served) -> None:
    """
    A whole head of that length is taken; one that is longer and still has no end is a 431.
    """
    limit = narrow.contract()["limits"]["headBytesMax"]
    begun = b"GET /health HTTP/1.1\r\nHost: x\r\nX: "
    whole = begun + b"x" * (limit - len(begun) - 4) + b"\r\n\r\n"

    assert len(whole) == limit
    assert raw(narrow, whole).startswith(b"HTTP/1.1 200")
    assert raw(narrow, begun + b"x" * (limit - len(begun) + 1)).startswith(b"HTTP/1.1 431")


@pytest.mark.fault("the-time-to-arrive-is-a-constant")
def test_a_request_may_take_as_long_to_arrive_as_is_published(narrow: Served) -> None:
    """
    Half a request, and no more: a 408 that says the seconds in force.
    """
    seconds = narrow.contract()["limits"]["receiveSeconds"]
    host = urlsplit(narrow.address)
    with socket.create_connection((host.hostname or "", host.port or 0), timeout=PATIENT) as line:
        line.sendall(b"POST /v1/db/demo/x/query HTTP/1.1\r\nHost: x\r\n")
        told = b""
        while piece := line.recv(65_536):
            told += piece

    assert told.startswith(b"HTTP/1.1 408")
    assert f"{seconds:g} s".encode() in told


def test_every_published_number_is_in_a_test_of_this_file(narrow: Served) -> None:
    """
    A new one is tried, too, or this fails.
    """
    contract = narrow.contract()
    found = {(app["name"], name) for app in contract["apps"] for name in app["limits"]}
    found |= {("", name) for name in contract["limits"]}
    tried = {("SQL", name) for name in (*SQL_LIMITS, *APART)} | {("Balance", name) for name in BALANCE_LIMITS}
    tried |= {(app, "pageEntriesMax") for app in ("Records", "Journal", "Decisions")}
    tried |= {(app, "bodyBytesMax") for app in ("MCP", "Hooks", "")} | {("", "headBytesMax"), ("", "receiveSeconds")}

    assert found == tried


def test_the_schemas_have_the_limits_in_force(narrow: Served) -> None:
    """
    `maxLength`, `maxItems` and patterns of the OpenAPI document are the numbers of the contract.
    """
    limits, keys = narrow.app_contract("SQL")["limits"], narrow.sql_contract()
    document = narrow.call("GET", "/openapi.json", token="").document
    schemas = document["components"]["schemas"]
    operation = document["paths"]["/v1/db/{namespace}/{database}/query"]["post"]
    by_name = {one["name"]: one["schema"] for one in operation["parameters"]}
    longest = by_name["database"]["maxLength"]
    named = [narrow.call("PUT", f"/v1/db/demo/{'d' * (longest + more)}").status for more in (0, 1)]

    assert schemas["QueryRequest"]["properties"]["sql"]["maxLength"] == limits["sqlBytesMax"]
    assert schemas["BatchRequest"]["properties"]["statements"]["maxItems"] == limits["statementsMax"]
    assert schemas["QueryRequest"]["properties"]["params"]["anyOf"][0]["maxItems"] == limits["parametersMax"]
    assert by_name[keys["keyHeader"]]["maxLength"] == keys["keyCharactersMax"]
    assert named == [201, 400]


@pytest.mark.fault("the-command-publishes-other-settings")
def test_the_command_prints_what_the_service_publishes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    `onceward contract --service`, from a file and the environment: the running service's document, letter by letter.
    """
    (tmp_path / "serve.toml").write_text('retain = 77\nin_flight = "202"\nmcp = true\njournal = "off"\n')
    service = Served.started(tmp_path, "--config", str(tmp_path / "serve.toml"), ONCEWARD_SERVE_STATEMENT_SECONDS="2.5")
    try:
        published = service.contract()
    finally:
        service.stop()
    monkeypatch.setenv("ONCEWARD_SERVE_STATEMENT_SECONDS", "2.5")
    code = main(["contract", "--service", "--config", str(tmp_path / "serve.toml"), "--json"])
    printed = json.loads(capsys.readouterr().out)
    names = [one["name"] for one in printed["apps"]]

    assert code == 0
    assert printed == published
    assert (printed["retainSeconds"], printed["apps"][0]["limits"]["statementSeconds"]) == (77, 2.5)
    assert ("MCP" in names, "Journal" in names) == (True, False)
    assert main(["contract", "--service", "--config", str(tmp_path / "serve.toml")]) == 0
    assert "IDEMPOTENCY_PENDING" in capsys.readouterr().out
    assert main(["contract", "--config", str(tmp_path / "serve.toml")]) == 2
    assert main(["contract", "--service", "--profile", "stripe"]) == 2
