"""
The process that sends. It reads lines of JSON, and answers each when its round is over.

    {"port": 8600, "tenants": [...], "rate": 16, "clients": 8}                   first, once
    {"round": 3, "kind": "honest", "tenants": ["honest0", ...], "seconds": 10}   -> {"seconds": [...], "failures": ...}
    {"round": 4, "kind": "attack", "tenants": ["attacker-reads", ...], ...}      -> {"heard": {"attacker-reads": ...}}
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections import Counter
from collections.abc import Coroutine
from dataclasses import asdict
from typing import Any

from soak.neighbours.attacks import Attacker
from soak.neighbours.honest import HonestClient, Seen
from soak.neighbours.tenants import Tenant


class Sender:
    """Everybody who sends from this process."""

    def __init__(self, port: int, tenants: list[list[Any]], rate: float, clients: int) -> None:
        self._port = port
        self._tenants = {name: Tenant(name, *more) for name, *more in tenants}
        self._rate = rate
        self._clients = clients

    async def play(self, round: int, kind: str, tenants: list[str], seconds: float) -> dict[str, Any]:
        """One round; what was seen."""
        begin, period = asyncio.get_running_loop().time(), self._clients / self._rate
        seen, heard = Seen(), {name: Counter[str]() for name in tenants}
        running: list[Coroutine[Any, Any, None]] = []
        for place, tenant in enumerate(self._tenants[name] for name in tenants):
            for number in range(self._clients):
                # Spread over a period, so that nobody's requests come in bursts.
                start = begin + period * (number + place / len(tenants)) / self._clients
                if kind == "attack":
                    client = Attacker(self._port, tenant, number, heard[tenant.name])
                    running.append(_until(begin + seconds, client.run(start, begin + seconds, period)))
                else:
                    honest = HonestClient(self._port, tenant, f"{tenant.name}-{number}-{round}", seen)
                    running.append(honest.run(start, begin + seconds, period))
        await asyncio.gather(*running)
        return {**asdict(seen), "heard": heard, "cpu": _cpu_seconds()}


async def _until(end: float, running: Coroutine[Any, Any, None]) -> None:
    """An attacker leaves in the middle of whatever it does."""
    task = asyncio.create_task(running)
    await asyncio.wait({task}, timeout=end - asyncio.get_running_loop().time())
    task.cancel()
    ended = await asyncio.gather(task, return_exceptions=True)
    if isinstance(ended[0], Exception):
        raise ended[0]


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def main() -> None:
    """Until there is no line any more."""
    loop = asyncio.get_running_loop()
    sender = Sender(**json.loads(await loop.run_in_executor(None, sys.stdin.readline)))
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await sender.play(**json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
