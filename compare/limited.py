"""What a 429 is, for libraries that have no error of their own for it."""

from __future__ import annotations


class Limited(Exception):
    """The server said when to come back."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"429, Retry-After: {seconds:g}")
        self.seconds = seconds


def limited(seconds: float) -> Limited:
    """One of them."""
    return Limited(seconds)
