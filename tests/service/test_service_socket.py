"""The socket that the service listens on."""

from __future__ import annotations

import asyncio
import socket

import pytest

from onceward.service.network.sockets import listen


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_answers_leave_at_once(host: str) -> None:
    """
    No connection waits for an acknowledgement before the second half of an answer: Nagle's algorithm is off.

    asyncio turns it off, if the listening socket says that it is TCP.
    """

    async def served() -> int:
        found = asyncio.get_running_loop().create_future()

        async def met(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            line: socket.socket = writer.get_extra_info("socket")
            found.set_result(line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = listen(host, 0).socket
        async with await asyncio.start_server(met, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname()[:2])
            nodelay = await found
            writer.close()
            await writer.wait_closed()
        return int(nodelay)

    assert asyncio.run(served()) != 0
