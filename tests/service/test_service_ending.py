"""Stopping while work is under way, a store that goes away and comes back, and answers that reach their end."""

from __future__ import annotations

import http.client
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from service_support import INSERT, TABLE, Heard, Served

from servers import postgres
from servers.proxy import Proxy

ROW = ["e-1", "click"]
SLOW = (
    "INSERT INTO events SELECT 'slow', max(i) FROM "
    "(WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n LIMIT 2000000) SELECT i FROM n)"
)
"""About a second."""


class Open:
    """A connection on which a request is under way."""

    def __init__(self, served: Served) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(served.address).netloc, timeout=120)
        self._token = served.token
        self._connection.request("GET", "/health")
        self._connection.getresponse().read()

    def send(self, path: str, document: Any, key: str) -> None:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", "Idempotency-Key": key}
        self._connection.request("POST", path, json.dumps(document), headers)

    def answer(self) -> Heard | None:
        """What came of it; None if the line was cut."""
        try:
            response = self._connection.getresponse()
            return Heard(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        except (http.client.HTTPException, OSError):
            return None
        finally:
            self._connection.close()


def test_what_is_under_way_at_the_end_settles_or_is_left_honest(tmp_path: Path) -> None:
    """
    SIGTERM while a slow statement runs and a batch waits behind it: exit code 0. Who was answered 200 has its rows and
    its replay after the next start; who was not can send it again, and it is there once.
    """
    service = Served.started(tmp_path, "--statement-seconds", "20")
    path = service.database()
    batch = {"statements": [{"sql": INSERT, "params": ["b-1", "x"]}, {"sql": INSERT, "params": ["b-2", "x"]}]}
    slow, waiting = Open(service), Open(service)
    slow.send(f"{path}/query", {"sql": SLOW}, "slow")
    waiting.send(f"{path}/batch", batch, "batch")
    service.call("GET", "/v1/db/demo")  # What was sent before this has arrived.
    service.process.send_signal(signal.SIGTERM)
    heard = [slow.answer(), waiting.answer()]
    code = service.stop()

    again = service.again()
    try:
        before = again.count(path)
        retried = [again.query(path, SLOW, key="slow"),
                   again.call("POST", f"{path}/batch", batch, headers={"Idempotency-Key": "batch"})]  # fmt: skip
        after = again.count(path)
    finally:
        again.stop()

    assert code == 0
    settled = [one is not None and one.status == 200 for one in heard]
    assert settled[0] + 2 * settled[1] <= before, "what was answered is there"
    assert after == 3
    for first, second, was in zip(heard, retried, settled, strict=True):
        assert second.status == 200
        if was and first is not None:
            assert (first.body, "true") == (second.body, second.headers["idempotency-replayed"])


@pytest.mark.skipif(not postgres.wanted(), reason="STORES leaves postgres out")
class TestStoreAway:
    """PostgreSQL goes away, and comes back."""

    @pytest.fixture
    def line(self) -> Iterator[Proxy]:
        """The way to PostgreSQL, which can be cut."""
        server = postgres.running()
        server.execute("CREATE DATABASE away")
        with Proxy(server.port) as proxy:
            yield proxy
        server.execute("DROP DATABASE away WITH (FORCE)")

    @pytest.mark.requirement("D39")
    def test_alive_but_not_ready_until_it_is_back(
        self, tmp_path: Path, line: Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Away: /health 200, /ready 503; a keyed write 503 with Retry-After and the advice to send it again, same key;
        nothing written. Back: ready by itself, and the same key runs once.
        """
        monkeypatch.setenv("ONCEWARD_PEPPER", "a pepper of more than thirty-two characters")
        store = f"postgresql://postgres@127.0.0.1:{line.port}/away?onceward_answer_timeout=2"
        service = Served.started(tmp_path, "--store", store)
        try:
            path = service.database()
            ready = [service.call("GET", "/ready", token="").status]
            line.lose_requests(1_000_000)
            line.cut()
            away = until(lambda: service.call("GET", "/ready", token=""), 503)
            health = service.call("GET", "/health", token="").status
            refused = until(lambda: service.query(path, INSERT, ROW, key="k"), 503)
            line.lose_requests(0)
            ready.append(until(lambda: service.call("GET", "/ready", token=""), 200).status)
            taken = until(lambda: service.query(path, INSERT, ROW, key="k"), 200)
            rows = service.count(path)
        finally:
            service.stop()

        assert ready == [200, 200]
        assert (health, away.code) == (200, "store_unavailable")
        assert (refused.code, refused.document["retry"]) == ("store_unavailable", "same-key")
        assert int(refused.headers["retry-after"]) >= 1
        assert b"127.0.0.1" not in away.body + refused.body
        assert (taken.status, rows) == (200, 1)


def until(ask: Any, status: int) -> Heard:
    """Ask until the answer is that; what a service remembers for a moment may come first."""
    for _ in range(2_000):
        heard: Heard = ask()
        if heard.status == status:
            return heard
    raise RuntimeError(f"never {status}")


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service whose answers replay for two seconds."""
    service = Served.started(tmp_path_factory.mktemp("forgetful"), "--retain", "2")
    yield service
    service.stop()


@pytest.mark.requirement("A01", "A15", "A27", "E32", "E33", "E34")
def test_an_answer_replays_as_long_as_is_published_and_then_it_runs_again(forgetful: Served) -> None:
    """
    Within: replayed. After: the key runs again, purged or not, and so does a step; the constraint still stands behind.
    """
    path = forgetful.database(table=TABLE)
    promised = forgetful.call("GET", "/.well-known/idempotency", token="").document["retainSeconds"]
    counted, step = "INSERT INTO events VALUES (hex(randomblob(8)), 'x')", {"Plan-Key": "p", "Plan-Step": "s"}
    first = [forgetful.query(path, counted, key="k"), forgetful.query(path, counted, headers=step),
             forgetful.query(path, INSERT, ROW, key="row")]  # fmt: skip
    within = [forgetful.query(path, counted, key="k"), forgetful.query(path, counted, headers=step)]
    # A plan stays as long as it is touched: this key is settled after that, and when it is over, so is the plan.
    forgetful.query(path, "SELECT 1", key="later")
    until(lambda: other(forgetful.query(path, "SELECT 1", key="later")), 200)
    ran = [forgetful.query(path, counted, key="k"), forgetful.query(path, counted, headers=step)]
    again = forgetful.query(path, INSERT, ROW, key="row")

    assert promised == 2
    assert {one.status for one in first} == {200}
    assert [one.body for one in first[:2]] == [one.body for one in within]
    assert [is_replay(one) for one in (*within, *ran)] == [True, True, False, False]
    assert {one.status for one in ran} == {200}
    assert (again.status, again.document["kind"]) == (409, "uniqueViolation"), "key and constraint together: one row"
    assert forgetful.count(path) == 5, "a key and a step, both twice, and the row"


def is_replay(heard: Heard) -> bool:
    return "idempotency-replayed" in heard.headers or "plan-replayed" in heard.headers


def other(heard: Heard) -> Heard:
    """The answer, if it is no replay."""
    return Heard(0, {}, b"{}") if is_replay(heard) else heard


@pytest.mark.requirement("A33")
def test_a_thousand_keyed_requests_of_one_token_are_not_held_back(served: Served, database: str) -> None:
    """
    None of them 429, all of them once.
    """
    statuses: list[int] = []

    def some(part: int) -> None:
        connection = http.client.HTTPConnection(urlsplit(served.address).netloc, timeout=120)
        for number in range(100):
            name = f"{part}-{number}"
            headers = {"Authorization": f"Bearer {served.token}", "Content-Type": "application/json",
                       "Idempotency-Key": name}  # fmt: skip
            connection.request("POST", f"{database}/query", json.dumps({"sql": INSERT, "params": [name, "x"]}), headers)
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
        connection.close()

    threads = [threading.Thread(target=some, args=(part,)) for part in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert statuses == [200] * 1_000
    assert served.count(database) == 1_000
