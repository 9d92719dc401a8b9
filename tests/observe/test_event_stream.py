"""One stream tells of everything in a process, and costs nothing while nobody listens."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncGate, Gate
from onceward._core import events, finish_flow
from onceward.errors import BudgetExhausted
from onceward.gate import Event, EventType, call_factory
from onceward.messaging.inbox import Inbox, Source, handler
from onceward.messaging.outbox import Delivered, DeliveryFailed
from onceward.messaging.outbox.relay import Relay
from onceward.messaging.webhooks import PacSpace, Secret
from onceward.retry import Breaker, Budget, Retry
from onceward.runtime.event_stream import EVENT_STREAM, ProcessEventStream
from onceward.stores import open_store
from onceward.testing.clock import StillEnvironment


def words(told: list[Event]) -> list[tuple[str, str, str]]:
    return [(one.type.value, one.operation, one.detail) for one in told]


def use_everything(folder: Path, still: StillEnvironment) -> None:
    """A fresh run, replays, a refusal, an atomic run, a purge, retries, a breaker and a dead letter."""
    with Gate(f"sqlite:///{folder}/gate.db", scope="acme", environment=still) as gate:
        for _ in range(4):  # Replayed by a claim that finds it, and then by a quick look.
            gate.run("k:1", lambda: 1)
        mine = sqlite3.connect(folder / "gate.db")
        gate.atomic(mine, "a:1", lambda: 2)
        mine.commit()
        mine.close()
        gate.purge()
        letters = gate.dead_letters()
        policy = Retry(attempts=2, safe=True, name="pay", dead=letters, environment=still)
        with pytest.raises(ConnectionError):
            policy.call(refused)
    Breaker("bank", environment=still).trip()
    assert spent(still).withdraw() is None


def refused() -> None:
    raise ConnectionError


def spent(still: StillEnvironment) -> Budget:
    """A budget of which nothing is left."""
    budget = Budget(burst=1, environment=still)
    while budget.tokens >= 1:
        budget.withdraw()
    return budget


class TestTheStream:
    """Everything that happens in a process, for whoever listens to all of it."""

    @pytest.mark.fault("the-process-is-not-told")
    def test_a_gate_that_nobody_was_given_to_is_heard(self, heard: Callable[[Any], Any]) -> None:
        """
        "every gate of the process, even of those that are made later, or deep inside a library"
        """
        told: list[Event] = []
        heard(told.append)

        with Gate("memory://", scope="acme") as gate:
            gate.call("k", lambda: 1, name="charge")
            gate.call("k", lambda: 1, name="charge")

        assert words(told) == [("claimed", "charge", ""), ("settled", "charge", ""), ("replayed", "charge", "")]

    def test_an_awaiting_gate_is_heard(self, heard: Callable[[Any], Any]) -> None:
        """
        The same, awaited.
        """
        told: list[Event] = []
        heard(told.append)

        async def use() -> None:
            async with AsyncGate("memory://", scope="acme") as gate:
                await gate.call("k", lambda: 1, name="charge")
                await gate.call("k", lambda: 1, name="charge")

        asyncio.run(use())

        assert [one.type.value for one in told] == ["claimed", "settled", "replayed"]

    @pytest.mark.fault("a-listener-of-both-is-told-twice")
    def test_who_listens_to_the_gate_and_to_the_process_is_told_once(self, heard: Callable[[Any], Any]) -> None:
        """
        "None is told twice."
        """
        told: list[Event] = []
        listener = heard(told.append)

        with Gate("memory://", scope="acme", listeners=[listener]) as gate:
            gate.run("k", lambda: 1)

        assert [one.type.value for one in told] == ["claimed", "settled"]

    def test_who_stops_is_told_nothing_more(self) -> None:
        """
        Each stops its own listening only, even if listeners are equal.
        """
        stream, told = ProcessEventStream(), []
        stop = stream.listen(told.append)
        stream.note(EventType.RETRIED, "pay")
        stop()
        stop()
        stream.note(EventType.RETRIED, "pay")

        assert len(told) == 1
        assert stream.listeners == ()

    @pytest.mark.fault("a-run-that-could-not-be-recorded-is-not-told")
    def test_a_run_whose_result_was_never_stored_is_told(
        self, heard: Callable[[Any], Any], still: StillEnvironment
    ) -> None:
        """
        The last thing that is heard of it: otherwise it would be in flight for ever.
        """
        from onceward.errors import StoreUnavailable, Unrecorded
        from onceward.stores.memory import MemoryStore

        class Away(MemoryStore):
            def put(self, write: Any, expect: Any) -> Any:
                if write.state == "settled":
                    still.advance(40)
                    raise StoreUnavailable("away")
                return super().put(write, expect)

        told: list[Event] = []
        heard(told.append)

        with Gate(Away(environment=still), scope="acme", environment=still) as gate, pytest.raises(Unrecorded):
            gate.run("k", lambda: 1)

        assert told[-1].type is EventType.UNRECORDED


class TestEveryPart:
    """Policies, breakers, budgets, dead letters, relay: each tells of itself."""

    def test_an_atomic_run_says_how_long_it_took(
        self, heard: Callable[[Any], Any], still: StillEnvironment, tmp_path: Path
    ) -> None:
        """
        Told after the commit, when it is over: with the seconds that it took.
        """
        told: list[Event] = []
        heard(told.append)
        mine = sqlite3.connect(tmp_path / "gate.db")

        with Gate(f"sqlite:///{tmp_path}/gate.db", scope="acme", environment=still) as gate:
            gate.atomic(mine, "a:1", lambda: still.advance(3), name="book")
            before = [one.type.value for one in told]
            mine.commit()
        mine.close()

        assert before in ([], ["claimed", "settled"])  # Whose transaction it was decides when it is over.
        assert [(one.type.value, one.amount) for one in told] == [("claimed", 3.0), ("settled", 3.0)]

    @pytest.mark.fault("a-retry-without-a-hook-is-not-told")
    def test_retries_and_giving_up_are_told(self, heard: Callable[[Any], Any], still: StillEnvironment) -> None:
        """
        Each further attempt, and the reason of the end, without any hook on the policy.
        """
        told: list[Event] = []
        heard(told.append)
        policy = Retry(attempts=3, safe=True, name="pay", environment=still)

        with pytest.raises(ConnectionError):
            policy.call(refused)

        assert words(told)[-1] == ("gave_up", "pay", "attempts")
        assert [one for one in words(told) if one[0] == "retried"] == [("retried", "pay", told[0].detail)] * 2

    def test_breakers_budgets_and_dead_letters_are_told(
        self, heard: Callable[[Any], Any], still: StillEnvironment
    ) -> None:
        """
        The state of a breaker, a retry that was not paid for, a call that was kept.
        """
        told: list[Event] = []
        breaker, budget = Breaker("bank", environment=still), spent(still)
        heard(told.append)
        breaker.trip()
        breaker.reset()
        paid = budget.withdraw()
        with Gate("memory://", scope="acme") as gate:
            policy = Retry(attempts=1, safe=True, name="pay", dead=gate.dead_letters(), environment=still)
            with pytest.raises((ConnectionError, BudgetExhausted)):
                policy.call(refused)

        assert paid is None
        assert words(told)[:3] == [
            ("breaker_changed", "bank", "open"),
            ("breaker_changed", "bank", "closed"),
            ("budget_refused", "budget", ""),
        ]
        assert ("dead_lettered", "pay", "attempts") in words(told)

    def test_the_relay_tells_how_each_try_ended(
        self, heard: Callable[[Any], Any], still: StillEnvironment, tmp_path: Path
    ) -> None:
        """
        Delivered, failed, dead: by endpoint.
        """
        url = f"sqlite:///{tmp_path}/shop.db"
        told: list[Event] = []
        heard(told.append)
        ends = {"good": lambda message: Delivered("thanks"), "bad": lambda message: DeliveryFailed("no")}
        connection = sqlite3.connect(tmp_path / "shop.db")
        with Gate(open_store(url, environment=still), scope="acme", environment=still) as gate:
            for endpoint in ends:
                gate.outbox(connection).add(endpoint, {}, topic="order.paid")
            connection.commit()
        connection.close()
        with closing(Relay(url, ends, schedule=[1.0], environment=still)) as relay:
            relay.step()
            still.advance(60)
            relay.step()

        assert sorted(words(told)) == [
            ("relayed", "bad", "dead"),
            ("relayed", "bad", "failed"),
            ("relayed", "good", "delivered"),
        ]

    def test_the_inbox_tells_what_came_and_how_it_was_processed(
        self, heard: Callable[[Any], Any], still: StillEnvironment, tmp_path: Path
    ) -> None:
        """
        New and duplicate; done, and retried. The gate that runs the handler tells beside it.
        """
        told: list[Event] = []
        heard(told.append)
        errors = [ValueError("no"), None]

        @handler(guarantee="repeatable")
        def handle(event: Any) -> None:
            error = errors.pop(0)
            if error is not None:
                raise error

        secret = Secret.plain("a" * 32)
        with Inbox(f"sqlite:///{tmp_path}/agent.db", scope="acme", environment=still) as inbox:
            inbox.add(Source("pac", PacSpace(), [secret], handle))
            headers = PacSpace().sign("e-1", b"{}", (secret,), now=still.wall_us() / 1e6)
            for _ in range(2):
                inbox.receive("pac", headers, b"{}")
            inbox.drain()
            still.advance(3_600)
            inbox.drain()

        assert [one for one in words(told) if one[1] == "pac"] == [
            ("received", "pac", "new"),
            ("received", "pac", "duplicate"),
            ("processed", "pac", "retried"),
            ("processed", "pac", "done"),
        ]
        assert [one[0] for one in words(told) if one[1] == "hooks:pac"] == ["claimed", "released", "claimed", "settled"]


class TestWhatItCosts:
    """Nothing is paid when nobody listens."""

    @pytest.mark.fault("an-event-is-made-before-anybody-is-looked-for")
    @pytest.mark.fault("events-are-made-for-nobody")
    def test_no_event_is_made_for_nobody(
        self, tmp_path: Path, still: StillEnvironment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        "While nobody listens, no event is made": not one, wherever they are made. With a listener there are many.
        """
        made: list[str] = []
        create = Event.__new__

        def counted(cls: type[Event], *given: Any, **named: Any) -> Event:
            made.append(str(given[0]))
            return create(cls, *given, **named)

        def counted_tuple(cls: type[Any], fields: tuple[Any, ...]) -> Any:
            if cls is Event:
                made.append(str(fields[0]))
            return tuple.__new__(cls, fields)

        monkeypatch.setattr(Event, "__new__", counted)
        for module in (finish_flow, call_factory):  # Events of operations are made from all of their fields at once.
            monkeypatch.setattr(module, "new_tuple", counted_tuple)
        assert events.Event is finish_flow.Event
        (tmp_path / "alone").mkdir()
        (tmp_path / "heard").mkdir()

        use_everything(tmp_path / "alone", still)
        alone = list(made)
        stop = EVENT_STREAM.listen(lambda event: None)
        use_everything(tmp_path / "heard", still)
        stop()

        assert alone == []
        assert {"claimed", "settled", "replayed", "purged", "retried", "gave_up", "dead_lettered"} <= set(made)

    def test_nothing_of_the_stream_is_called_for_nobody(self) -> None:
        """
        A fresh run and a replay look at the listeners and call nothing of it.
        """
        called: list[str] = []

        def profile(frame: Any, event: str, argument: Any) -> None:
            if event == "call" and frame.f_code.co_filename.endswith(("runtime/event_stream.py", "_core/events.py")):
                called.append(frame.f_code.co_name)

        with Gate("memory://", scope="acme") as gate:
            gate.run("warm", lambda: 1)
            before = sys.getprofile()
            sys.setprofile(profile)
            try:
                gate.run("k", lambda: 1)
                gate.run("k", lambda: 1)
            finally:
                sys.setprofile(before)

        assert called == []
