"""
What a receiver's response to a webhook means: delivered, failed, refused, or gone. Pure.

    2xx                     delivered
    410                     the endpoint is gone
    anything else           failed: retried by the schedule, not sooner than the response asks for
    x-should-retry: false   refused: the receiver says itself that trying again will not help
    a status that you named as final                                                              refused

As in Standard Webhooks: a receiver returns 404 while it is being deployed, 401 while its secret is replaced and 400
because of a bug that is fixed tomorrow. None of that is a reason to lose the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from onceward._core.retry_headers import retry_hints
from onceward._core.verdict_tables.http_statuses import response_info_of
from onceward.messaging.outbox.message import (
    Delivered,
    DeliveryFailed,
    DeliveryOutcome,
    DeliveryRefused,
    EndpointGone,
)

RETRY_AFTER_MAX = 86_400.0
"""Seconds: the longest wait of the published schedule. A receiver that asks for more is tried after a day."""

_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,64}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class WebhookResponse:
    """A response, as far as it was read, in the shape that the classifier reads."""

    def __init__(self, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        self.status = status
        self.headers = list(headers)
        self._content = body

    @property
    def summary(self) -> str:
        """Its status, and its error code if that can be shown."""
        info = response_info_of(self)
        code = info.code if info is not None else None
        return f"{self.status} ({code})" if code is not None and _CODE.fullmatch(code) else str(self.status)


def outcome_of(response: WebhookResponse, final: frozenset[int], now_us: int) -> DeliveryOutcome:
    """The outcome of one try."""
    status = response.status
    if 200 <= status < 300:
        return Delivered(str(status))
    if status == 410:
        return EndpointGone("the receiver answered 410 Gone: it wants no more messages")
    if status in final:
        return DeliveryRefused(f"the receiver answered {response.summary}, which is listed as final")
    hints = retry_hints(response.headers, limited=status == 429, now=_EPOCH + timedelta(microseconds=now_us))
    if hints.retry is False:
        return DeliveryRefused(f"the receiver answered {response.summary}and said not to try again")
    wait = None if hints.wait is None else min(hints.wait, RETRY_AFTER_MAX)
    return DeliveryFailed(_failure_reason(response), wait)


def _failure_reason(response: WebhookResponse) -> str:
    reason = f"the receiver answered {response.summary}"
    if 300 <= response.status < 400:
        return reason + ": redirects are not followed; give the endpoint the address it leads to"
    if response.status in (401, 403):
        return reason + ": check that it has this endpoint's secret, and its clock"
    if response.status == 404:
        return reason + ": check the endpoint's path"
    if response.status == 413:
        return reason + ": the message is larger than it accepts"
    return reason
