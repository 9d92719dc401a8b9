"""
uvicorn around the application, as `onceward serve` runs it: with our listener and our protocol.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import uvicorn

from onceward.runtime.environment import REAL
from onceward.service.access import Accounts, trusted_networks
from onceward.service.network.certificates import Certificates
from onceward.service.network.connections import ConnectionTable
from onceward.service.network.http_protocol import DRAIN_SECONDS, BoundedHttpProtocol
from onceward.service.network.listener import HANDSHAKE_SECONDS, Listener
from onceward.service.network.sockets import ListeningSocket
from onceward.service.settings import Settings


class ServiceServer(uvicorn.Server):
    """uvicorn's server, which accepts by our `Listener`."""

    def __init__(
        self,
        config: uvicorn.Config,
        listening: ListeningSocket,
        connections: ConnectionTable,
        certificates: Certificates | None,
        receive_seconds: float,
    ) -> None:
        super().__init__(config)
        self._receive_seconds = receive_seconds
        self.connections = connections
        self._listening = listening
        self._certificates = certificates
        self._listener: Listener | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept."""
        await super().startup(sockets=[])
        loop = asyncio.get_running_loop()

        def make_protocol() -> BoundedHttpProtocol:
            made = self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop
            )
            return cast("BoundedHttpProtocol", made)

        self._listener = Listener(
            self._listening,
            make_protocol,
            self.connections,
            self._certificates,
            handshake_seconds=min(HANDSHAKE_SECONDS, self._receive_seconds),
        )
        self.servers = [cast("Any", self._listener)]
        self._listener.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and finish what is under way; also on connections that were only just accepted."""
        if self._listener is not None:
            self._listener.close()
            await self._listener.settle()
        await super().shutdown(sockets=sockets)


def server_of(
    app: Any,
    chosen: Settings,
    listening: ListeningSocket,
    accounts: Accounts | None = None,
    certificates: Certificates | None = None,
) -> ServiceServer:
    """The server of an application, by the service's settings."""
    table = ConnectionTable(
        Accounts(REAL.monotonic) if accounts is None else accounts,
        trusted_networks(chosen.trusted_proxies),
        send_seconds=chosen.send_seconds,
    )

    class Timed(BoundedHttpProtocol):
        """The HTTP protocol with this service's limits on how long a request may take to arrive."""

        seconds = chosen.receive_seconds
        drain_seconds = min(DRAIN_SECONDS, chosen.shutdown_seconds / 2)

    config = uvicorn.Config(
        app,
        http=Timed,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=round(chosen.shutdown_seconds),
        h11_max_incomplete_event_size=1 << 20,  # Our own limit is smaller, and its refusal says so.
    )
    return ServiceServer(config, listening, table, certificates, chosen.receive_seconds)
