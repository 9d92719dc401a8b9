"""
Where the answer to a request goes: a line of its own, or its place in the one answer to a batch.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class ClientWriter(Protocol):
    """The way back to the client."""

    async def write(self, data: bytes) -> bool:
        """Write all of it; False if the client has gone."""


class AnswerPlace(Protocol):
    """The place of one answer."""

    async def give(self, raw: bytes) -> bool:
        """Give the answer; whether the client has it."""

    async def skip(self) -> None:
        """There will be none: the client does not want it any more."""


class SingleReply:
    """An answer that is a line of its own."""

    def __init__(self, client: ClientWriter) -> None:
        self._client = client

    async def give(self, raw: bytes) -> bool:
        """Write it now."""
        return await self._client.write(raw + b"\n")

    async def skip(self) -> None:
        """Nothing is written."""


class BatchReply:
    """The one answer to a batch, written once every request in it has its answer."""

    def __init__(self, client: ClientWriter, count: int) -> None:
        self._client, self._left = client, count
        self._answers: list[bytes] = []
        self._written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def give(self, raw: bytes) -> bool:
        """Add it, and wait until all are written."""
        self._answers.append(raw)
        return await self._end_one()

    async def skip(self) -> None:
        """One less to wait for."""
        await self._end_one()

    async def _end_one(self) -> bool:
        self._left -= 1
        if self._left == 0:
            whole = b"[" + b",".join(self._answers) + b"]\n"
            self._written.set_result(await self._client.write(whole) if self._answers else True)
        return await asyncio.shield(self._written)
