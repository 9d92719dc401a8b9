"""
`OutboxAdmin`: for operators, to look at an outbox and decide about dead messages and disabled endpoints.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from onceward.messaging.outbox import message_queue
from onceward.messaging.outbox.message_queue import DeadMessage, DisabledEndpoint, MessageCount
from onceward.messaging.outbox.tables import open_outbox
from onceward.runtime.environment import REAL, Environment
from onceward.stores.tables.runner import TablesRunner
from onceward.stores.tables.sql_steps import read_tables, transact


class OutboxControls:
    """Operators' actions on an open outbox. Closed at the end of a `with` block."""

    def __init__(self, tables: TablesRunner) -> None:
        self._tables = tables

    def dead(self, endpoint: str | None = None, *, after: str | None = None, limit: int = 100) -> list[DeadMessage]:
        """Messages that were given up, the oldest first; `after` is an id to go on from."""
        return self._tables.run(read_tables(lambda: message_queue.dead_messages(endpoint, after, limit)))

    def dead_message(self, id: str) -> DeadMessage | None:
        """One message that was given up; None if there is none."""
        return self._tables.run(read_tables(lambda: message_queue.dead_message(id)))

    def requeue(self, id: str) -> bool:
        """Try a dead message anew, under its own id; False if there is none. Later ones may have been delivered."""
        return self._tables.run(transact("relay.decide", lambda: message_queue.requeue(id)))

    def discard(self, id: str) -> bool:
        """Let go of a dead message; False if there is none."""
        return self._tables.run(transact("relay.decide", lambda: message_queue.discard(id)))

    def enable(self, endpoint: str) -> bool:
        """Let an endpoint that was gone have its messages again; False if it was not disabled."""
        return self._tables.run(transact("relay.decide", lambda: message_queue.enable(endpoint)))

    def message_counts(self) -> list[MessageCount]:
        """How many messages there are, by endpoint and state."""
        return self._tables.run(read_tables(message_queue.message_counts))

    def disabled(self) -> list[DisabledEndpoint]:
        """Endpoints that were disabled because they said that they are gone."""
        return self._tables.run(read_tables(message_queue.disabled_endpoints))

    def close(self) -> None:
        """Let go of the database."""
        self._tables.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class OutboxAdmin(OutboxControls):
    """An outbox, for operators. It delivers nothing."""

    def __init__(self, url: str, *, create: bool = False, environment: Environment = REAL) -> None:
        super().__init__(TablesRunner(open_outbox(url, environment, create=create)))
