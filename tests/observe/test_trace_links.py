"""The span of a replay links to the first run's trace, whichever process ran it: through the store, behind the work."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, TraceFlags

from onceward import Gate
from onceward._core.record import PutResult, Record
from onceward._core.trace_marks import TRACE
from onceward.errors import StoreUnavailable
from onceward.observe.otel import FirstRun, StoreTraceLinks, Tracing
from onceward.stores import Selection
from onceward.stores.memory import MemoryStore
from onceward.testing.clock import StillEnvironment

PROGRAM = """
import json, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from onceward import Gate
from onceward.observe.otel import StoreTraceLinks, Tracing

url = sys.argv[1]
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
links = StoreTraceLinks(url)
stop = Tracing(provider, links=links).start()
with provider.get_tracer("web").start_as_current_span("request"), Gate(url, scope="live:acme") as gate:
    gate.call("charge:17", lambda: "ch_1", name="charge")
stop()
links.close()
[span] = [one for one in spans.get_finished_spans() if one.name == "onceward charge"]
[request] = [one for one in spans.get_finished_spans() if one.name == "request"]
print(json.dumps({
    "outcome": span.attributes["onceward.outcome"],
    "trace": span.context.trace_id,
    "span": span.context.span_id,
    "below": span.parent.span_id == request.context.span_id,
    "links": [(one.context.trace_id, one.context.span_id, one.attributes["onceward.link"]) for one in span.links],
}))
"""


def in_a_process_of_its_own(url: str) -> dict[str, Any]:
    """What one process traced of the same call."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, url], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.fault("a-replay-elsewhere-is-not-linked")
def test_a_replay_in_another_process_links_to_the_first_run(tmp_path: Path) -> None:
    """
    "the trace of a replay links to the trace of the first run": with the real SDK, in two processes, one after the
    other. Its span is below the request that it belongs to, as ever.
    """
    url = f"sqlite:///{tmp_path}/gate.db"

    first, again = in_a_process_of_its_own(url), in_a_process_of_its_own(url)

    assert [first["outcome"], again["outcome"]] == ["fresh", "replayed"]
    assert again["links"] == [[first["trace"], first["span"], "first_run"]]
    assert first["links"] == []
    assert first["below"] and again["below"]


def context(number: int = 1) -> SpanContext:
    """The trace of some run."""
    return SpanContext(number, number, is_remote=False, trace_flags=TraceFlags(1))


RUN = FirstRun("live:acme", "0123456789ab", 17)


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    yield MemoryStore()


class Marked:
    """What was found, and in which order."""

    def __init__(self) -> None:
        self.found: list[SpanContext | None] = []

    def __call__(self, found: SpanContext | None) -> None:
        self.found.append(found)


class TestStoreTraceLinks:
    """Two of them on one store stand for two processes."""

    def test_what_one_puts_another_finds(self, store: MemoryStore) -> None:
        """
        The same trace and span, marked as remote. Another attempt of the same key is another run.
        """
        here, there, marked = StoreTraceLinks(store), StoreTraceLinks(store), Marked()
        here.put(RUN, context(7))
        here.flush()
        there.find(RUN, marked)
        there.find(RUN._replace(fence=18), marked)
        there.flush()
        for one in (here, there):
            one.close()

        assert [one and (one.trace_id, one.span_id, one.is_remote) for one in marked.found] == [(7, 7, True), None]

    def test_the_record_of_the_operation_is_not_touched(self, store: MemoryStore) -> None:
        """
        The mark is a record beside it, which is forgotten like any other, and is in no list of operations.
        """
        from onceward.overview.record_walk import unsettled_records

        still = StillEnvironment()
        store = MemoryStore(environment=still)
        links = StoreTraceLinks(store, keep=60.0, environment=still)
        stop = Tracing(TracerProvider(), links=links).start()
        with Gate(store, scope="live:acme", environment=still) as gate:
            gate.call("k", lambda: 1, name="pay")
            links.flush()
            [marks, operations] = (
                [one for one in store.scan(b"", 10, Selection()) if (one.kind == TRACE) == is_mark]
                for is_mark in (True, False)
            )
            still.advance(61)
            store.purge(10)
            left: list[Record] = store.scan(b"", 10, Selection(kind=TRACE))
            stop()

        assert (len(marks), len(operations)) == (1, 1)
        assert marks[0].scope == "live:acme"
        assert left == []
        assert list(unsettled_records(store)) == []

    def test_a_store_that_is_away_costs_a_link_and_nothing_else(self, caplog: pytest.LogCaptureFixture) -> None:
        """
        The operation runs, the replay's span is made without a link, and one warning is told.
        """

        class Away(MemoryStore):
            def put(self, write: Any, expect: Any) -> PutResult:
                raise StoreUnavailable("away")

            def load(self, id: bytes) -> Record | None:
                raise StoreUnavailable("away")

        spans, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(spans))
        links, elsewhere = StoreTraceLinks(Away()), StoreTraceLinks(Away())
        with caplog.at_level(logging.WARNING), Gate("memory://", scope="live:acme") as gate:
            stop = Tracing(provider, links=links).start()
            gate.call("k", lambda: 1, name="pay")
            stop()
            stop = Tracing(provider, links=elsewhere).start()
            again = [gate.call("k", lambda: 2, name="pay").value for _ in range(3)]
            stop()
        made: list[ReadableSpan] = list(spans.get_finished_spans())
        for one in (links, elsewhere):
            one.close()

        assert again == [1, 1, 1]
        assert [(one.attributes or {})["onceward.outcome"] for one in made] == ["fresh", *["replayed"] * 3]
        assert [len(one.links) for one in made] == [0, 0, 0, 0]
        assert len(caplog.records) == 2
        assert links.missed + elsewhere.missed == 4

    def test_what_somebody_else_wrote_there_is_no_trace(self, store: MemoryStore) -> None:
        """
        Damaged, or of a version that is not known: no link.
        """
        from onceward._core.trace_marks import trace_mark

        marked, links = Marked(), StoreTraceLinks(store)
        for fence, text in enumerate(("", "01-new", f"00-{'0' * 32}-{'0' * 16}-01", "00-zz")):
            store.put(trace_mark("live:acme", "0" * 12, fence, text, 10**9, bytes(31) + bytes([fence])), None)
            links.find(FirstRun("live:acme", "0" * 12, fence), marked)
        links.close()

        assert marked.found == [None] * 4
