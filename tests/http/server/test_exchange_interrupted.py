"""A request that is cancelled, or closed, wherever it waits: its claim is ended, and says what is known."""

from __future__ import annotations

import asyncio
from typing import Any

from onceward import AsyncGate
from onceward.http.asgi import IdempotencyMiddleware
from onceward.stores.memory import AsyncMemoryStore

SCOPE = "test:shop"


class SlowStore(AsyncMemoryStore):
    """A store whose writes land, and are answered when a test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.landed, self.go = asyncio.Event(), asyncio.Event()

    async def put(self, write: Any, expect: Any) -> Any:
        standing = await super().put(write, expect)
        self.landed.set()
        await self.go.wait()
        return standing


async def request() -> dict[str, Any]:
    """The body of a request."""
    return {"type": "http.request", "body": b"{}", "more_body": False}


def asked(gate: AsyncGate, app: Any, sent: list[Any]) -> Any:
    """A keyed request behind the middleware, as a coroutine."""

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"idempotency-key", b"k"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/a", "query_string": b"", "headers": headers}
    return IdempotencyMiddleware(app, gate=gate, scope=SCOPE)(scope, request, send)


async def answers(scope: Any, receive: Any, send: Any) -> None:
    """A handler that answers."""
    await send({"type": "http.response.start", "status": 201, "headers": []})
    await send({"type": "http.response.body", "body": b"done"})


async def waits(scope: Any, receive: Any, send: Any) -> None:
    """A handler that never ends."""
    await asyncio.Event().wait()


async def state(gate: AsyncGate) -> str | None:
    found = await gate.scoped(SCOPE).records.get("k")
    return None if found is None else found.state


def test_a_request_that_is_cancelled_while_it_is_claimed_leaves_its_key_free() -> None:
    """
    The claim has landed by then. The handler has not run, so a retry runs it at once.
    """

    async def main() -> tuple[Any, ...]:
        store, sent = SlowStore(), list[Any]()
        async with AsyncGate(store, scope="test:a") as gate:
            task = asyncio.ensure_future(asked(gate, answers, sent))
            await store.landed.wait()
            task.cancel()
            await asyncio.sleep(0)
            store.go.set()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            after = await state(gate)
            await asked(gate, answers, sent)
            return type(ended), after, sent[0]["status"], await state(gate)

    assert asyncio.run(main()) == (asyncio.CancelledError, "released", 201, "settled")


def test_a_request_that_is_cancelled_while_its_handler_runs_is_in_doubt() -> None:
    """
    Nobody knows what the handler has done by then.
    """

    async def main() -> tuple[Any, ...]:
        async with AsyncGate(AsyncMemoryStore(), scope="test:a") as gate:
            task = asyncio.ensure_future(asked(gate, waits, []))
            while await state(gate) != "claimed":
                await asyncio.sleep(0)
            task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            return type(ended), await state(gate)

    assert asyncio.run(main()) == (asyncio.CancelledError, "in_doubt")


def test_a_request_whose_coroutine_is_closed_is_in_doubt() -> None:
    """
    Nothing can be awaited in it any more: its event loop ends the claim.
    """

    async def main() -> str | None:
        async with AsyncGate(AsyncMemoryStore(), scope="test:a") as gate:
            running = asked(gate, waits, [])
            running.send(None)
            running.close()
            for _ in range(100):
                if await state(gate) == "in_doubt":
                    break
                await asyncio.sleep(0)
            return await state(gate)

    assert asyncio.run(main()) == "in_doubt"
