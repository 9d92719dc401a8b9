"""
Every refusal that a service publishes is provoked over a socket, or it is said why it is not.

The other direction is in `service_support`: whatever any test of the service is refused with must be published.
"""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from service_support import INSERT, Heard, Served, published_lists
from test_service_in_flight import PATIENT, two_at_once

from onceward.gate import Gate
from onceward.http.server.problems import WELL_KNOWN
from onceward.protocol.errors import SqlKind
from onceward.service.settings import Settings, store_url_of
from onceward.service.web.service_contract import all_refusals

ROOT = Path(__file__).parents[2]
ROW = ["e-1", "click"]


class Place:
    """A service, a database, and what else a refusal needs."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.path = served.database()

    def query(self, sql: str = "SELECT 1", params: Any = None, **more: Any) -> Heard:
        return self.served.query(self.path, sql, params, **more)

    def delta(self, *, key: str | None = None, **members: Any) -> Heard:
        body = {"customerId": "c", "delta": 1, "reason": "r", **members}
        return self.served.call(
            "POST", "/api/v1/balance/delta", body, headers={"Idempotency-Key": key} if key else None
        )

    def raw(self, data: bytes) -> bytes:
        host = urlsplit(self.served.address)
        with socket.create_connection((host.hostname or "", host.port or 0), timeout=PATIENT) as line:
            line.sendall(data)
            told = b""
            while piece := line.recv(65_536):
                told += piece
            return told


def as_heard(place: Place, told: bytes, method: str = "GET", path: str = "/health") -> Heard:
    """A response that was read from the socket itself, checked like any other."""
    head, _, body = told.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    heard = Heard(int(lines[0].split()[1]), headers, body)
    place.served.check_is_published(method, path, heard)
    return heard


def reused(place: Place) -> Heard:
    place.query(key="k")
    return place.query("SELECT 2", key="k")


def without_money(place: Place) -> Heard:
    token = place.served.new_token("poor", role="admin")
    with place.served.access() as access:
        access.top_up("poor", 1, reference="t", begin_prepaid=True)
    place.served.call("PUT", "/v1/db/poor/x", token=token)
    return place.served.query("/v1/db/poor/x", "SELECT 1", token=token)


def flooded(place: Place) -> Heard:
    heard = place.served.call("GET", "/v1/records", token="")
    while heard.status == 401:
        heard = place.served.call("GET", "/v1/records", token="")
    return heard


def reused_reference(place: Place) -> Heard:
    place.delta(referenceId="once")
    return place.delta(referenceId="once", delta=2)


def closed_period(place: Place) -> Heard:
    late: dict[str, Any] = {"customerId": "closed", "period": "2020-01"}
    place.delta(**late, referenceId="in-time")
    place.served.call("POST", "/api/v1/balance/checkpoint", late)
    return place.delta(**late, referenceId="late")


def closed_too_early(place: Place) -> Heard:
    month = place.delta(customerId="early", referenceId="early-1").document["period"]
    body = {"customerId": "early", "period": month, "close": True}
    place.served.call("POST", "/api/v1/balance/checkpoint", body)
    return place.delta(customerId="early", referenceId="early-2")


def pending_delta(place: Place) -> Heard:
    """Two deltas with one key while the file of the ledger is somebody else's."""
    with closing(sqlite3.connect(place.served.folder / "records.ledger.db", isolation_level=None)) as held:
        held.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(2) as pool:
            sent = [pool.submit(place.delta, key="both") for _ in range(2)]
            while not any(one.done() for one in sent):
                place.served.call("GET", "/health", token="")
            held.execute("ROLLBACK")
            heard = [one.result(PATIENT) for one in sent]
    return next(one for one in heard if one.status == 202)


def locked(place: Place) -> Heard:
    """Somebody else has the file of the database for good."""
    file = place.served.folder / "databases" / "test-demo" / f"{place.path.rpartition('/')[2]}.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as held:
        held.execute("BEGIN IMMEDIATE")
        return place.query(INSERT, ROW)


def without_admin(place: Place) -> Heard:
    return place.served.call("GET", "/v1/records", token=place.served.new_token("demo"))


def posted(place: Place, path: str, body: Any = None, **more: Any) -> Heard:
    return place.served.call("POST", path, {} if body is None else body, **more)


PROVOKED: dict[str, Callable[[Place], Heard]] = {
    "request_invalid": lambda place: place.served.call("GET", "/v1/records?nonsense=1"),
    "head_too_large": lambda place: as_heard(place, place.raw(b"GET /health HTTP/1.1\r\nX: " + b"x" * 70_000)),
    "upload_timeout": lambda place: as_heard(place, place.raw(b"GET /health HTTP/1.1\r\nX: ")),
    "not_found": lambda place: place.served.call("GET", "/nowhere"),
    "method_not_allowed": lambda place: place.served.call("PATCH", "/v1/records"),
    "token_invalid": lambda place: admitted(lambda: place.query(token="onw_live_nobody")),
    "rate_limited": flooded,
    "forbidden": without_admin,
    "media_type_unsupported": lambda place: place.query(headers={"Content-Type": "text/plain"}),
    "body_too_large": lambda place: place.served.call("POST", f"{place.path}/query", raw=b" " * 5_000_001),
    "key_invalid": lambda place: place.query(key="k" * 201),
    "key_missing": lambda place: place.delta(),
    "plan_incomplete": lambda place: place.query(headers={"Plan-Key": "p"}),
    "ambiguous_identity": lambda place: place.query(key="k", headers={"Plan-Key": "p", "Plan-Step": "s"}),
    "key_reused": reused,
    "in_flight": lambda place: two_at_once(place.served, lambda: place.query(INSERT, ROW, key="k"))[0],
    "IDEMPOTENCY_PENDING": pending_delta,
    "database_unknown": lambda place: place.served.query("/v1/db/demo/nothing", "SELECT 1"),
    "name_invalid": lambda place: place.served.query("/v1/db/demo/CAPITALS", "SELECT 1"),
    "balance_exhausted": without_money,
    "already_settled": lambda place: settled(place, {"result": 2}),
    "illegal_move": lambda place: settled(place, {"result": 1, "fence": 7}),
    "expired": lambda place: expired(place),
    "reference_reused": reused_reference,
    "period_closed": closed_period,
    "period_not_open": closed_too_early,
    "customer_unknown": lambda place: place.served.call("GET", "/api/v1/balance/derive/nobody"),
    "delta_unknown": lambda place: place.served.call("GET", f"/api/v1/balance/delta/dl_{'0' * 32}"),
    "receipt_unknown": lambda place: no_receipt(place),
    "source_unknown": lambda place: admitted(lambda: posted(place, "/hooks/nobody", token="")),
}
"""A call for every code that is published; `sql_error` is below, kind by kind."""

ELSEWHERE = {
    "quota_exceeded": ("tests/service/test_service_tenants.py", "quota_exceeded"),
    "seal_key_missing": ("tests/service/test_service_sealed.py", "seal_key_missing"),
    "overloaded": ("tests/service/test_service_connections.py", "Overloaded"),
    "internal": ("tests/service/test_service_bad_input.py", "500"),
    "store_unavailable": ("tests/service/test_service_ending.py", "store_unavailable"),
    "store_contended": ("tests/stores/test_sqlite_rows.py", "StoreContended"),
    "store_full": ("tests/stores/test_sqlite_faults.py", "StoreFull"),
    "outcome_unknown": ("tests/service/sql/test_sql_groups.py", "OutcomeUnknown"),
    "engine_closed": ("tests/service/sql/test_sql_engine.py", "EngineClosed"),
    "delta_refused": ("tests/service/ledger/test_ledger_booking.py", "DeltaRefused"),
    "verification_pending": ("tests/service/ledger/test_ledger_checkpoints.py", "VerificationPending"),
    "signature_invalid": ("tests/service/test_service_hooks.py", "signature_invalid"),
    "source_unready": ("tests/service/test_service_hooks.py", "source_unready"),
    "event_invalid": ("tests/service/test_service_hooks.py", "event_invalid"),
}
"""Codes that need more than a call, such as a full disk: the file that provokes each, and a word of it."""


def admitted(send: Callable[[], Heard]) -> Heard:
    """Another test may have used up what this address may send without a token; one a second comes back."""
    heard = send()
    while heard.status == 429:
        heard = send()
    return heard


def settled(place: Place, body: Any) -> Heard:
    """A decision about a record of the store that is settled already."""
    with Gate(store_url_of(Settings(folder=str(place.served.folder))), scope="test:demo", retain=3_600) as gate:
        gate.run("decided", lambda: 1)
    [record] = place.served.call("GET", "/v1/records?key=decided").document["records"]
    return posted(place, f"/v1/records/{record['id']}/reconcile", body)


def expired(place: Place) -> Heard:
    """A key of the ledger after its retention."""
    heard = place.delta(key="old", referenceId="old")
    while heard.status == 200:
        heard = place.delta(key="old", referenceId="old")
    return heard


def no_receipt(place: Place) -> Heard:
    place.delta(customerId="receipted", referenceId="receipted")
    return place.served.call("GET", "/api/v1/balance/receipt/receipted?referenceId=another")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that refuses soon: results for two seconds, a few calls without a token, and who pays pays a lot."""
    service = Served.started(
        tmp_path_factory.mktemp("strict"), "--retain", "2", "--receive-seconds", "1", "--flood-burst", "5",
        "--in-flight", "409", "--price", "1000000", "--writers", "1",
    )  # fmt: skip
    yield service
    service.stop()


def test_every_published_refusal_is_provoked_or_has_a_reason(strict: Served) -> None:
    """
    A new one is provoked here, or it is said where; and none is published twice with different advice.
    """
    published = all_refusals(strict.contract())
    codes = {one["code"] for one in published}

    assert codes - {"sql_error"} == PROVOKED.keys() | ELSEWHERE.keys()
    assert not PROVOKED.keys() & ELSEWHERE.keys()
    assert [code for code, (file, word) in ELSEWHERE.items() if word not in (ROOT / file).read_text()] == []
    assert {one["kind"] for one in published if one["code"] == "sql_error"} == set(map(str, SqlKind))


@pytest.mark.parametrize("code", PROVOKED)
@pytest.mark.fault("a-refusal-is-not-published", "the-status-that-is-published-is-another")
def test_a_published_refusal_is_given_as_it_is_published(strict: Served, code: str) -> None:
    """
    Its status and its advice are the published ones (`service_support` compares), and its page is there.
    """
    heard = PROVOKED[code](Place(strict))
    page = strict.call("GET", heard.document["type"], token="")

    assert heard.code == code
    assert heard.document["type"] == f"{WELL_KNOWN}/{code.lower()}"
    assert page.status == 200
    assert str(heard.status) in page.body.decode()


SQL_KINDS: dict[SqlKind, Callable[[Place], Heard]] = {
    SqlKind.UNIQUE_VIOLATION: lambda place: [place.query(INSERT, ROW) for _ in range(2)][1],
    SqlKind.NOT_NULL: lambda place: place.query(INSERT, ["e", None]),
    SqlKind.FOREIGN_KEY: lambda place: [
        place.query("CREATE TABLE child (id TEXT REFERENCES events (id))"), place.query("INSERT INTO child VALUES (1)")
    ][1],
    SqlKind.CHECK: lambda place: [
        place.query("CREATE TABLE c (n CHECK (n > 0))"), place.query("INSERT INTO c VALUES (0)")
    ][1],
    SqlKind.UNKNOWN_TABLE: lambda place: place.query("SELECT * FROM nowhere"),
    SqlKind.UNKNOWN_COLUMN: lambda place: place.query("SELECT missing FROM events"),
    SqlKind.SYNTAX: lambda place: place.query("SELEC 1"),
    SqlKind.TYPE: lambda place: [
        place.query("CREATE TABLE s (n INTEGER) STRICT"), place.query("INSERT INTO s VALUES ('x')")
    ][1],
    SqlKind.LOCKED: locked,
    SqlKind.TOO_MANY_PARAMS: lambda place: place.query("SELECT 1", [1] * 1_001),
    SqlKind.WRONG_PARAMS: lambda place: place.query("SELECT ?", [1, 2]),
    SqlKind.READONLY: lambda place: place.query(INSERT, ROW, token=place.served.new_token("demo", role="read")),
    SqlKind.TOO_LARGE: lambda place: place.query("SELECT 1".ljust(100_001)),
    SqlKind.DENIED: lambda place: place.query("ATTACH 'x' AS y"),
    SqlKind.INVALID: lambda place: place.query("SELECT json('{')"),
}  # fmt: skip
SQL_KINDS_ELSEWHERE = {
    SqlKind.TIMEOUT: "tests/service/test_service_limits.py",
    SqlKind.FULL: "tests/service/test_service_limits.py",
    SqlKind.NOT_IN_TRANSACTION: "tests/service/sql/test_sql_errors.py: what would need it is denied first",
}


def test_every_kind_of_sql_error_is_provoked_or_has_a_reason() -> None:
    """
    All of them.
    """
    assert SQL_KINDS.keys() | SQL_KINDS_ELSEWHERE.keys() == set(SqlKind)


@pytest.mark.parametrize("kind", SQL_KINDS)
def test_a_kind_of_sql_error_is_given_as_it_is_published(strict: Served, kind: SqlKind) -> None:
    """
    Its status and its advice are the published ones (`service_support` compares).
    """
    heard = SQL_KINDS[kind](Place(strict))

    assert (heard.code, heard.document["kind"]) == ("sql_error", kind)


def test_the_check_itself_sees_what_is_not_published(strict: Served) -> None:
    """
    A code, a status or advice that is on no list of that address fails whatever test meets it.
    """
    lists = published_lists(strict.contract(), strict.call("GET", "/openapi.json", token="").document)
    path = "/v1/db/demo/x/query"

    assert lists.has("POST", path, {"code": "key_reused", "status": 422, "retry": "new-key"})
    assert not lists.has("POST", path, {"code": "key_reused", "status": 409, "retry": "new-key"})
    assert not lists.has("POST", path, {"code": "key_reused", "status": 422, "retry": "never"})
    assert not lists.has("POST", path, {"code": "signature_invalid", "status": 401, "retry": "never"})
    assert not lists.has("GET", "/v1/records", {"code": "key_reused", "status": 422, "retry": "new-key"})
