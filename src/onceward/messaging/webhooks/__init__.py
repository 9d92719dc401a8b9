"""
Webhooks: who really sent it, and where one may be sent to. Nothing here sends or receives.

    signatures   signing and verifying: Standard Webhooks, Stripe, GitHub, PacSpace, plain HMAC
    targets      which addresses a service may be made to call
    promptness   a diagnostic for handlers that work before they answer
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
