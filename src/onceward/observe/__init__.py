"""
Seeing what happens: metrics, traces and logs, all made from one stream of events.

    metrics = Metrics()
    listen(metrics)                      # every gate, policy, breaker, relay and inbox of this process
    app.mount("/metrics", MetricsApp(metrics))

While nobody listens, no event is made. A listener protects nothing and decides nothing; one that raises is logged. May
import: _core, runtime, stores; nothing below the service imports it. Start reading with `event_meter.py`, which says
what each event counts as; `catalogue.py` lists every metric. `onceward.observe.otel` has OpenTelemetry (extra `otel`).
"""

from collections.abc import Callable

from onceward._core.events import Listener
from onceward.observe.catalogue import CATALOGUE, Metric
from onceward.observe.event_logs import LoggingListener, StructlogListener
from onceward.observe.metrics import Metrics
from onceward.observe.metrics_apps import MetricsApp, MetricsWsgiApp
from onceward.observe.store_gauges import StoreGauges
from onceward.runtime.event_stream import EVENT_STREAM

__all__ = [
    "CATALOGUE",
    "LoggingListener",
    "Metric",
    "Metrics",
    "MetricsApp",
    "MetricsWsgiApp",
    "StoreGauges",
    "StructlogListener",
    "listen",
]


def listen(listener: Listener) -> Callable[[], None]:
    """Tell `listener` of every event of this process from now on; returns the function that stops it."""
    return EVENT_STREAM.listen(listener)
