"""Metrics: what each event counts as, in bounds, and as text that Prometheus reads."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest

from onceward import Gate, StoreUnavailable
from onceward.errors import OncewardError
from onceward.gate import Event, EventType
from onceward.observe import CATALOGUE, Metrics, MetricsApp, MetricsWsgiApp, StoreGauges
from onceward.observe.event_meter import _HANDLERS, LAPSE_SECONDS, OTHER
from onceward.retry import Breaker
from onceward.stores import open_store
from onceward.testing.clock import StillEnvironment

SECRET = "ann.smith@example.com"


@pytest.fixture
def metrics(still: StillEnvironment, heard: Callable[[Any], Any]) -> Metrics:
    return heard(Metrics(environment=still))


def event(happening: EventType, operation: str = "pay", detail: str = "", number: int = 1) -> Event:
    return Event(happening, f"{number:012x}", "acme", operation, 1, number, detail)


class TestOperations:
    """Counters, durations and gauges of gates."""

    @pytest.mark.fault("an-ended-claim-stays-in-flight")
    def test_fresh_runs_replays_and_their_time_are_counted(self, metrics: Metrics, still: StillEnvironment) -> None:
        """
        Three seconds for the fresh run, none for the replay; in flight while it runs, and not afterwards.
        """
        during: list[float] = []

        def work() -> int:
            still.advance(3)
            during.extend([metrics.value("onceward_in_flight", operation="pay"), metrics.oldest_in_flight()])
            return 1

        with Gate("memory://", scope="acme", environment=still) as gate:
            gate.call("k", work, name="pay")
            gate.call("k", work, name="pay")

        assert during == [1.0, 3.0]
        assert metrics.value("onceward_in_flight", operation="pay") == 0
        assert metrics.value("onceward_operations_total", operation="pay", outcome="fresh") == 1
        assert metrics.value("onceward_operations_total", operation="pay", outcome="replayed") == 1
        assert 'onceward_operation_duration_seconds_sum{operation="pay"} 3\n' in metrics.text()
        assert 'onceward_operation_duration_seconds_bucket{operation="pay",le="2.5"} 0\n' in metrics.text()
        assert 'onceward_operation_duration_seconds_bucket{operation="pay",le="5"} 1\n' in metrics.text()

    def test_an_atomic_run_is_fresh_and_has_its_time(
        self, metrics: Metrics, still: StillEnvironment, tmp_path: Path
    ) -> None:
        """
        It is told when it is over; its time is its own all the same.
        """
        mine = sqlite3.connect(tmp_path / "gate.db")
        with Gate(f"sqlite:///{tmp_path}/gate.db", scope="acme", environment=still) as gate:
            gate.atomic(mine, "a:1", lambda: still.advance(4), name="book")
            mine.commit()
        mine.close()

        assert metrics.value("onceward_operations_total", operation="book", outcome="fresh") == 1
        assert 'onceward_operation_duration_seconds_sum{operation="book"} 4\n' in metrics.text()

    def test_a_wait_is_measured_for_each_who_waits(self, metrics: Metrics, still: StillEnvironment) -> None:
        """
        Two threads wait for one key: each has its own beginning, and both ends count.
        """
        began, go = threading.Barrier(3), threading.Event()

        def wait() -> None:
            metrics(event(EventType.WAITING))
            began.wait(60)
            go.wait(60)
            metrics(event(EventType.REPLAYED))

        threads = [threading.Thread(target=wait) for _ in range(2)]
        for one in threads:
            one.start()
        began.wait(60)
        still.advance(2)
        go.set()
        for one in threads:
            one.join(60)
        metrics(event(EventType.REPLAYED))

        assert metrics.value("onceward_wait_duration_seconds", operation="pay") == 2
        assert 'onceward_wait_duration_seconds_sum{operation="pay"} 4\n' in metrics.text()

    def test_refusals_and_doubt_are_counted(self, metrics: Metrics, still: StillEnvironment) -> None:
        """
        In doubt after a time-out; refused, with the reason, whoever comes then.
        """

        def lost() -> None:
            raise TimeoutError

        with Gate("memory://", scope="acme", environment=still) as gate:
            with pytest.raises(TimeoutError):
                gate.call("k", lost, name="pay")
            with pytest.raises(OncewardError):
                gate.call("k", lost, name="pay")

        assert metrics.value("onceward_operations_total", operation="pay", outcome="in_doubt") == 1
        assert metrics.value("onceward_refusals_total", operation="pay", reason="in_doubt") == 1

    def test_the_state_of_a_breaker_is_one_of_three(self, metrics: Metrics, still: StillEnvironment) -> None:
        """
        1 for the state that it is in, 0 for the others.
        """
        breaker = Breaker("bank", environment=still)
        breaker.trip()
        states = {
            state: metrics.value("onceward_breaker_state", breaker="bank", state=state)
            for state in ("closed", "open", "half_open")
        }
        breaker.reset()

        assert states == {"closed": 0, "open": 1, "half_open": 0}
        assert metrics.value("onceward_breaker_state", breaker="bank", state="open") == 0

    def test_every_type_of_event_counts_as_something(self, metrics: Metrics) -> None:
        """
        A type that is added to events needs its place here; and what is counted is in the catalogue.
        """
        for happening in EventType:
            metrics(event(happening, detail="open"))

        assert set(_HANDLERS) == set(EventType)
        assert {line.split("{")[0].split(" ")[0] for line in metrics.text().splitlines() if line[0] != "#"} <= {
            one.name + end for one in CATALOGUE for end in ("", "_bucket", "_sum", "_count")
        }


class TestBounds:
    """However many names, keys and claims there are."""

    @pytest.mark.fault("every-name-is-a-series")
    def test_names_past_the_limit_are_counted_together(self, still: StillEnvironment) -> None:
        """
        A hundred thousand names, such as somebody makes who puts an id into them: a hundred series, and one for all
        others.
        """
        metrics = Metrics(names_max=100, environment=still)
        for number in range(100_000):
            metrics(event(EventType.REPLAYED, f"pay-{number}"))

        assert metrics.text().count("onceward_operations_total{") == 101
        assert metrics.value("onceward_operations_total", operation=OTHER, outcome="replayed") == 99_900
        assert metrics.value("onceward_names_folded_total", label="operation") == 99_900

    @pytest.mark.fault("a-folded-name-is-counted-once")
    def test_a_name_past_the_limit_is_counted_as_folded_each_time(self, still: StillEnvironment) -> None:
        """
        Even if it is the name under which others are counted; and one that came before the limit never is.
        """
        metrics = Metrics(names_max=1, environment=still)
        for name in ("pay", "mail", "mail", "pay", OTHER, OTHER):
            metrics(event(EventType.REPLAYED, name))

        assert metrics.value("onceward_names_folded_total", label="operation") == 4
        assert metrics.value("onceward_operations_total", operation="pay", outcome="replayed") == 2
        assert metrics.value("onceward_operations_total", operation=OTHER, outcome="replayed") == 4

    def test_neither_key_nor_digest_nor_scope_is_shown(self, metrics: Metrics) -> None:
        """
        "never keys or digests; scopes only if that is asked for"
        """
        asked = Metrics(scopes=True)
        with Gate("memory://", scope="tenant-17", listeners=[asked]) as gate:
            gate.call(f"mail:{SECRET}", lambda: SECRET, name="mail")
            digest = gate.records.get(f"mail:{SECRET}").digest

        assert not [one for one in (SECRET, digest, "tenant-17") if one in metrics.text()]
        assert 'operation="tenant-17/mail"' in asked.text()

    def test_a_claim_whose_end_was_never_told_is_not_in_flight_for_ever(self, still: StillEnvironment) -> None:
        """
        After a day it is left out, and the gauge goes back.
        """
        metrics = Metrics(environment=still)
        metrics(event(EventType.CLAIMED))
        still.advance(LAPSE_SECONDS)

        assert metrics.oldest_in_flight() == 0
        assert metrics.value("onceward_in_flight", operation="pay") == 0

    @pytest.mark.fault("a-name-breaks-the-text")
    def test_a_name_cannot_break_the_text(self, still: StillEnvironment) -> None:
        """
        Quotes, backslashes, newlines and half a surrogate are escaped or replaced: one line for each series.
        """
        metrics = Metrics(environment=still)
        metrics(event(EventType.REPLAYED, 'a"} 1\nonceward_forged 1\\\ud800'))
        text = metrics.text()

        assert "\nonceward_forged" not in text
        assert 'operation="a\\"} 1\\nonceward_forged 1\\\\?"' in text
        assert text.encode()


class TestApplications:
    """The metrics over HTTP."""

    def test_an_asgi_server_can_ask(self, metrics: Metrics) -> None:
        """
        GET has the text, HEAD its length, POST is refused.
        """
        metrics(event(EventType.REPLAYED))
        replies = {method: asyncio.run(ask(MetricsApp(metrics), method)) for method in ("GET", "HEAD", "POST")}

        assert [reply[0] for reply in replies.values()] == [200, 200, 405]
        assert replies["GET"][1][b"content-type"].startswith(b"text/plain; version=0.0.4")
        assert b'onceward_operations_total{operation="pay",outcome="replayed"} 1\n' in replies["GET"][2]
        assert (replies["HEAD"][1], replies["HEAD"][2]) == (replies["GET"][1], b"")

    def test_a_wsgi_server_can_ask(self, metrics: Metrics) -> None:
        """
        The same for WSGI.
        """
        environ: dict[str, Any] = {}
        setup_testing_defaults(environ)
        started: list[Any] = []
        body = b"".join(MetricsWsgiApp(metrics)(environ, lambda *given: started.append(given)))

        assert started[0][0] == "200 OK"
        assert dict(started[0][1])["Content-Length"] == str(len(body))
        assert b"onceward_oldest_in_flight_seconds 0\n" in body


async def ask(app: MetricsApp, method: str) -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http", "method": method, "path": "/"}, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


class TestStoreGauges:
    """What all processes hold."""

    @pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/gate.db"])
    def test_doubt_and_flight_of_every_process_are_counted(
        self, url: str, still: StillEnvironment, tmp_path: Path
    ) -> None:
        """
        One in doubt, one in flight for ten seconds, one settled; remembered for fifteen seconds.
        """
        store = open_store(url.format(tmp_path), environment=still)
        metrics = Metrics(environment=still)
        metrics.add_collector(StoreGauges(store, environment=still))

        def lost() -> None:
            raise TimeoutError

        with Gate(store, scope="acme", environment=still) as gate:
            gate.run("done", lambda: 1)
            with pytest.raises(TimeoutError):
                gate.run("doubt", lost)
            shown: list[str] = []
            gate.run("long", lambda: (still.advance(10), shown.append(metrics.text())))  # type: ignore[func-returns-value]
            shown.append(metrics.text())
            still.advance(15)
            shown.append(metrics.text())

        assert "onceward_store_in_doubt 1\n" in shown[0]
        assert "onceward_store_in_flight 1\n" in shown[0]
        assert "onceward_store_oldest_in_flight_seconds 10\n" in shown[0]
        assert "onceward_store_in_flight 1\n" in shown[1]
        assert "onceward_store_in_flight 0\n" in shown[2]

    @pytest.mark.fault("a-store-that-is-away-is-healthy")
    def test_a_store_that_is_away_says_so(self, still: StillEnvironment) -> None:
        """
        `onceward_store_up 0`, and no old figure; everything else is shown.
        """

        class Away:
            def scan(self, *given: Any) -> Any:
                raise StoreUnavailable("away")

        metrics = Metrics(environment=still)
        metrics.add_collector(StoreGauges(Away(), environment=still))  # type: ignore[arg-type]

        assert "onceward_store_up 0\n" in metrics.text()
        assert "onceward_store_in_doubt" not in metrics.text()
        assert "onceward_oldest_in_flight_seconds 0\n" in metrics.text()
