"""
One keyed request and its retry: what was called, in order, by the real middleware in front of a real store.

The client, the store and the handler note what reaches them. Nothing in this picture is written by hand but the words
for each kind of call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from drawings.canvas import Canvas
from onceward import AsyncGate
from onceward._core.record import PutResult, Write
from onceward.http.asgi import IdempotencyMiddleware
from onceward.stores.memory import AsyncMemoryStore

CLIENT, MIDDLEWARE, STORE, HANDLER = "client", "middleware", "store", "handler"
PARTIES = (CLIENT, MIDDLEWARE, STORE, HANDLER)


class Message(NamedTuple):
    """An arrow of the sequence."""

    sender: str
    receiver: str
    words: str
    is_answer: bool = False


class _NotingStore(AsyncMemoryStore):
    """A store that notes what is put, and what it answers."""

    def __init__(self, noted: list[Message]) -> None:
        super().__init__()
        self._noted = noted

    def put(self, write: Write, expect: bytes | None) -> asyncio.Future[PutResult]:
        self._noted.append(Message(MIDDLEWARE, STORE, f"put the key as {write.state}"))
        answer = super().put(write, expect)
        result = answer.result()
        there = result.record.state if result.record is not None else "absent"
        ours = "the claim is ours" if write.state == "claimed" else "stored"
        words = ours if result.landed else f"no: it is {there}"
        self._noted.append(Message(STORE, MIDDLEWARE, words, is_answer=True))
        return answer


def observed() -> tuple[list[Message], list[Message]]:
    """The first request and its retry, as they went."""
    noted: list[Message] = []

    async def handler(
        scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        noted.append(Message(MIDDLEWARE, HANDLER, "the request, and its operation"))
        while (await receive()).get("more_body"):
            pass
        noted.append(Message(HANDLER, MIDDLEWARE, "201, a body, and it returns", is_answer=True))
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b'{"charge": "ch_1"}'})

    async def both() -> tuple[list[Message], list[Message]]:
        gate = AsyncGate(_NotingStore(noted), scope="test:docs")
        middleware = IdempotencyMiddleware(handler, gate=gate, scope="test:docs")
        await _send(middleware, noted)
        first, noted[:] = list(noted), []
        await _send(middleware, noted)
        await gate.close()
        return first, list(noted)

    return asyncio.run(both())


async def _send(middleware: IdempotencyMiddleware, noted: list[Message]) -> None:
    body = b'{"amount": "12.50"}'
    pieces = [{"type": "http.request", "body": body[:8], "more_body": True}, {"type": "http.request", "body": body[8:]}]
    status: list[int] = []
    replayed: list[bool] = []

    async def receive() -> Any:
        if not pieces:
            return await asyncio.Future()
        piece = pieces.pop(0)
        if not pieces:
            noted.append(Message(CLIENT, MIDDLEWARE, "POST, Idempotency-Key: o-17"))
        return piece

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])
            replayed.append(any(name.lower() == b"idempotency-replayed" for name, _ in message["headers"]))
        elif not message.get("more_body"):
            words = f"{status[0]}, replayed" if replayed[0] else f"{status[0]}, the end of the response"
            noted.append(Message(MIDDLEWARE, CLIENT, words, is_answer=True))

    headers = [(b"idempotency-key", b"o-17"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/charges", "raw_path": b"/charges", "query_string": b"",
             "headers": headers, "scheme": "http", "http_version": "1.1", "state": {}}  # fmt: skip
    await middleware(scope, receive, send)


_LEFT, _GAP, _STEP = 90, 240, 38
_TONES = {"claimed": "blue", "settled": "green", "replayed": "green"}


def draw() -> str:
    """The picture."""
    first, retry = observed()
    height = 96 + _STEP * (len(first) + len(retry)) + 96
    told = "; ".join(f"{one.sender} to {one.receiver}: {one.words}" for one in first)
    again = "; ".join(f"{one.sender} to {one.receiver}: {one.words}" for one in retry)
    words = f"The first request. {told}. The retry. {again}. The handler is not called again."
    canvas = Canvas(_LEFT * 2 + _GAP * 3, height, "One keyed request, and its retry", words)
    across = {party: _LEFT + _GAP * number for number, party in enumerate(PARTIES)}
    for party, x in across.items():
        canvas.line(x, 84, x, height - 20, "line life")
        canvas.box(x - 56, 52, 112, 32, "grey")
        canvas.text(x, 73, party, "strong", anchor="middle")
    y = _sequence(canvas, across, first, 118, "the first time")
    canvas.line(20, y + 2, _LEFT * 2 + _GAP * 3 - 20, y + 2, "faint")
    _sequence(canvas, across, retry, y + 36, "the retry: nothing runs")
    return canvas.svg()


def _sequence(canvas: Canvas, across: dict[str, int], messages: list[Message], y: float, title: str) -> float:
    canvas.text(24, y, title, "muted strong halo")
    for message in messages:
        y += _STEP
        start, end = across[message.sender], across[message.receiver]
        tone = next((tone for word, tone in _TONES.items() if word in message.words), "line")
        canvas.arrow(f"M{start} {y:g} L{end - 2 if end > start else end + 2} {y:g}", tone, dashed=message.is_answer)
        text_tone = tone if tone != "line" else "muted"
        canvas.text((start + end) / 2, y - 7, message.words, f"small halo {text_tone}", anchor="middle")
    return y + 14
