"""
Two words that every error carries: whose fault it is, and what a caller may do about it.
"""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """Whose fault an error is."""

    CALLER = "caller"
    HOLDER = "holder"
    STORE = "store"
    OUTSIDE = "outside"


class RetryAdvice(StrEnum):
    """What a caller may do about an error: the words are those of the HTTP answers."""

    SAME_KEY = "same-key"
    NEW_KEY = "new-key"
    NEVER = "never"
