"""
A message to be delivered, and the outcome of one try at delivering it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeAlias


class Message(NamedTuple):
    """What is delivered. Everything but `attempt` is the same on every try, byte for byte."""

    id: str
    """Made when the message was added, in the caller's transaction; receivers tell repeats by it."""
    to: str
    """The endpoint's name, as the relay knows it."""
    topic: str
    """What happened, for the receiver: `invoice.paid`."""
    payload: bytes
    content_type: str
    headers: Mapping[str, str]
    aggregate: str | None
    """Messages of one aggregate to one endpoint are delivered in the order in which they were added."""
    created_us: int
    """When it was added, in microseconds since 1970."""
    attempt: int
    """1 for the first try."""


class Delivered(NamedTuple):
    """The receiver has it."""

    detail: str


class DeliveryFailed(NamedTuple):
    """Not this time: it is tried again, not sooner than the receiver asked for."""

    reason: str
    retry_after: float | None = None
    """Seconds that the receiver asked for."""


class DeliveryRefused(NamedTuple):
    """Trying again would not help: it becomes a dead letter."""

    reason: str


class EndpointGone(NamedTuple):
    """The endpoint is no more (410): it is disabled, and its messages wait for an operator."""

    reason: str


DeliveryOutcome: TypeAlias = Delivered | DeliveryFailed | DeliveryRefused | EndpointGone
"""How one attempt to deliver a message ended; what an endpoint returns."""


class Endpoint(Protocol):
    """Where messages are delivered to. A try never takes longer than `seconds_max`."""

    @property
    def seconds_max(self) -> float:
        """How long a try may take; the relay's lease is longer."""

    def deliver(self, message: Message) -> DeliveryOutcome:
        """Try once, by blocking. Called by several threads."""
