"""
What each request of a group has cost in processor time: a worker's `GroupObserver`.

It is told which request begins, and passes that on to the page that the engine reads. What belongs to no request
(opening a database, beginning and committing) is shared by all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from onceward.service.sql.worker_channel import ProgressPage


class RequestMeter:
    """The meter of one worker."""

    def __init__(self, page: ProgressPage, clock: Callable[[], float]) -> None:
        self._page = page
        self._clock = clock
        self._used: list[float] = []
        self._shared = 0.0
        self._running: int | None = None
        self._since = 0.0

    def begin(self, group: int, requests: int) -> None:
        """A group begins, of so many requests."""
        self._used, self._shared, self._running, self._since = [0.0] * requests, 0.0, None, self._clock()
        self._page.begin(group)

    def at(self, number: int) -> None:
        """A request begins: its number in the group."""
        self._switch(number)
        self._page.at(number)

    def committing(self) -> None:
        """The commit of the group begins."""
        self._switch(None)
        self._page.committing()

    def group_ended(self) -> None:
        """The group's transaction is over."""
        self._switch(None)

    def costs(self) -> list[float]:
        """Processor seconds of each request, with its share of what belongs to all."""
        self._switch(None)
        share = self._shared / len(self._used)
        return [used + share for used in self._used]

    def _switch(self, number: int | None) -> None:
        now = self._clock()
        if self._running is None:
            self._shared += now - self._since
        else:
            self._used[self._running] += now - self._since
        self._running, self._since = number, now
