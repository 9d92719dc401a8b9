"""A look that is awaited before the claim finds what is stored, and decides nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any

import pytest

from onceward import AsyncGate, KeyReused, OncewardError
from onceward._core.record_types import PeekResult, peek_of
from onceward.gate import Sealed
from onceward.gate.call_factory import PreparedCall
from onceward.http.asgi import IdempotencyMiddleware
from onceward.stores import Capabilities, PutResult, Write
from onceward.stores.memory import AsyncMemoryStore
from onceward.testing.clock import StillEnvironment

METHODS = ("put_back", "erase", "load", "extend", "scan", "purge", "close")


class Looking:
    """A store whose looks are awaited: of every id that was settled here, whatever became of it."""

    def __init__(self, **given: Any) -> None:
        self._store = AsyncMemoryStore(**given)
        self.seen: set[bytes] = set()
        self.looks = self.puts = 0
        self.capabilities = Capabilities(awaits=True, look=self.look)

    def look(self, id: bytes) -> Awaitable[PeekResult | None] | None:
        return self._looked(id) if id in self.seen else None

    async def _looked(self, id: bytes) -> PeekResult | None:
        self.looks += 1
        await asyncio.sleep(0)
        found = await self._store.load(id)
        return None if found is None else peek_of(found)

    async def put(self, write: Write, expect: bytes | None) -> PutResult:
        self.puts += 1
        if expect is not None:
            self.seen.add(write.id)
        return await self._store.put(write, expect)

    def __getattr__(self, name: str) -> Any:
        if name not in METHODS:
            raise AttributeError(name)
        return getattr(self._store, name)


async def _ran(gate: AsyncGate, key: str, request: bytes, value: object = "first") -> Any:
    """Prepare a call as adapters do, and run it if that is needed."""
    prepared: Any = gate.prepare_on(gate.agreed(), key, lambda operation: value, request=request, name="charge")
    if type(prepared) is CoroutineType:
        prepared = await prepared
    return await gate.operate(prepared) if isinstance(prepared, PreparedCall) else prepared


class TestTheGate:
    """`prepare_on`, as the HTTP middleware uses it."""

    def test_a_first_call_does_not_look_and_a_replay_does_not_claim(self) -> None:
        """
        The first takes two puts, as on any store; the second takes one look.
        """
        store = Looking()

        async def main() -> list[Any]:
            gate = AsyncGate(store, scope="live:acme")
            first = await _ran(gate, "k", bytes(32))
            came = [first.value, first.replayed, store.looks, store.puts]
            again = await _ran(gate, "k", bytes(32), "second")
            return [*came, again.value, again.replayed, store.looks, store.puts]

        assert asyncio.run(main()) == ["first", False, 0, 2, "first", True, 1, 2]

    @pytest.mark.fault("a-look-replays-another-request")
    def test_another_request_is_refused(self) -> None:
        """
        And another caller's record is not found.
        """
        store = Looking()

        async def main() -> Any:
            gate = AsyncGate(store, scope="live:acme")
            await _ran(gate, "k", bytes(32))
            with pytest.raises(KeyReused):
                await _ran(gate, "k", b"\1" * 32, "second")
            return (await _ran(gate.scoped("live:other"), "k", bytes(32), "theirs")).value

        assert asyncio.run(main()) == "theirs"

    def test_what_has_gone_is_claimed_anew(self) -> None:
        """
        A record that was erased, or whose time is over, is no answer.
        """
        still = StillEnvironment()
        store = Looking(environment=still)

        async def main() -> list[Any]:
            gate = AsyncGate(store, scope="live:acme", environment=still, retain=10, after_expiry="run")
            await _ran(gate, "k", bytes(32))
            await store.erase(list(store.seen))
            erased = await _ran(gate, "k", bytes(32), "second")
            still.advance(11)
            return [erased.value, (await _ran(gate, "k", bytes(32), "third")).value, store.looks]

        assert asyncio.run(main()) == ["second", "third", 2]

    @pytest.mark.fault("a-sealed-look-is-not-opened")
    def test_what_is_sealed_is_opened(self) -> None:
        """
        With the gate's own key, for its own scope.
        """
        store = Looking()

        async def main() -> list[Any]:
            gate = AsyncGate(store, scope="live:acme", seal=Sealed(Sealed.new_key()))
            await _ran(gate, "k", bytes(32), {"paid": 12})
            try:
                again: Any = (await _ran(gate, "k", bytes(32))).value
            except OncewardError as error:
                again = error.code
            return [again, store.looks, store.puts]

        assert asyncio.run(main()) == [{"paid": 12}, 1, 2]

    def test_listeners_are_told_of_a_replay(self) -> None:
        """
        Once, as if it had been found by its claim.
        """
        told: list[str] = []

        async def main() -> None:
            gate = AsyncGate(Looking(), scope="live:acme", listeners=[lambda event: told.append(event.type.value)])
            for _ in range(2):
                await _ran(gate, "k", bytes(32))

        asyncio.run(main())

        assert told[-1:] == ["replayed"]
        assert told.count("replayed") == 1


def _asked(app: Any, key: str, body: bytes) -> Callable[[], Awaitable[tuple[int, bytes, bool]]]:
    async def ask() -> tuple[int, bytes, bool]:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"idempotency-key", key.encode()), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/c", "query_string": b"", "headers": headers}
        await app(scope, receive, send)
        return sent[0]["status"], sent[1]["body"], (b"idempotency-replayed", b"true") in sent[0]["headers"]

    return ask


class TestTheMiddleware:
    """A keyed request over such a store."""

    def test_a_crowd_is_served_from_one_record(self) -> None:
        """
        The same response to each, marked; a changed body is refused; and somebody who leaves harms nobody.
        """
        store, effects = Looking(), []

        async def charge(scope: Any, receive: Any, send: Any) -> None:
            effects.append((await receive())["body"])
            await send({"type": "http.response.start", "status": 201, "headers": []})
            await send({"type": "http.response.body", "body": b'{"n":%d}' % len(effects)})

        async def main() -> list[Any]:
            gate = AsyncGate(store, scope="live")
            app = IdempotencyMiddleware(charge, gate=gate, scope=lambda request: "live:acme")
            first = await _asked(app, "k", b"{}")()
            crowd = [asyncio.ensure_future(_asked(app, "k", b"{ }")()) for _ in range(20)]
            await asyncio.sleep(0)
            crowd.pop().cancel()
            other = await _asked(app, "k", b'{"a":1}')()
            return [first, *set(await asyncio.gather(*crowd)), other[0]]

        assert asyncio.run(main()) == [(201, b'{"n":1}', False), (201, b'{"n":1}', True), 422]
        assert (effects, store.puts) == ([b"{}"], 3)
