"""
`Listener`: accepts connections, as many as there may be, and closes the others with a reason.

It accepts by itself, where uvicorn would leave it to the event loop: so that there is a bound before there is a
connection, each handshake has the newest certificate, and nothing happens silently when descriptors run out.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from onceward._core.errors import OncewardError
from onceward.runtime.environment import REAL
from onceward.service.access.accounts import Hold
from onceward.service.network.certificates import Certificates
from onceward.service.network.connections import ConnectionTable
from onceward.service.network.http_protocol import BoundedHttpProtocol, ChunkedReading, bare_response
from onceward.service.network.sockets import ListeningSocket

log = logging.getLogger("onceward.service")

ACCEPTED_AT_ONCE = 8
"""Before other work has its turn."""
PAUSE_SECONDS = 0.5
"""Without accepting, when the system has no descriptors or no memory left."""
HANDSHAKE_SECONDS = 10.0
"""How long a TLS handshake may take."""
CHECK_SECONDS = 1.0
"""Between two looks for clients that do not read."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """One listening socket. `close` and `wait_closed` are what uvicorn calls."""

    def __init__(
        self,
        listening: ListeningSocket,
        make_protocol: Callable[[], BoundedHttpProtocol],
        connections: ConnectionTable,
        certificates: Certificates | None = None,
        *,
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._listening = listening
        self._make_protocol = make_protocol
        self._connections = connections
        self._certificates = certificates
        self._handshake_seconds = handshake_seconds
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[None]] = set()
        self._resume: asyncio.TimerHandle | None = None
        self._check: asyncio.TimerHandle | None = None
        self._is_closed = False

    def start(self) -> None:
        """Accept from now on."""
        self._listening.socket.setblocking(False)
        self._loop.add_reader(self._listening.socket.fileno(), self._accept_some)
        self._check_readers()

    def close(self) -> None:
        """Accept no more. Who waits in the queue is accepted first, unless the socket goes on without us."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._listening.socket.fileno())
        if self._resume is not None:
            self._resume.cancel()
        while not self._listening.is_handed_over and self._accept_one():
            pass
        self._listening.socket.close()

    async def settle(self) -> None:
        """Wait until every connection that was accepted has become one, or has failed to."""
        while self._beginning:
            await asyncio.wait(set(self._beginning))

    async def wait_closed(self) -> None:
        """Stop looking after connections: there are none any more, or nobody waits for them."""
        if self._check is not None:
            self._check.cancel()

    def _check_readers(self) -> None:
        self._connections.check_readers(REAL.monotonic)
        self._check = self._loop.call_later(CHECK_SECONDS, self._check_readers)

    def _accept_some(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if not self._accept_one():
                return

    def _accept_one(self) -> bool:
        """Whether there may be another one."""
        try:
            connection, peer = self._listening.socket.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionError:
            return True  # It has gone already.
        except OSError as error:
            self._pause(error)
            return False
        connection.setblocking(False)
        try:
            hold = self._connections.admit(str(peer[0]))
        except OncewardError as refusal:
            self._refuse(connection, refusal)
            return True
        task = self._loop.create_task(self._begin(connection, hold))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)
        return True

    def _pause(self, error: OSError) -> None:
        """Callers wait in the queue meanwhile; without a pause the event loop would do nothing but try."""
        self._connections.counts["accept_failed"] += 1
        words = "no descriptors or memory are left" if error.errno in _EXHAUSTED else "the system refused"
        log.error("no connection can be accepted (%s: %s); trying again in %g s", words, error, PAUSE_SECONDS)
        if not self._is_closed:
            self._loop.remove_reader(self._listening.socket.fileno())
            self._resume = self._loop.call_later(PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._resume = None
        self._loop.add_reader(self._listening.socket.fileno(), self._accept_some)

    def _refuse(self, connection: socket.socket, refusal: OncewardError) -> None:
        """Say why, if that can be said without waiting."""
        with connection:
            if self._certificates is None:
                try:
                    connection.send(bare_response(refusal))
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(65_536)  # What is unread would make a reset of this, and hide the reason.
                except OSError:
                    return

    async def _begin(self, connection: socket.socket, hold: Hold) -> None:
        """Make a connection of a socket: after its handshake, if there is to be one."""
        protocol = self._make_protocol()
        protocol.table = self._connections
        self._connections.opened(protocol, hold)
        try:
            if self._certificates is None:
                await self._loop.connect_accepted_socket(lambda: ChunkedReading(protocol), connection)
                return
            await self._loop.connect_accepted_socket(
                lambda: ChunkedReading(protocol),
                connection,
                ssl=self._certificates.context,
                ssl_handshake_timeout=self._handshake_seconds,
                ssl_shutdown_timeout=self._connections.send_seconds,
            )
        except OSError as error:  # Those of TLS are OSErrors, too.
            self._connections.lost(protocol)
            self._connections.counts["beginnings_failed"] += 1
            log.info("%s failed: %s", "a connection" if self._certificates is None else "a TLS handshake", error)
            connection.close()
        except BaseException:
            self._connections.lost(protocol)
            connection.close()
            raise
