"""
What `assert_once` says when it fails: three errors, and the course of events that led to one, for people to read.
"""

from __future__ import annotations

from datetime import timedelta

from onceward.testing.worker_calls import CallEnd

SHOWN_CHARACTERS = 100
ADVICE = (
    "What doubles: an effect outside of the gate, a key that differs from call to call, or a guarantee that lets it "
    "run again although the receiver recognises no key (record it with key= if it does)."
)


class DoubledEffect(AssertionError):
    """The effect happened more often than in one undisturbed run. The message tells the story."""


class LostEffect(AssertionError):
    """A retry was answered as if all were well, and the effect is not there. The message tells the story."""


class NothingChecked(AssertionError):
    """The check could not be made, so it must not pass. The message says what to do."""


class Story:
    """One course of events, line by line."""

    def __init__(self, number: int, title: str) -> None:
        self._title = f"Course of events {number}: {title}"
        self._lines: list[str] = []

    def tell(self, what: str, end: CallEnd | None, counts: dict[str, int] | None) -> None:
        """Add what happened: how the call ended, if it did, and how many effects there were then, if that is known."""
        counted = ""
        if counts is not None:
            made = ", ".join(f"{number} x {name}" for name, number in counts.items())
            counted = f"  [{made or 'no effect'}]"
        ended = ""
        if end is not None:
            ended = f": returned {shown(end.value)}" if end.error is None else f": raised {shown(end.error)}"
        self._lines.append(f"{what}{ended}{counted}")

    def after(self, headline: str) -> str:
        """The whole of it, below a headline."""
        lines = [f"  {number}. {line}" for number, line in enumerate(self._lines, 1)]
        return "\n".join([headline, self._title, *lines])


def shown(value: object) -> str:
    """A value or an error on one line, cut where it is long."""
    text = f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else repr(value)
    text = " ".join(text.split()).removesuffix(":")
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def span(time: timedelta) -> str:
    """A time, in words."""
    hours = time / timedelta(hours=1)
    return f"{hours:g} h" if hours >= 1 else f"{time.total_seconds():g} s"
