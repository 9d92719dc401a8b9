"""The webhook handler of the scene: a source that is stored names it."""

from __future__ import annotations

from onceward.messaging.inbox import WebhookEvent, handler


@handler(guarantee="repeatable")
def handle(event: WebhookEvent) -> None:
    if event.id == "evt_bad":
        raise ValueError("no such invoice <script>alert('x')</script>")
