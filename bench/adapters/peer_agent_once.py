"""Peer: agent-once (imported as `once`). `execute` and `aexecute` with an explicit key; it hashes the arguments."""

from __future__ import annotations

from pathlib import Path

from once import Once

from bench.work import Request, Result, Work


class AgentOnce:
    """
    One instance for all callers; it keeps a connection per thread. On a file: WAL, synchronous FULL by default.
    """

    def __init__(self, folder: Path, work: Work, url: str | None = None) -> None:
        # With eight threads its own five seconds can run out; waiting longer is not slower.
        self._once = Once(folder / "peer.db", busy_timeout=60.0) if url is None else Once(url)

        def charge(request: Request) -> Result:
            return work.effect()

        async def acharge(request: Request) -> Result:
            return work.effect()

        self._charge, self._acharge = charge, acharge

    def fresh(self, key: str, request: Request) -> Result:
        """Run once."""
        result: Result = self._once.execute(self._charge, key=key, tool_name="charge", request=request)
        return result

    replay = fresh

    async def afresh(self, key: str, request: Request) -> Result:
        """Same as `fresh`, but awaits."""
        result: Result = await self._once.aexecute(self._acharge, key=key, tool_name="charge", request=request)
        return result

    areplay = afresh

    def close(self) -> None:
        """Close the connections."""
        self._once.close()
