"""dbos: a workflow with one step under a workflow id, which is its key. A new process recovers what was under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID

from compare.place import Place, Request, Work


class Dbos:
    """Blocking and awaiting workflows in one instance: it allows one per process."""

    def __init__(self, place: Place, work: Work) -> None:
        url = place.url.replace("postgresql://", "postgresql+psycopg://")
        # what a user adds
        config: DBOSConfig = {"name": "compared", "system_database_url": url, "log_level": "CRITICAL"}
        DBOS(config=config)

        @DBOS.step()
        def charge(key: str, request: Request) -> Any:
            return work(key, request)

        @DBOS.workflow()
        def order(key: str, request: Request) -> Any:
            return charge(key, request)

        # until here
        @DBOS.step()
        async def acharge(key: str, request: Request) -> Any:
            return await work.awaited(key, request)

        @DBOS.workflow()
        async def aorder(key: str, request: Request) -> Any:
            return await acharge(key, request)

        self._order, self._aorder = order, aorder
        DBOS.launch()

    def call(self, key: Any, request: Request) -> Any:
        """Run it once."""
        with SetWorkflowID(key):
            return self._order(key, request)

    async def acall(self, key: Any, request: Request) -> Any:
        """The same, awaited."""
        with SetWorkflowID(key):
            return await self._aorder(key, request)

    def close(self) -> None:
        """Stop its threads."""
        DBOS.destroy()


def make(place: Place, work: Work) -> Dbos:
    """On the store that the question is asked on."""
    return Dbos(place, work)


def steps(place: Place, work: Callable[[str], Any]) -> Callable[[], Any]:
    """A workflow of three steps."""
    DBOS(config={"name": "compared", "system_database_url": place.url, "log_level": "CRITICAL"})

    @DBOS.step()
    def step(name: str) -> Any:
        return work(name)

    @DBOS.workflow()
    def flow() -> list[Any]:
        return [step(name) for name in ("one", "two", "three")]

    DBOS.launch()

    def run() -> Any:
        with SetWorkflowID("order-17"):
            return flow()

    return run
