"""
`OncewardError`, the root of all errors: whose fault it is, what is safe to do next, and which operation it is about.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Self


class Fault(StrEnum):
    """Whose fault an error is."""

    CALLER = "caller"
    HOLDER = "holder"
    STORE = "store"
    OUTSIDE = "outside"


class RetryAdvice(StrEnum):
    """What a caller may safely do about an error. HTTP responses use the same words."""

    SAME_KEY = "same-key"
    NEW_KEY = "new-key"
    NEVER = "never"


PUBLIC_HOME = "onceward"
"""Their types are stored as `onceward.InDoubt`; the root finds each by that name, and `onceward.errors` offers all."""


class OncewardError(Exception):
    """
    A gated operation failed. Read `retry` for what is safe to do next.

    A loop may repeat only what says so: read `retry`, or the class.
    """

    code: str = "error"
    fault: Fault = Fault.CALLER
    retry: RetryAdvice = RetryAdvice.NEVER

    key: str | None = None
    """The operation's key, as it is stored. It is never in the message, because keys can be personal data."""
    digest: str | None = None
    """A short hash of the key: what logs and commands show instead."""
    fence: int | None = None
    """The claim's number. It rises with every claim of this key."""
    operation: str | None = None
    """The operation's name."""
    first_at: datetime | None = None
    """When the operation was first claimed (UTC)."""

    def __init_subclass__(cls) -> None:
        # What is stored names types this way, so tracebacks and logs do, too.
        if cls.__module__.startswith("onceward._core."):
            cls.__module__ = PUBLIC_HOME

    def __init__(
        self, message: str | None = None, *, retry_after_seconds: float | None = None, retry_at: datetime | None = None
    ) -> None:
        # The default message is the class's docstring, so that message and documentation always agree.
        super().__init__(message if message is not None else _message_from(self.__doc__))
        self.retry_after_seconds = retry_after_seconds
        self.retry_at = retry_at

    def about(
        self,
        *,
        key: str | None = None,
        digest: str | None = None,
        fence: int | None = None,
        operation: str | None = None,
        first_at: datetime | None = None,
    ) -> Self:
        """Add which operation this is about. What is set stays: the innermost operation failed."""
        if self.digest is None or self.digest == digest:
            self.key = key if self.key is None else self.key
            self.digest = digest
            self.fence = fence if self.fence is None else self.fence
            self.operation = (operation or None) if self.operation is None else self.operation
            self.first_at = first_at if self.first_at is None else self.first_at
        return self


def _message_from(docstring: str | None) -> str:
    """A class's docstring as a message, without the paragraph for people who write retry loops."""
    paragraphs = (docstring or "").split("\n\n")
    return " ".join(" ".join(one.split()) for one in paragraphs if not one.strip().startswith("A loop "))


OncewardError.__module__ = PUBLIC_HOME
