"""
Webhooks: who really sent one, and which addresses one may be sent to. Nothing here sends or receives.

    signatures, signature_schemes    sign and verify: Standard Webhooks, Stripe, GitHub, PacSpace, plain HMAC
    webhook_target                   which addresses a service may call
    slow_handler_warning             a log line about handlers that respond too late

May import: _core, runtime, gate. Start reading with `signature_schemes.py`.
"""

from onceward.messaging.webhooks.signature_schemes import (
    GitHub,
    PacSpace,
    PlainHmac,
    StandardWebhooks,
    Stripe,
)
from onceward.messaging.webhooks.signatures import Scheme, Secret, VerifiedMessage
from onceward.messaging.webhooks.slow_handler_warning import warn_if_slow
from onceward.messaging.webhooks.webhook_target import WebhookTarget, is_public, parse_target

__all__ = [
    "GitHub",
    "PacSpace",
    "PlainHmac",
    "Scheme",
    "Secret",
    "StandardWebhooks",
    "Stripe",
    "VerifiedMessage",
    "WebhookTarget",
    "is_public",
    "parse_target",
    "warn_if_slow",
]
