"""
What operators do with an outbox: look at it, and decide about what was given up or disabled.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from onceward.environment import REAL, Environment
from onceward.outbox import leasing
from onceward.outbox.leasing import Disabled, Letter, Standing
from onceward.outbox.tables import open_outbox
from onceward.tables.shells import Blocking
from onceward.tables.steps import looked, transacted


class Deciding:
    """An outbox that is open: a relay, or an operator's desk. Closed at the end of a `with` block."""

    def __init__(self, tables: Blocking) -> None:
        self._tables = tables

    def dead(self, endpoint: str | None = None, *, after: str | None = None, limit: int = 100) -> list[Letter]:
        """Messages that were given up, the oldest first; `after` is an id to go on from."""
        return self._tables.run(looked(lambda: leasing.letters(endpoint, after, limit)))

    def requeue(self, id: str) -> bool:
        """Try a dead message anew, under its own id; False if there is none. Later ones may have been delivered."""
        return self._tables.run(transacted("relay.decide", lambda: leasing.requeue(id)))

    def discard(self, id: str) -> bool:
        """Let go of a dead message; False if there is none."""
        return self._tables.run(transacted("relay.decide", lambda: leasing.discard(id)))

    def enable(self, endpoint: str) -> bool:
        """Let an endpoint that was gone have its messages again; False if it was not disabled."""
        return self._tables.run(transacted("relay.decide", lambda: leasing.enable(endpoint)))

    def standings(self) -> list[Standing]:
        """How many messages there are, by endpoint and state."""
        return self._tables.run(looked(leasing.standings))

    def disabled(self) -> list[Disabled]:
        """Endpoints that said that they are no more."""
        return self._tables.run(looked(leasing.disabled))

    def close(self) -> None:
        """Let go of the database."""
        self._tables.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class OutboxDesk(Deciding):
    """An outbox, for operators. It delivers nothing."""

    def __init__(self, url: str, *, create: bool = False, environment: Environment = REAL) -> None:
        super().__init__(Blocking(open_outbox(url, environment, create=create)))
