"""idemkey: its guard around a function, with a key of one's own; a lease is its `claim_ttl`."""

from __future__ import annotations

from typing import Any

from idemkey import DedupStore, guard

from compare.place import Place, Request, Work


class Idemkey:
    """Its decorator, told to wait for others as long as the other packages do here."""

    def __init__(self, place: Place, work: Work) -> None:
        lease = {} if place.lease is None else {"claim_ttl": place.lease}
        # what a user adds
        store = DedupStore(str(place.folder / "kept.db"))

        @guard(store=store, inflight_timeout=5.0, **lease)
        def charge(key: str, request: Request) -> Any:
            return work(key, request)

        # until here
        self._charge = charge

    def call(self, key: Any, request: Request) -> Any:
        """Run it once."""
        return self._charge(key, request, idemkey=key)

    def close(self) -> None:
        """It goes with the process."""


def make(place: Place, work: Work) -> Idemkey:
    """On a file."""
    return Idemkey(place, work)
