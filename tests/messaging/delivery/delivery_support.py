"""What the tests of endpoints share: a message, a secret, an endpoint that may call this machine."""

from __future__ import annotations

from typing import Any

from onceward.messaging.outbox.delivery import HttpEndpoint
from onceward.messaging.outbox.message import Message
from onceward.messaging.webhooks import Secret

SECRET = Secret(b"s" * 32)
OTHER = Secret(b"o" * 32)
HERE = ["127.0.0.0/8"]
PAYLOAD = b'{"invoice":"in_1","paid":true}'
CREATED_US = 1_700_000_000_000_000


def message(**changes: Any) -> Message:
    """A message on its first try, with changes."""
    return Message(
        id="msg_1", to="billing", topic="invoice.paid", payload=PAYLOAD, content_type="application/json", headers={},
        aggregate=None, created_us=CREATED_US, attempt=1,
    )._replace(**changes)  # fmt: skip


def mail(payload: bytes, **changes: Any) -> Message:
    """A message that is a mail."""
    return message(id="mail_1", to="mail", topic="mail", payload=payload, **changes)


def here(port: int, **options: Any) -> HttpEndpoint:
    """An endpoint on this machine, without TLS, to a name that leads here."""
    options = {"secrets": [SECRET], "allow_private": HERE, "allow_http": True, **options}
    options.setdefault("resolver", lambda _host, _port: ["127.0.0.1"])
    return HttpEndpoint(f"http://hooks.example:{port}/in?a=b", **options)
