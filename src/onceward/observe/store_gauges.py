"""
`StoreGauges`: what a store holds that is not settled, of all processes: in doubt, in flight, and for how long.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from onceward._core.errors import OncewardError
from onceward._core.record import is_in_doubt, shown_state
from onceward._core.record_types import Selection
from onceward._core.store import Store
from onceward.observe import catalogue
from onceward.observe.metrics import MetricSample
from onceward.runtime.environment import REAL, Environment

PAGE: Final = 500
RECORDS_MAX: Final = 5_000
"""Records that are looked at: with more of them unsettled, the exact number is not what matters."""
REMEMBERED_SECONDS: Final = 15.0

_log = logging.getLogger("onceward")


class StoreGauges:
    """
    A collector: `metrics.add_collector(StoreGauges(store))`, with a blocking store. Safe for threads.

    It reads unsettled records only, by their index, a bounded number, and every 15 seconds at most however many ask.
    """

    def __init__(self, store: Store, *, environment: Environment = REAL) -> None:
        self._store = store
        self._environment = environment
        self._guard = threading.Lock()
        self._samples: list[MetricSample] = []
        self._until = -1.0

    def __call__(self) -> list[MetricSample]:
        """The figures; without those of the store while it is away."""
        with self._guard:
            if not self._samples or self._environment.monotonic() >= self._until:
                self._samples = self._looked()
                self._until = self._environment.monotonic() + REMEMBERED_SECONDS
            return self._samples

    def _looked(self) -> list[MetricSample]:
        doubt, flying, oldest, seen, after = 0, 0, 0, 0, b""
        try:
            while seen < RECORDS_MAX and (page := self._store.scan(after, PAGE, Selection(unsettled=True))):
                for record in page:
                    if is_in_doubt(record):
                        doubt += 1
                    elif shown_state(record) == "claimed":
                        flying, oldest = flying + 1, max(oldest, record.age)
                seen, after = seen + len(page), page[-1].id
        except OncewardError as error:
            _log.warning("onceward: the figures of the store could not be read: %s", type(error).__name__)
            return [MetricSample(catalogue.STORE_UP, (), 0.0)]
        figures = (
            (catalogue.STORE_UP, 1),
            (catalogue.STORE_IN_DOUBT, doubt),
            (catalogue.STORE_IN_FLIGHT, flying),
            (catalogue.STORE_OLDEST, oldest / 1e6),
            (catalogue.STORE_TRUNCATED, int(seen >= RECORDS_MAX)),
        )
        return [MetricSample(metric, (), float(value)) for metric, value in figures]
