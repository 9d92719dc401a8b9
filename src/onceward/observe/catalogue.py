"""
`CATALOGUE`: every metric there is, for Prometheus and for OpenTelemetry. Nothing is measured that is not listed here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"


class Metric(NamedTuple):
    """One metric."""

    name: str
    """For Prometheus: with the unit, and `_total` for a counter."""
    kind: str
    """`counter`, `gauge` or `histogram`."""
    help: str
    labels: tuple[str, ...] = ()

    @property
    def otel_name(self) -> str:
        """For OpenTelemetry, which writes units and kinds beside the name and not into it."""
        bare = self.name.removeprefix("onceward_").removesuffix("_total").removesuffix("_seconds")
        return f"onceward.{bare}"

    @property
    def unit(self) -> str:
        """OpenTelemetry's unit: seconds, or a number of things."""
        return "s" if self.name.endswith("_seconds") else "1"


BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histograms, in seconds: from a quick write to a model's long answer."""

OPERATIONS = Metric("onceward_operations_total", COUNTER, "Calls through a gate, by outcome.", ("operation", "outcome"))
REFUSALS = Metric("onceward_refusals_total", COUNTER, "Calls that were refused, by reason.", ("operation", "reason"))
DURATION = Metric(
    "onceward_operation_duration_seconds",
    HISTOGRAM,
    "How long fresh runs took, from claim to stored result.",
    ("operation",),
)
WAIT_DURATION = Metric(
    "onceward_wait_duration_seconds", HISTOGRAM, "How long callers waited for a run by another caller.", ("operation",)
)
IN_FLIGHT = Metric("onceward_in_flight", GAUGE, "Claims that this process holds.", ("operation",))
OLDEST_IN_FLIGHT = Metric(
    "onceward_oldest_in_flight_seconds", GAUGE, "Age of the oldest claim that this process holds; 0 if there is none."
)
RENEWALS = Metric("onceward_lease_renewals_total", COUNTER, "Leases that were renewed.", ("operation",))
RECONCILED = Metric(
    "onceward_reconciled_total", COUNTER, "Records in doubt that a probe or a person has decided.", ("operation",)
)
STORE_FORGOT = Metric("onceward_store_forgot_total", COUNTER, "Claims that the store had lost.", ("operation",))
STORE_RETRIES = Metric(
    "onceward_store_retries_total",
    COUNTER,
    "Results that had to be stored again because the store did not respond.",
    ("operation",),
)
PURGES = Metric(
    "onceward_purges_total", COUNTER, "Purges; full ones reached their limit and left some for later.", ("full",)
)
PURGED = Metric("onceward_purged_records_total", COUNTER, "Records that were forgotten or shrunk.")
RETRIES = Metric(
    "onceward_retries_total", COUNTER, "Retries by retry policies, by kind of failure.", ("operation", "kind")
)
GIVEN_UP = Metric(
    "onceward_given_up_total", COUNTER, "Calls that a retry policy gave up, by reason.", ("operation", "reason")
)
BREAKER_STATE = Metric(
    "onceward_breaker_state", GAUGE, "1 for the state that a breaker is in, 0 for the others.", ("breaker", "state")
)
BREAKER_CHANGES = Metric(
    "onceward_breaker_changes_total", COUNTER, "Changes of a breaker's state, by the new state.", ("breaker", "state")
)
BUDGET_REFUSALS = Metric("onceward_budget_refusals_total", COUNTER, "Retries that a budget did not allow.", ("budget",))
DEAD_LETTERS = Metric(
    "onceward_dead_letters_total",
    COUNTER,
    "Calls, messages and events that were given up and kept.",
    ("origin", "operation"),
)
RELAY_TRIES = Metric(
    "onceward_relay_tries_total", COUNTER, "Attempts to deliver a message, by outcome.", ("endpoint", "outcome")
)
INBOX_RECEIVED = Metric(
    "onceward_inbox_received_total", COUNTER, "Webhooks that were received, new or duplicate.", ("source", "kind")
)
INBOX_PROCESSED = Metric(
    "onceward_inbox_processed_total", COUNTER, "Attempts to process an event, by outcome.", ("source", "outcome")
)
NAMES_FOLDED = Metric(
    "onceward_names_folded_total",
    COUNTER,
    "Events whose name was counted as _other: there are too many names.",
    ("label",),
)
SERVICE_CALLS = Metric(
    "onceward_service_calls_total",
    COUNTER,
    "Calls of the service's API with a valid token, by outcome.",
    ("method", "outcome"),
)
SERVICE_DURATION = Metric(
    "onceward_service_call_duration_seconds",
    HISTOGRAM,
    "How long calls of the service's API with a valid token took.",
    ("method",),
)
STORE_UP = Metric("onceward_store_up", GAUGE, "Whether the store could be read for the figures below.")
STORE_IN_DOUBT = Metric("onceward_store_in_doubt", GAUGE, "Records in doubt, waiting for a person or a probe.")
STORE_IN_FLIGHT = Metric("onceward_store_in_flight", GAUGE, "Claims whose lease holds, in all processes.")
STORE_OLDEST = Metric(
    "onceward_store_oldest_in_flight_seconds", GAUGE, "Age of the oldest such claim; 0 if there is none."
)
STORE_TRUNCATED = Metric(
    "onceward_store_truncated", GAUGE, "1 if there were too many records to read, so that these figures are too low."
)

CATALOGUE: Final[tuple[Metric, ...]] = tuple(one for one in tuple(globals().values()) if isinstance(one, Metric))
"""Every metric, in the order of this file."""
