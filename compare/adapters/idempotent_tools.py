"""idempotent-tools: its decorator on a file, with a key of one's own."""

from __future__ import annotations

from typing import Any

from idempotent_tools import idempotent
from idempotent_tools.backends.sqlite_backend import SQLiteBackend

from compare.place import Place, Request, Work


class IdempotentTools:
    """Told to wait for others, as ours does."""

    def __init__(self, place: Place, work: Work) -> None:
        # what a user adds
        backend = SQLiteBackend(db_path=str(place.folder / "kept.db"))

        @idempotent(backend=backend, on_duplicate="block", poll_timeout=5.0)
        def charge(key: str, request: Request) -> Any:
            return work(key, request)

        # until here
        self._charge = charge

    def call(self, key: Any, request: Request) -> Any:
        """Run it once."""
        return self._charge(key, request, idempotency_key=key)

    def close(self) -> None:
        """It goes with the process."""


def make(place: Place, work: Work) -> IdempotentTools:
    """On a file."""
    return IdempotentTools(place, work)
