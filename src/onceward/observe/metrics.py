"""
`Metrics`: counts events in this process, and writes Prometheus' text format.

Written here and not with `prometheus_client`: the format is a page of text, and an extra package would bring a registry
of its own beside ours. Whoever has one can mount both.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import NamedTuple

from onceward.observe import catalogue
from onceward.observe.catalogue import BUCKETS, CATALOGUE, HISTOGRAM, Metric
from onceward.observe.event_meter import NAMES_MAX, EventMeter
from onceward.runtime.environment import REAL, Environment

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_log = logging.getLogger("onceward")


class MetricSample(NamedTuple):
    """The value of one series."""

    metric: Metric
    values: tuple[str, ...]
    value: float


Collector = Callable[[], Iterable[MetricSample]]
"""Asked for its samples whenever the metrics are read."""


class _Histogram:
    """Counts by bucket, and the sum."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds


class Metrics(EventMeter):
    """
    A listener that counts: `listen(metrics)` for the whole process, or `Gate(listeners=[metrics])` for one gate.

    `names_max` bounds how many operations (breakers, endpoints, ...) are told apart; `scopes` puts the scope before the
    operation's name, for those who have few.
    """

    def __init__(self, *, names_max: int = NAMES_MAX, scopes: bool = False, environment: Environment = REAL) -> None:
        super().__init__(names_max=names_max, scopes=scopes, environment=environment)
        # By the metric's name, then by its labels' values: the hash of a whole `Metric` would be a tenth of an event.
        self._numbers: dict[str, dict[tuple[str, ...], float]] = {one.name: {} for one in CATALOGUE}
        self._histograms: dict[str, dict[tuple[str, ...], _Histogram]] = {one.name: {} for one in CATALOGUE}
        self._collectors: list[Collector] = []

    def add_collector(self, collector: Collector) -> None:
        """Ask `collector` for more samples whenever the metrics are read, as `StoreGauges` gives them."""
        self._collectors.append(collector)

    @property
    def has_collectors(self) -> bool:
        """Whether reading asks anybody else, who may wait for a store."""
        return bool(self._collectors)

    def value(self, name: str, **labels: str) -> float:
        """The value of one series; of a histogram, how many values it has; 0 if nothing was counted."""
        metric = next(one for one in CATALOGUE if one.name == name)
        values = tuple(labels[label] for label in metric.labels)
        with self._guard:
            if metric.kind == HISTOGRAM:
                found = self._histograms[name].get(values)
                return 0.0 if found is None else float(sum(found.counts))
            return self._numbers[name].get(values, 0.0)

    def text(self) -> str:
        """Everything in Prometheus' text format."""
        collected = [sample for collector in self._collectors for sample in _collected(collector)]
        collected.append(MetricSample(catalogue.OLDEST_IN_FLIGHT, (), self.oldest_in_flight()))
        asked: dict[str, list[MetricSample]] = {}
        for sample in collected:
            asked.setdefault(sample.metric.name, []).append(sample)
        with self._guard:
            return "".join(map(self._section, CATALOGUE, [asked.get(metric.name, []) for metric in CATALOGUE]))

    def _section(self, metric: Metric, asked: list[MetricSample]) -> str:
        """What there is of one metric."""
        numbers = [*self._numbers[metric.name].items(), *[(sample.values, sample.value) for sample in asked]]
        lines = [f"{metric.name}{_labels(metric, values)} {_number(value)}" for values, value in numbers]
        for values, histogram in self._histograms[metric.name].items():
            lines += _histogram_lines(metric, values, histogram)
        if not lines:
            return ""
        return "\n".join([f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}", *lines, ""])

    def _add(self, metric: Metric, values: tuple[str, ...], amount: float = 1.0) -> None:
        series = self._numbers[metric.name]
        series[values] = series.get(values, 0.0) + amount

    def _observe(self, metric: Metric, values: tuple[str, ...], seconds: float) -> None:
        series = self._histograms[metric.name]
        histogram = series.get(values)
        if histogram is None:
            histogram = series[values] = _Histogram()
        histogram.observe(seconds)

    def _set(self, metric: Metric, values: tuple[str, ...], value: float) -> None:
        self._numbers[metric.name][values] = value


def _collected(collector: Collector) -> list[MetricSample]:
    try:
        return list(collector())
    except Exception:
        _log.exception("onceward: a collector of metrics raised; the others are shown")
        return []


def _histogram_lines(metric: Metric, values: tuple[str, ...], histogram: _Histogram) -> list[str]:
    lines, total = [], 0
    for bound, count in zip((*map(_number, BUCKETS), "+Inf"), histogram.counts, strict=True):
        total += count
        lines.append(f"{metric.name}_bucket{_labels(metric, values, bound)} {total}")
    labels = _labels(metric, values)
    return [*lines, f"{metric.name}_sum{labels} {_number(histogram.sum)}", f"{metric.name}_count{labels} {total}"]


def _labels(metric: Metric, values: tuple[str, ...], bound: str | None = None) -> str:
    pairs = [f'{label}="{_escaped(value)}"' for label, value in zip(metric.labels, values, strict=True)]
    if bound is not None:
        pairs.append(f'le="{bound}"')
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _escaped(value: str) -> str:
    """A label's value, as the format wants it. What is no text in UTF-8 is replaced: one name must not spoil all."""
    plain = value.encode("utf-8", "replace").decode("utf-8")
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
