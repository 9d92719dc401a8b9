"""
The public surface as a type checker sees it. Checked by `mypy --strict`, never run.

What a user writes must type-check, and what is returned must have the type that was put in.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, assert_type

from onceward import (
    NOT_FOUND,
    AsyncGate,
    Breaker,
    Budget,
    Found,
    Gate,
    InDoubt,
    Operation,
    Outcome,
    Retry,
    deadline,
    derive,
    mint,
    needs_key,
    stop_of,
)
from onceward.gate import Event, RecordView
from onceward.keys import canonical
from onceward.retry import Attempt, Stop, breaker
from onceward.runtime.environment import Environment
from onceward.stores import (
    AsyncStore,
    Capabilities,
    PurgeResult,
    PutResult,
    Record,
    Selection,
    Store,
    StoreKind,
    Write,
    capabilities_of,
    open_async_store,
    open_store,
)
from onceward.stores.memory import AsyncMemoryStore, MemoryStore
from onceward.testing.store_suite import Candidate


def a_blocking_gate() -> None:
    """A declared function's value has its type; what `run` gives back is whatever was stored."""
    gate = Gate("sqlite:///agent.db", scope="live:acme", lease=30, retain=timedelta(hours=1))

    assert_type(gate.run("k", lambda: 1), Any)
    assert_type(gate.call("k", lambda operation: "x", request={"a": 1}, guarantee="keyed"), Outcome[Any])
    assert_type(gate.call("k", lambda: 1).first_at, datetime)

    @gate.once(key="charge:{order_id}", guarantee="keyed", keyed_for=3600)
    def charge(operation: Operation, order_id: str, amount: Decimal) -> dict[str, str]:
        return {"id": operation.downstream_key("stripe")}

    assert_type(charge("o-17", Decimal("12.50")), dict[str, str])

    connection = sqlite3.connect("agent.db")
    assert_type(gate.atomic(connection, "expense:9", lambda operation: 7, request=9), Any)
    with gate.atomic(connection, "expense:9") as operation:
        if not operation.replayed:
            operation.settle({"status": "created"})

    assert_type(gate.plan("migrate-42").step("seed", lambda: 3), Any)
    assert_type(gate.sequence("ledger").run(1, lambda: 1.5), Any)
    assert_type(gate.window("search", 300).run({"q": "x"}, lambda: [1]), Any)
    assert_type(gate.records.get("k"), RecordView | None)
    assert_type(gate.reconcile("k", Found(1)), RecordView)
    gate.reconcile("k", NOT_FOUND)
    gate.listen(a_listener)


async def an_awaiting_gate() -> None:
    """The same names, to be awaited."""
    gate = AsyncGate("memory://", scope="test:acme")

    async def work() -> int:
        return 1

    assert_type(await gate.run("k", work), Any)
    assert_type(await gate.call("k", work, in_flight="accept"), Outcome[Any])

    @gate.once(key="charge:{order_id}")
    async def charge(order_id: str) -> Decimal:
        return Decimal(1)

    assert_type(await charge("o-1"), Decimal)
    assert_type(await gate.plan("p").step("s", work), Any)
    assert_type(await gate.sequence("s").run(1, work), Any)
    assert_type(await gate.window("w").run("q", work), Any)
    assert_type(await gate.records.get("k"), RecordView | None)


def a_listener(event: Event) -> None:
    """A listener is a plain callable."""
    print(event.type, event.digest)


def errors_carry_advice(error: InDoubt) -> tuple[str, str, float | None]:
    """What people, programs and agents need is typed, too."""
    return error.code, error.retry.value, error.retry_after_seconds


def keys() -> None:
    """Keys are text, canonical forms are bytes."""
    assert_type(derive(worker="w", run="r", turn=1, tool="charge", input={"a": 1}), str)
    assert_type(mint(), str)
    assert_type(canonical({"a": 1}), bytes)


def stores() -> None:
    """Stores are protocols: anything with these methods is one."""
    store: Store = open_store("memory://")
    awaiting: AsyncStore = open_async_store("memory://")
    Gate(store, scope="test:acme")
    AsyncGate(awaiting, scope="test:acme")
    assert_type(capabilities_of(store), Capabilities)
    assert_type(capabilities_of(store).awaits, bool | None)
    StoreKind(open=MemoryStore.from_url, open_async=AsyncMemoryStore.from_url, local=True, processes=False, tables=str)


class SilentStore:
    """A store of somebody's own, with the eight methods and nothing else."""

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Put."""
        raise NotImplementedError

    def put_back(self, write: Write, marks: Sequence[bytes]) -> PutResult:
        """Put back."""
        raise NotImplementedError

    def erase(self, ids: Sequence[bytes]) -> int:
        """Erase."""
        raise NotImplementedError

    def load(self, id: bytes) -> Record | None:
        """Load."""
        raise NotImplementedError

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Extend."""
        raise NotImplementedError

    def scan(self, after: bytes, limit: int, selection: Selection) -> list[Record]:
        """Scan."""
        raise NotImplementedError

    def purge(self, limit: int) -> PurgeResult:
        """Purge."""
        raise NotImplementedError

    def close(self) -> None:
        """Close."""


def open_silently(url: str, *, environment: Environment) -> SilentStore:
    """What a kind names."""
    return SilentStore()


def stores_of_other_packages() -> None:
    """A store needs no base class; what it can do, and how it is opened and judged, is typed."""
    Gate(SilentStore(), scope="test:acme")
    kind = StoreKind(open=open_silently)
    Candidate(kind=kind, url="acme://{fresh}", no_line="there is no server")
    Capabilities(awaits=True, relaxes=True, tables="sqlite:///agent.db")


def a_tool_that_needs_a_key() -> None:
    """Arguments and result keep their types, in both colours."""

    @needs_key
    def wire(order_id: str, *, cents: int) -> Decimal:
        return Decimal(cents)

    @needs_key
    async def wire_later(order_id: str) -> Decimal:
        return Decimal(order_id)

    assert_type(wire("o-17", cents=1250), Decimal)
    wire(17, cents=1250)  # type: ignore[arg-type]

    async def worker() -> None:
        assert_type(await wire_later("o-17"), Decimal)


def a_policy() -> None:
    """Calls and decorated functions keep their types."""
    gate = Gate("sqlite:///agent.db", scope="live:acme")
    policy = Retry(attempts=3, elapsed=timedelta(minutes=1), budget=Budget.shared(gate, "p"), breaker=breaker("p"))

    def fetch(url: str, *, attempt: Attempt | None = None) -> bytes:
        return url.encode()

    assert_type(policy.call(fetch, "x"), bytes)
    assert_type(policy.bind(key="k").call(fetch, "x"), bytes)
    assert_type(policy(fetch)("x"), bytes)
    assert_type(Breaker("q").call(fetch, "x"), bytes)
    assert_type(stop_of(ValueError()), Stop | None)
    with deadline(5):
        for attempt in policy.attempts():
            with attempt:
                assert_type(attempt.key, str | None)


async def an_awaiting_policy() -> None:
    """The same, awaited."""

    async def fetch(url: str) -> bytes:
        return url.encode()

    assert_type(await Retry().acall(fetch, "x"), bytes)
    assert_type(await Retry()(fetch)("x"), bytes)
    assert_type(await Breaker("q").acall(fetch, "x"), bytes)
