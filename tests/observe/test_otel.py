"""OpenTelemetry: a span for each operation, current while it runs; a replay's is linked to the first run's."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from onceward import AsyncGate, Gate
from onceward.errors import OncewardError
from onceward.gate import Event, EventType
from onceward.observe import Metrics
from onceward.observe.catalogue import CATALOGUE
from onceward.observe.otel import FirstRun, MemoryTraceLinks, OtelMetrics, Tracing
from onceward.retry import Retry
from onceward.runtime.event_stream import EVENT_STREAM
from onceward.testing.clock import StillEnvironment

SECRET = "ann.smith@example.com"


class Traced:
    """Spans that have ended, and a tracer for what operations call."""

    def __init__(self, still: StillEnvironment) -> None:
        self._kept = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer = provider.get_tracer("test")
        self.tracing = Tracing(provider, environment=still)
        self.stop = self.tracing.start()

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._kept.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [one for one in self.spans if one.name == name]

    def inner(self) -> int:
        """What an operation calls."""
        with self.tracer.start_as_current_span("inner"):
            return 1


@pytest.fixture
def traced(still: StillEnvironment) -> Iterator[Traced]:
    made = Traced(still)
    yield made
    made.stop()


def outcome(span: ReadableSpan) -> Any:
    return (span.attributes or {})["onceward.outcome"]


class TestTraces:
    """Spans of operations."""

    @pytest.mark.fault("a-replay-is-not-linked")
    def test_a_replay_is_linked_to_the_first_run(self, traced: Traced, still: StillEnvironment) -> None:
        """
        "the trace of a replay links to the trace of the first run": another trace, with a link to the first.
        """
        with Gate("memory://", scope="acme", environment=still) as gate:
            with traced.tracer.start_as_current_span("first request"):
                gate.call("k", traced.inner, name="pay")
            with traced.tracer.start_as_current_span("second request"):
                gate.call("k", traced.inner, name="pay")
        fresh, replay = traced.named("onceward pay")

        assert [outcome(fresh), outcome(replay)] == ["fresh", "replayed"]
        assert [link.context for link in replay.links] == [fresh.context]
        assert replay.context.trace_id != fresh.context.trace_id  # type: ignore[union-attr]
        assert fresh.links == ()

    @pytest.mark.fault("a-span-is-not-current")
    def test_what_an_operation_calls_is_below_its_span(self, traced: Traced, still: StillEnvironment) -> None:
        """
        The span is current while the function runs, and not afterwards; blocking and awaiting.
        """

        async def awaited() -> int:
            await asyncio.sleep(0)
            return traced.inner()

        async def use() -> bool:
            async with AsyncGate("memory://", scope="acme", environment=still) as gate:
                await gate.call("k", awaited, name="apay")
            return trace.get_current_span().get_span_context().is_valid

        with Gate("memory://", scope="acme", environment=still) as gate:
            gate.call("k", traced.inner, name="pay")
            left = [trace.get_current_span().get_span_context().is_valid]
        left.append(asyncio.run(use()))
        parents = [one.parent.span_id for one in traced.named("inner") if one.parent is not None]

        assert parents == [
            one.context.span_id for name in ("pay", "apay") for one in traced.named(f"onceward {name}") if one.context
        ]
        assert left == [False, False]

    def test_doubt_and_refusals_are_errors_with_their_type(self, traced: Traced, still: StillEnvironment) -> None:
        """
        `error.type`, as the semantic conventions name it; the refusal that follows has no first run to link to.
        """

        def lost() -> None:
            raise TimeoutError

        with Gate("memory://", scope="acme", environment=still) as gate:
            with pytest.raises(TimeoutError):
                gate.call("k", lost, name="pay")
            with pytest.raises(OncewardError):
                gate.call("k", lost, name="pay")
        doubt, refused = traced.spans

        assert [(outcome(one), one.status.status_code.name) for one in (doubt, refused)] == [
            ("in_doubt", "ERROR"),
            ("refused", "ERROR"),
        ]
        assert (refused.attributes or {})["error.type"] == "in_doubt"

    def test_an_atomic_run_has_a_span_with_its_times(
        self, traced: Traced, still: StillEnvironment, tmp_path: Path
    ) -> None:
        """
        Made after the commit; as long as the run was.
        """
        mine = sqlite3.connect(tmp_path / "gate.db")
        with Gate(f"sqlite:///{tmp_path}/gate.db", scope="acme", environment=still) as gate:
            gate.atomic(mine, "a", lambda: still.advance(2), name="book")
            mine.commit()
        mine.close()
        span = traced.named("onceward book")[0]

        assert outcome(span) == "fresh"
        assert (span.end_time or 0) - (span.start_time or 0) == 2_000_000_000

    def test_retries_are_noted_on_the_span_that_is_current(self, traced: Traced, still: StillEnvironment) -> None:
        """
        Each as an event.
        """

        def refused() -> None:
            raise ConnectionError

        policy = Retry(attempts=2, safe=True, name="ask", environment=still)
        with traced.tracer.start_as_current_span("request"), pytest.raises(ConnectionError):
            policy.call(refused)

        assert [one.name for one in traced.named("request")[0].events][:2] == ["onceward.retried", "onceward.gave_up"]

    def test_no_key_and_no_scope_is_in_a_span(self, traced: Traced) -> None:
        """
        The digest of the key is, since logs and commands know it.
        """
        with Gate("memory://", scope="tenant-17") as gate:
            gate.call(f"mail:{SECRET}", lambda: SECRET, name="mail")

        assert not [one for one in (SECRET, "tenant-17") if one in traced.spans[0].to_json()]

    def test_links_are_bounded(self) -> None:
        """
        The latest are known.
        """
        links = MemoryTraceLinks(links_max=10)
        for number in range(100):
            links.put(FirstRun("acme", str(number), 1), trace.INVALID_SPAN_CONTEXT)

        assert [number for number in range(100) if links.get(FirstRun("acme", str(number), 1))] == list(range(90, 100))

    def test_what_surrounds_an_operation_does_it_no_harm(self) -> None:
        """
        Whether it raises at the beginning or at the end.
        """

        def broken(*given: Any) -> Any:
            raise ValueError

        stops = [EVENT_STREAM.surround(broken), EVENT_STREAM.surround(lambda *given: broken)]
        with Gate("memory://", scope="acme") as gate:
            done = gate.run("k", lambda: "done")
        for stop in stops:
            stop()

        assert done == "done"
        assert EVENT_STREAM.surroundings == ()


def test_both_kinds_of_metrics_count_the_same(heard: Callable[[Any], Any], still: StillEnvironment) -> None:
    """
    Every event once: each series of Prometheus has its twin in OpenTelemetry, with the same value.
    """
    reader = InMemoryMetricReader()
    plain, other = Metrics(environment=still), OtelMetrics(MeterProvider([reader]), environment=still)
    for happening in EventType:
        for one in (plain, other):
            one(Event(happening, "0" * 12, "acme", "pay", 1, 1, "open", 2.0))
    read = reader.get_metrics_data()
    found = {
        metric.name: sum(getattr(point, "value", getattr(point, "count", 0)) for point in metric.data.data_points)
        for resource in (read.resource_metrics if read else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    expected: dict[str, float] = {"onceward.oldest_in_flight": 0.0}
    for metric in CATALOGUE:
        counted = [*plain._numbers[metric.name].values()]
        counted += [sum(one.counts) for one in plain._histograms[metric.name].values()]
        if counted:
            expected[metric.otel_name] = sum(counted)

    assert found == expected
