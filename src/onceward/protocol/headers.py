"""
Names of HTTP headers that the client sends or reads.
"""

from __future__ import annotations

IDEMPOTENCY_KEY = "Idempotency-Key"
"""The key of what is to happen once."""
PLAN_KEY = "Plan-Key"
"""The plan that a request is a step of; goes with `PLAN_STEP`."""
PLAN_STEP = "Plan-Step"
ADVICE = "onceward-advice"
"""In a response: what the ledger advises about how often a balance is derived."""
