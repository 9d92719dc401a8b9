"""
OpenTelemetry: `Tracing` makes a span of every operation, `OtelMetrics` the metrics. Needs the extra `otel`.

    tracing = Tracing()
    tracing.start()                      # for every gate of this process
    listen(OtelMetrics())

The span of a fresh run is current while its function runs, so that what the function calls is traced below it. The span
of a replay or a refusal has a link to the trace of the first run, where `TraceLinks` still knows it: that of this
process, or with `Tracing(links=StoreTraceLinks(url))` that of any process on the same store.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider

from onceward._core.events import Event, EventType
from onceward.observe import catalogue
from onceward.observe.catalogue import BUCKETS, CATALOGUE, COUNTER, HISTOGRAM, Metric
from onceward.observe.event_meter import ENDINGS, NAMES_MAX, OPEN_MAX, UNNAMED, EventMeter
from onceward.observe.otel_links import FirstRun, MemoryTraceLinks, StoreTraceLinks, TraceLinks
from onceward.runtime.environment import REAL, Environment
from onceward.runtime.event_stream import EVENT_STREAM

__all__ = ["FirstRun", "MemoryTraceLinks", "OtelMetrics", "StoreTraceLinks", "TraceLinks", "Tracing"]

SCOPE: Final = "onceward"
"""The instrumentation scope."""

_AT_ONCE = {EventType.REPLAYED: "replayed", EventType.REFUSED: "refused"}
_FAILED = frozenset({"released", "in_doubt", "overtaken", "unrecorded", "refused"})
_BESIDES = frozenset(
    {
        EventType.RETRIED,
        EventType.GAVE_UP,
        EventType.BREAKER_CHANGED,
        EventType.BUDGET_REFUSED,
        EventType.DEAD_LETTERED,
        EventType.RENEWED,
        EventType.STORE_RETRIED,
        EventType.STORE_FORGOT,
    }
)
"""What is noted on the span that is current, or on the operation's own."""

Claim = tuple[str, str, int]


class Tracing:
    """
    A listener that makes spans. `start()` listens to the whole process; for one gate: `Gate(listeners=[tracing])`.

    Spans name the operation and the digest of the key, and the scope only with `scopes=True`. In atomic mode the span
    is made after the commit, with the right times; nothing is below it.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        links: TraceLinks | None = None,
        scopes: bool = False,
        environment: Environment = REAL,
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._links: TraceLinks = MemoryTraceLinks() if links is None else links
        self._scopes = scopes
        self._environment = environment
        self._open: OrderedDict[Claim, Span] = OrderedDict()
        self._guard = threading.RLock()
        self._waiting: ContextVar[tuple[str, int] | None] = ContextVar("onceward_traced_wait", default=None)

    def start(self) -> Callable[[], None]:
        """Trace every gate of this process from now on; returns the function that stops it."""
        ends = (EVENT_STREAM.listen(self), EVENT_STREAM.surround(self.surround))

        def stop() -> None:
            for end in ends:
                end()
            self._links.flush()

        return stop

    def __call__(self, event: Event) -> None:
        """One event."""
        claim = (event.scope, event.digest, event.fence)
        if event.type is EventType.CLAIMED:
            self._claimed(event, claim)
        elif event.type in ENDINGS:
            self._ended(event, claim)
        elif event.type in _AT_ONCE:
            self._answered(event)
        elif event.type is EventType.WAITING:
            self._waiting.set((event.digest, self._now()))
        elif event.type in _BESIDES:
            span = self._open.get(claim) or trace.get_current_span()
            facts = {"onceward.name": event.operation, "onceward.detail": event.detail}
            span.add_event(f"onceward.{event.type.value}", facts)

    def surround(self, scope: str, digest: str, fence: int) -> Callable[[], None] | None:
        """Make an operation's span the current one while its function runs."""
        span = self._open.get((scope, digest, fence))
        if span is None:
            return None
        token = otel_context.attach(trace.set_span_in_context(span))
        return lambda: otel_context.detach(token)

    def _claimed(self, event: Event, claim: Claim) -> None:
        now, began = self._now(), self._wait_began(event)
        if event.amount is not None:
            began = now - round(event.amount * 1e9)  # Atomic mode: told when it is over.
        span = self._span(event, began or now)
        with self._guard:
            self._open[claim] = span
            forgotten = self._open.popitem(last=False)[1] if len(self._open) > OPEN_MAX else None
        if forgotten is not None:
            forgotten.end()

    def _ended(self, event: Event, claim: Claim) -> None:
        with self._guard:
            span = self._open.pop(claim, None)
        if span is None:
            return  # Somebody else's claim, such as a dead one's that is put in doubt.
        outcome = ENDINGS[event.type]
        if outcome == "fresh" and span.is_recording():
            self._links.put(FirstRun(*claim), span.get_span_context())
        self._end(span, event, outcome)

    def _answered(self, event: Event) -> None:
        now, here = self._now(), otel_context.get_current()
        began = self._wait_began(event) or now

        def then(first: SpanContext | None) -> None:
            span = self._span(event, began, first, here)
            self._end(span, event, _AT_ONCE[event.type], now)

        self._links.find(FirstRun(event.scope, event.digest, event.fence), then)

    def _span(
        self, event: Event, began: int, first: SpanContext | None = None, here: otel_context.Context | None = None
    ) -> Span:
        name = event.operation or UNNAMED
        attributes: dict[str, Any] = {
            "onceward.operation": name,
            "onceward.digest": event.digest,
            "onceward.attempt": event.attempt,
            "onceward.fence": event.fence,
        }
        if self._scopes:
            attributes["onceward.scope"] = event.scope
        links = [] if first is None else [Link(first, {"onceward.link": "first_run"})]
        return self._tracer.start_span(
            f"onceward {name}",
            context=here,
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            links=links,
            start_time=began,
        )

    def _end(self, span: Span, event: Event, outcome: str, at: int | None = None) -> None:
        span.set_attribute("onceward.outcome", outcome)
        if outcome in _FAILED or (outcome == "fresh" and event.detail):
            span.set_attribute("error.type", event.detail or outcome)
            span.set_status(Status(StatusCode.ERROR, event.detail or outcome))
        span.end(end_time=self._now() if at is None else at)

    def _wait_began(self, event: Event) -> int | None:
        waited = self._waiting.get()
        if waited is None:
            return None
        self._waiting.set(None)
        return waited[1] if waited[0] == event.digest else None

    def _now(self) -> int:
        """Nanoseconds since 1970, which OpenTelemetry counts in."""
        return self._environment.wall_us() * 1_000


class OtelMetrics(EventMeter):
    """A listener that measures with OpenTelemetry what `Metrics` measures for Prometheus, under dotted names."""

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        *,
        names_max: int = NAMES_MAX,
        scopes: bool = False,
        environment: Environment = REAL,
    ) -> None:
        super().__init__(names_max=names_max, scopes=scopes, environment=environment)
        meter = (meter_provider or get_meter_provider()).get_meter(SCOPE)
        self._instruments: dict[Metric, Any] = {}
        for metric in CATALOGUE:
            if metric is catalogue.OLDEST_IN_FLIGHT:
                meter.create_observable_gauge(
                    metric.otel_name, [self._oldest], unit=metric.unit, description=metric.help
                )
            elif not metric.name.startswith("onceward_store_") or metric.kind == COUNTER:
                self._instruments[metric] = _instrument(meter, metric)

    def _oldest(self, options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(self.oldest_in_flight())]

    def _add(self, metric: Metric, values: tuple[str, ...], amount: float = 1.0) -> None:
        self._instruments[metric].add(amount, _attributes(metric, values))

    def _observe(self, metric: Metric, values: tuple[str, ...], seconds: float) -> None:
        self._instruments[metric].record(seconds, _attributes(metric, values))

    def _set(self, metric: Metric, values: tuple[str, ...], value: float) -> None:
        self._instruments[metric].set(value, _attributes(metric, values))


def _instrument(meter: Any, metric: Metric) -> Any:
    given = {"unit": metric.unit, "description": metric.help}
    if metric.kind == COUNTER:
        return meter.create_counter(metric.otel_name, **given)
    if metric.kind == HISTOGRAM:
        return meter.create_histogram(metric.otel_name, **given, explicit_bucket_boundaries_advisory=BUCKETS)
    if metric is catalogue.IN_FLIGHT:
        return meter.create_up_down_counter(metric.otel_name, **given)
    return meter.create_gauge(metric.otel_name, **given)


def _attributes(metric: Metric, values: tuple[str, ...]) -> dict[str, str]:
    return {f"onceward.{label}": value for label, value in zip(metric.labels, values, strict=True)}
