"""
A small signed event, to try a source with.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from onceward._core.errors import ConfigurationError
from onceward.messaging.webhooks import GitHub, PacSpace, PlainHmac, Scheme, Secret, StandardWebhooks, Stripe


class SampleEvent(NamedTuple):
    """A request as the sender would send it."""

    headers: dict[str, str]
    body: bytes


def signed_sample(scheme: Scheme, secret: Secret | str, id: str, *, now: float) -> SampleEvent:
    """A signed event with this id."""
    document = {"type": "onceward.test", "test": True, "sample": id}
    if isinstance(scheme, Stripe):
        document |= {"id": id}
    if isinstance(scheme, PlainHmac) and scheme.id_member is not None:
        document |= {scheme.id_member: id}
    body = json.dumps(document).encode()
    if not isinstance(scheme, StandardWebhooks | Stripe | GitHub | PacSpace | PlainHmac):
        raise ConfigurationError(f"no sample can be signed with a scheme of your own ({type(scheme).__name__})")
    return SampleEvent({"content-type": "application/json", **scheme.sign(id, body, [secret], now=now)}, body)
