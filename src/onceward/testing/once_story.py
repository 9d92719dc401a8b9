"""
What `assert_once` says when it fails: three errors, and the steps that led to one, for people to read.
"""

from __future__ import annotations

from datetime import timedelta

from onceward.testing.worker_calls import CallEnd

SHOWN_CHARACTERS = 100
ADVICE = (
    "Common causes: an effect outside the gate, a key that differs from call to call, or a guarantee that lets it "
    "run again although the receiver recognises no key (if it does, record it with key=)."
)


class DoubledEffect(AssertionError):
    """The effect happened more often than in one undisturbed run. The message lists the steps."""


class LostEffect(AssertionError):
    """A retry returned its usual result, but the effect is missing. The message lists the steps."""


class NothingChecked(AssertionError):
    """The check could not be made, so it must not pass. The message says what to do."""


class Story:
    """One scenario, line by line."""

    def __init__(self, number: int, title: str) -> None:
        self._title = f"Scenario {number}: {title}"
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
