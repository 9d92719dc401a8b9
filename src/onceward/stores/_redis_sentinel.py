"""
Redis Sentinel: which server is the primary just now, asked anew for every connection that is made.

Sentinels are asked one after the other, beginning with the one that answered last; each is believed about the name of
the primary, and the server that it names has to say by itself that it is one.
"""

from __future__ import annotations

from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from onceward.stores._redis_packer import pack_args
from onceward.stores._redis_url import RedisAddress


class Sentinels:
    """The Sentinels of a URL, and the name of the service that they watch."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._order = list(address.seeds)

    def find_master(self) -> RedisAddress:
        """Where the primary is; raises an error of the driver if no Sentinel says."""
        service = self._address.service
        last = f"no Sentinel knows a service {service!r}"
        for seed in self._order:
            try:
                found = self._ask(seed, service)
            except RedisError as error:
                last = f"no Sentinel answers; the last one said: {error}"
                continue
            if isinstance(found, list) and len(found) == 2:
                # In one assignment: the pipeline and an event loop may both be asking.
                self._order = [seed, *(other for other in self._order if other != seed)]
                return self._address.at(found[0].decode(), int(found[1]))
        raise RedisConnectionError(last)

    def _ask(self, seed: tuple[str, int], service: str) -> Any:
        """On a connection of its own: it is needed once, and may be needed again in a month."""
        connection = self._address.sentinel(*seed).connection()
        try:
            connection.connect()
            connection.send_packed_command([pack_args(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service))])
            return connection.read_response(disable_decoding=True)
        finally:
            connection.disconnect()
