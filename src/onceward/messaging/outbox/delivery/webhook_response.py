"""
What an answer to a webhook means. Nothing here acts.

    2xx                     delivered
    410                     the endpoint is gone
    anything else           failed: tried again along the schedule, not sooner than the answer asks for
    x-should-retry: false   refused: the receiver says itself that trying again will not help
    a status that you named as final                                                              refused

Standard Webhooks has it so: a receiver answers 404 while it is being deployed, 401 while its secret is replaced and 400
because of a fault that is mended tomorrow, and none of that is a reason to lose the message.
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
"""Seconds: the longest pause of the published schedule. Whoever asks for more is asked again after a day."""

_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,64}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class WebhookResponse:
    """An answer, as far as it was read: in the shape that the classifier's readers look for."""

    def __init__(self, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        self.status = status
        self.headers = list(headers)
        self._content = body

    @property
    def said(self) -> str:
        """Its status, and the machine's own word for it, where there is one that can be repeated."""
        answer = response_info_of(self)
        code = answer.code if answer is not None else None
        return f"{self.status} ({code})" if code is not None and _CODE.fullmatch(code) else str(self.status)


def outcome_of(answer: WebhookResponse, final: frozenset[int], now_us: int) -> DeliveryOutcome:
    """What one try came to."""
    status = answer.status
    if 200 <= status < 300:
        return Delivered(str(status))
    if status == 410:
        return EndpointGone("the receiver answered 410: it wants no more messages")
    if status in final:
        return DeliveryRefused(f"the receiver answered {answer.said}, which is named as final")
    word = retry_hints(answer.headers, limited=status == 429, now=_EPOCH + timedelta(microseconds=now_us))
    if word.retry is False:
        return DeliveryRefused(f"the receiver answered {answer.said}, and that it need not be tried again")
    wait = None if word.wait is None else min(word.wait, RETRY_AFTER_MAX)
    return DeliveryFailed(_failure_reason(answer), wait)


def _failure_reason(answer: WebhookResponse) -> str:
    said = f"the receiver answered {answer.said}"
    if 300 <= answer.status < 400:
        return said + ": redirects are not followed; give the endpoint the address where it leads to"
    if answer.status in (401, 403):
        return said + ": check that it has this endpoint's secret, and its clock"
    if answer.status == 404:
        return said + ": check the endpoint's path"
    if answer.status == 413:
        return said + ": the message is larger than it takes"
    return said
