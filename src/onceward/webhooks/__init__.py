"""
Webhooks: who really sent it, and where one may be sent to. Nothing here sends or receives.

    signatures   signing and verifying: Standard Webhooks, Stripe, GitHub, PacSpace, plain HMAC
    targets      which addresses a service may be made to call
    promptness   a diagnostic for handlers that work before they answer
"""

from onceward.webhooks.promptness import prompt
from onceward.webhooks.schemes import GitHub, PacSpace, PlainHmac, StandardWebhooks, Stripe
from onceward.webhooks.signatures import Scheme, Secret, Verified
from onceward.webhooks.targets import Target, is_public, target_of

__all__ = [
    "GitHub",
    "PacSpace",
    "PlainHmac",
    "Scheme",
    "Secret",
    "StandardWebhooks",
    "Stripe",
    "Target",
    "Verified",
    "is_public",
    "prompt",
    "target_of",
]
