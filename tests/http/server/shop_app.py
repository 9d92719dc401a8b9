"""
An application for servers in processes of their own. Its world is the folder SHOP:

    effects     a line per effect: the path, and the key that was sent downstream
    hold        handlers run, after their effect, until this is gone
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from onceward import AsyncGate
from onceward.http import Route
from onceward.http.asgi import IdempotencyMiddleware

SHOP = Path(os.environ["SHOP"])
gate = AsyncGate(f"sqlite:///{SHOP / 'shop.db'}", scope="test:nobody")


async def charge(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        raise RuntimeError("only HTTP here")
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    operation = scope["state"]["operation"]
    with (SHOP / "effects").open("a") as effects:
        effects.write(f"{scope['path']} {operation.downstream_key('stripe')}\n")
    while (SHOP / "hold").exists():
        await asyncio.sleep(0.01)
    number = len((SHOP / "effects").read_text().splitlines())
    answer = b'{"charge":%d,"bytes":%d}' % (number, len(body))
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 201, "headers": head})
    await send({"type": "http.response.body", "body": answer})


app = IdempotencyMiddleware(
    charge,
    gate=gate,
    scope="live:acme",
    routes=[Route(f"/{guarantee}", guarantee=guarantee, lease=1) for guarantee in ("blind", "atomic", "keyed")],
)
