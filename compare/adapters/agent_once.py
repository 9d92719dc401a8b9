"""agent-once (imported as `once`): its decorator, with a key of one's own; it hashes the arguments."""

from __future__ import annotations

from typing import Any

from once import Once

from compare.place import Place, Request, Work


class AgentOnce:
    """Told to wait for others, as ours does. A lease has a meaning for it only together with a `verify`."""

    def __init__(self, place: Place, work: Work) -> None:
        path: Any = place.folder / "kept.db" if place.url.startswith("sqlite") else place.url
        # what a user adds
        once = Once(path, wait=5.0)

        @once.tool
        def charge(request: Request, idempotency_key: str) -> Any:
            return work(idempotency_key, request)

        # until here
        @once.tool
        async def acharge(request: Request, idempotency_key: str) -> Any:
            return await work.awaited(idempotency_key, request)

        self._once, self._charge, self._acharge = once, charge, acharge

    def call(self, key: Any, request: Request) -> Any:
        """Run it once."""
        return self._charge(request, idempotency_key=key)

    async def acall(self, key: Any, request: Request) -> Any:
        """The same, awaited."""
        return await self._acharge(request, idempotency_key=key)

    def close(self) -> None:
        """Close it."""
        self._once.close()


def make(place: Place, work: Work) -> AgentOnce:
    """On the store that the question is asked on."""
    return AgentOnce(place, work)
