"""Every way of running an operation stores sealed values: transactions of the caller's, plans, sequences, letters."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from seal_support import Bench

from onceward import Gate, Retry, StoreUnavailable
from onceward._core.record_types import Selection
from onceward.errors import SealBroken, SealKeyMissing, Unrecorded
from onceward.gate import SealContext, Sealed, SealedData
from onceward.messaging.emitter import Cadence, Emitter

SECRET = "4111-1111-1111-1111"


def _ran() -> Any:
    pytest.fail("it ran again")


def _connection(bench: Bench) -> Any:
    if bench.kind == "sqlite":
        return sqlite3.connect(bench.folder / "seal.db", timeout=60)
    import psycopg

    return psycopg.connect(bench.url)


def _stored(bench: Bench, gate: Any) -> bytes:
    """Everything that the store behind a gate holds of its scope, as one text."""

    async def scanned() -> list[Any]:
        return await gate.store._store.scan(b"", 100, Selection(scope=gate.scope))

    page = (
        bench.do(scanned()) if bench.colour == "awaiting" else gate.store._store.scan(b"", 100, Selection(gate.scope))
    )
    assert page
    return b"".join((one.result or b"") + (one.error or b"") for one in page)


class TestAtomic:
    """In the caller's own transaction."""

    @pytest.mark.parametrize("claim", ["first", "last"])
    @pytest.mark.fault("a-seal-of-one-write-is-bound-to-no-claim")
    def test_the_record_in_the_callers_transaction_is_sealed(self, bench: Bench, claim: Any) -> None:
        """
        Claimed first, its fence is known when it is sealed; claimed last, its token stands for it. Neither moves.
        """
        if bench.kind == "redis":
            pytest.skip("Redis joins no transaction")
        seal = Sealed(Sealed.new_key())
        gate = bench.gate(seal)

        async def pay_async(key: str, work: Any) -> Any:
            import psycopg

            async with await psycopg.AsyncConnection.connect(bench.url) as connection:
                return await gate.atomic(connection, key, work, claim=claim)

        def pay(key: str, result: Any = None) -> Any:
            work = _ran if result is None else lambda: result
            if (bench.kind, bench.colour) == ("postgres", "awaiting"):
                return bench.do(pay_async(key, work))
            with closing(_connection(bench)) as connection:
                return bench.do(gate.atomic(connection, key, work, claim=claim))

        assert pay("alice", {"card": SECRET}) == pay("alice") == {"card": SECRET}
        assert bench.do(gate.run("alice", _ran)) == {"card": SECRET}
        assert SECRET.encode() not in bench.row("alice")["result"]
        earlier = bench.row("alice")
        bench.do(gate.records.erase())
        pay("alice", {"card": "another"})
        bench.change("alice", result=earlier["result"])
        with pytest.raises(SealBroken):
            pay("alice")
        with pytest.raises(SealBroken):
            bench.do(gate.run("alice", _ran))

    def test_settled_inside_the_functions_own_transaction(self, bench: Bench) -> None:
        """
        By a function that blocks, whatever the colour of its gate.
        """
        if bench.kind == "redis":
            pytest.skip("Redis joins no transaction")
        gate = bench.gate(Sealed(Sealed.new_key()))
        options: Any = {"guarantee": "atomic", "settle": "inside"}

        def pay(operation: Any) -> None:
            with closing(_connection(bench)) as connection:
                connection.execute("BEGIN")
                operation.settle_inside(connection, {"card": SECRET})
                connection.commit()

        assert bench.do(gate.run("alice", pay, **options)) == {"card": SECRET}
        assert SECRET.encode() not in bench.row("alice")["result"]
        assert bench.do(gate.run("alice", _ran, **options)) == {"card": SECRET}


class TestShapes:
    """Built on a gate."""

    def test_steps_numbers_and_letters(self, bench: Bench) -> None:
        """
        A plan's step, a sequence's entry and a dead letter with its arguments are records, too.
        """
        key = Sealed.new_key()
        gate = bench.gate(Sealed(key))
        dead = gate.dead_letters(payload="plain")

        def charge(card: str) -> None:
            raise ConnectionRefusedError(card)

        async def charge_async(card: str) -> None:
            raise ConnectionRefusedError(card)

        awaits = bench.colour == "awaiting"
        policy = Retry(dead=dead, environment=bench.env, name="charge").bind(key="charge:1")
        with pytest.raises(ConnectionRefusedError):
            bench.do(policy.acall(charge_async, SECRET) if awaits else policy.call(charge, SECRET))
        bench.do(gate.plan("order-1").step("pay", lambda: {"card": SECRET}))
        bench.do(gate.sequence("orders").run(1, lambda: {"card": SECRET}))

        assert SECRET.encode() not in _stored(bench, gate)
        assert bench.do(gate.plan("order-1").step("pay", _ran)) == {"card": SECRET}
        assert bench.do(gate.sequence("orders").run(1, _ran)) == {"card": SECRET}
        (letter,) = bench.do(dead.list())
        assert dead.arguments(letter) == ((SECRET,), {})

    @pytest.mark.fault("an-unreadable-letter-is-written-over")
    def test_a_letter_without_its_key_is_left_alone(self, quick: Bench) -> None:
        """
        It is not listed, not discarded by mistake, and not written over: what it knows would be lost.
        """
        seal = Sealed(Sealed.new_key())
        quick.run(quick.gate(seal), "charge", 1)
        blind = quick.gate(Sealed(Sealed.new_key()))
        dead = quick.gate(seal).dead_letters(payload="plain")

        def charge(card: str) -> None:
            raise TimeoutError(card)

        async def charge_async(card: str) -> None:
            raise TimeoutError(card)

        awaits = quick.colour == "awaiting"
        for box in (dead, blind.dead_letters(payload="plain")):
            policy = Retry(dead=box, environment=quick.env, name="charge").bind(key="charge:1")
            with pytest.raises(TimeoutError):
                quick.do(policy.acall(charge_async, SECRET) if awaits else policy.call(charge, SECRET))

        letters = quick.do(dead.list())
        assert [(one.count, dead.arguments(one)) for one in letters] == [(1, ((SECRET,), {}))]
        assert quick.do(blind.dead_letters().list()) == ()
        with pytest.raises(SealKeyMissing):
            quick.do(blind.dead_letters().get("charge:1"))

    def test_items_of_an_emitter_wait_sealed(self, quick: Bench) -> None:
        """
        And are sent as they were, also by the next process.
        """
        if quick.colour == "awaiting":
            pytest.skip("one colour of emitter is enough: they share the spool")
        seal, sent = Sealed(Sealed.new_key()), []
        gate = Gate(quick.url, scope=quick.scope, seal=seal)
        with Emitter(
            gate,
            "usage",
            sent.extend,
            reference=lambda id: str(id),
            retry=Retry(dead=gate.dead_letters(payload="plain")),
            cadence=Cadence(size=100, seconds=3_600),
            timer=False,
        ) as emitter:
            emitter.emit({"id": "1", "card": SECRET})
            assert SECRET.encode() not in _stored(quick, gate)
            emitter.flush()

        assert [item.data for item in sent] == [{"id": "1", "card": SECRET}]
        gate.close()


class Away:
    """A key service that is away from time to time."""

    def __init__(self, seal: Sealed) -> None:
        self.inner, self.away = seal, 0

    def seal(self, data: bytes, context: SealContext) -> SealedData:
        if self.away:
            self.away -= 1
            raise OSError("away")
        return self.inner.seal(data, context)

    def unseal(self, sealed: SealedData, context: SealContext) -> bytes:
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away")
        return self.inner.unseal(sealed, context)


class TestSealAway:
    """A seal of your own that fails is like a store that is away."""

    def test_what_ran_is_stored_when_the_seal_is_back(self, quick: Bench) -> None:
        """
        It is tried again within the lease, and nothing runs twice; reading says what is wrong, and runs nothing.
        """
        seal = Away(Sealed(Sealed.new_key()))
        gate = quick.gate(seal)
        seal.away = 2
        assert quick.run(gate, "charge", {"paid": True}) == {"paid": True}
        assert seal.away == 0
        seal.away = 1
        with pytest.raises(StoreUnavailable):
            quick.do(gate.run("charge", _ran))
        assert quick.do(gate.run("charge", _ran)) == {"paid": True}

    @pytest.mark.fault("a-seal-that-is-away-leaves-plain-text")
    def test_nothing_is_ever_stored_in_plain_text_instead(self, quick: Bench) -> None:
        """
        Away for longer than the lease: the caller has the value, and the record is in doubt.
        """
        seal = Away(Sealed(Sealed.new_key()))
        gate = quick.gate(seal)
        seal.away = 1_000_000
        with pytest.raises(Unrecorded) as unrecorded:
            quick.run(gate, "charge", {"paid": SECRET})

        assert unrecorded.value.value == {"paid": SECRET}
        assert (quick.row("charge")["result"], quick.row("charge")["error"]) == (None, None)
