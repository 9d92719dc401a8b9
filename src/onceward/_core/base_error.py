"""
What every error of ours is: whose fault, what a caller may do next, and the operation that it is about.
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
    """What a caller may do about an error: the words are those of the HTTP answers."""

    SAME_KEY = "same-key"
    NEW_KEY = "new-key"
    NEVER = "never"


PUBLIC_HOME = "onceward.errors"
"""The module that all of them are offered by."""


class OncewardError(Exception):
    """
    Something about a gated operation went wrong.

    A loop may repeat what says so: read `retry`, or the class.
    """

    code: str = "error"
    fault: Fault = Fault.CALLER
    retry: RetryAdvice = RetryAdvice.NEVER

    key: str | None = None
    """The key of the operation that it is about, as the record has it. Not in the message: keys can be personal."""
    digest: str | None = None
    """What logs and commands show in place of the key."""
    fence: int | None = None
    """The claim that it is about: rises with every claim of this key."""
    operation: str | None = None
    """What the operation is called."""
    first_at: datetime | None = None
    """When the operation was first claimed (UTC)."""

    def __init_subclass__(cls) -> None:
        # People meet them as `onceward.errors.InDoubt`: tracebacks, histories and logs say so, too.
        if cls.__module__.startswith("onceward._core."):
            cls.__module__ = PUBLIC_HOME

    def __init__(
        self, message: str | None = None, *, retry_after_seconds: float | None = None, retry_at: datetime | None = None
    ) -> None:
        # The default message is the class's docstring, so that text and documentation cannot part.
        super().__init__(message if message is not None else _said(self.__doc__))
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
        """Say which operation this is about. What is known already stays: the innermost operation is the one meant."""
        if self.digest is None or self.digest == digest:
            self.key = key if self.key is None else self.key
            self.digest = digest
            self.fence = fence if self.fence is None else self.fence
            self.operation = (operation or None) if self.operation is None else self.operation
            self.first_at = first_at if self.first_at is None else self.first_at
        return self


def _said(docstring: str | None) -> str:
    """A docstring as a message: without what it says to whoever writes a loop."""
    paragraphs = (docstring or "").split("\n\n")
    return " ".join(" ".join(one.split()) for one in paragraphs if not one.strip().startswith("A loop "))


OncewardError.__module__ = PUBLIC_HOME
