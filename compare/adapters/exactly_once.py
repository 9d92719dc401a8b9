"""exactly-once: its decorator, with a key and a fingerprint; repeating, if allowed, by its policy for that."""

from __future__ import annotations

from typing import Any

from exactly_once import Store, auto_retry, once, quarantine

from compare.place import Place, Request, Work


class ExactlyOnce:
    """The decorator over a plain and over an async function."""

    def __init__(self, place: Place, work: Work) -> None:
        options: dict[str, Any] = {"policy": auto_retry if place.repeatable else quarantine}
        if place.lease is not None:
            options["lease_ttl"] = place.lease
        store = _store(place)
        # what a user adds
        guard = once(store, key=lambda key, request: key, fingerprint=lambda key, request: request, **options)

        @guard
        def charge(key: str, request: Request) -> Any:
            return work(key, request)

        # until here
        async def acharge(key: str, request: Request) -> Any:
            return await work.awaited(key, request)

        self._store, self.call, self.acall = store, charge, guard(acharge)

    def close(self) -> None:
        """Close it."""
        self._store.close()


def _store(place: Place) -> Any:
    if place.url.startswith("sqlite"):
        return Store.sqlite(str(place.folder / "kept.db"))
    return Store.postgres(place.url) if place.url.startswith("postgres") else Store.redis(place.url)


def make(place: Place, work: Work) -> ExactlyOnce:
    """On the store that the question is asked on."""
    return ExactlyOnce(place, work)
