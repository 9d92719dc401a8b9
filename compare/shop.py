"""The application behind the HTTP middlewares, and a client for it: plain ASGI, so that nothing differs but them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

SLOW_SECONDS = 0.3
BIG_BYTES = 2 * 1024 * 1024


class Shop:
    """POST /charges charges; /fails charges and responds 500; /slow takes its time; /large responds with 2 MiB."""

    def __init__(self, folder: Path) -> None:
        self.charges: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        self.charges.append(scope["path"])
        number = len(self.charges)
        if scope["path"] == "/slow":
            await asyncio.sleep(SLOW_SECONDS)
        status = 500 if scope["path"] == "/fails" else 201
        padding = "x" * BIG_BYTES if scope["path"] == "/large" else ""
        body = json.dumps({"charge": number, "padding": padding}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Visitor:
    """A client of the application, without a socket."""

    def __init__(self, app: Any) -> None:
        import httpx

        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://shop.example")

    async def post(self, path: str, key: str, body: Any, tenant: str = "acme") -> dict[str, Any]:
        """A keyed POST; its status, and which charge the response tells of."""
        headers = {"Idempotency-Key": key, "Authorization": f"Bearer {tenant}"}
        response = await self._client.post(path, json=body, headers=headers, timeout=30)
        try:
            told = response.json()
        except ValueError:
            told = None
        return {"status": response.status_code, "charge": told.get("charge") if isinstance(told, dict) else None}
