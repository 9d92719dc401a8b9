"""Events come as they like; writes go out on the cadence that was declared."""

from __future__ import annotations

import asyncio
import math
import threading
from datetime import timedelta
from typing import Any

import pytest
from emitter_support import Post, event

from onceward import AsyncEmitter, AsyncGate, ConfigurationError, Emitter, Gate, Retry
from onceward.errors import SpoolFull
from onceward.messaging.emitter import Cadence


class TestWhen:
    """By size, by time, on demand, at the end; and never per event."""

    @pytest.mark.requirement("C04")
    def test_a_thousand_events_are_ten_sends(self, quick: Post) -> None:
        """
        1,000 events and a size of 100: ten sends, full ones, each event once and in order.
        """
        emitter = quick.emitter(cadence=Cadence(size=100, seconds=5))
        for number in range(1_000):
            quick.do(emitter.emit(event(number)))
            if number % 50 == 49:
                quick.do(emitter.tick())

        assert [len(batch) for batch in quick.batches] == [100] * 10
        assert [f"usage:c-17:{number}" for number in range(1_000)] == quick.arrived

    @pytest.mark.requirement("C04")
    def test_nothing_is_sent_before_it_is_due(self, post: Post) -> None:
        """
        Two of three, and less than five seconds: ticking sends nothing. The third, and one batch goes.
        """
        emitter = post.emitter()
        post.emit(emitter, 1, 2)
        post.env.advance(4.9)
        early = post.do(emitter.tick())
        post.emit(emitter, 3)
        due = post.do(emitter.tick())

        assert (early.batches, early.waiting) == (0, 2)
        assert (due.batches, due.sent, due.waiting) == (1, 3, 0)
        assert post.arrived == ["usage:c-17:1", "usage:c-17:2", "usage:c-17:3"]

    def test_how_long_a_store_took_does_not_change_the_order(self, quick: Post) -> None:
        """
        A server says how old a record is when it answers. Slow for the second, it looks older than the first.
        """
        emitter, put = quick.emitter(), quick.gate.store.put
        ages = iter([0, 900])

        def older(standing: Any) -> Any:
            return standing._replace(record=standing.record._replace(age=next(ages, 0)))

        async def slow(write: Any, expect: Any) -> Any:
            return older(await put(write, expect))

        quick.gate.store.put = slow if quick.awaits else lambda write, expect: older(put(write, expect))
        quick.emit(emitter, 1, 2)
        quick.do(emitter.flush())

        assert quick.arrived == ["usage:c-17:1", "usage:c-17:2"]

    @pytest.mark.requirement("C04")
    def test_the_oldest_does_not_wait_longer_than_was_said(self, quick: Post) -> None:
        """
        Five seconds after the first of two, both go, although the batch is not full.
        """
        emitter = quick.emitter()
        quick.emit(emitter, 1)
        quick.env.advance(3)
        quick.emit(emitter, 2)
        quick.env.advance(2)
        quick.do(emitter.tick())

        assert [len(batch) for batch in quick.batches] == [2]

    def test_a_flush_sends_everything_in_batches(self, post: Post) -> None:
        """
        Seven items and a size of three are three sends, none larger than three.
        """
        emitter = post.emitter()
        post.emit(emitter, *range(7))
        done = post.do(emitter.flush())

        assert done == (3, 7, 0, 0, None)
        assert [len(batch) for batch in post.batches] == [3, 3, 1]

    def test_closing_sends_what_waits(self, quick: Post) -> None:
        """
        And afterwards nothing is taken any more; closing twice is fine.
        """
        emitter = quick.emitter()
        quick.emit(emitter, 1)
        done = quick.do(emitter.close())

        assert (done.sent, len(quick.batches)) == (1, 1)
        assert quick.do(emitter.close()).sent == 0
        with pytest.raises(ConfigurationError, match="closed"):
            quick.emit(emitter, 2)
        assert len(quick.batches) == 1

    def test_a_thread_sends_by_size_and_by_time(self) -> None:
        """
        Nobody ticks: a full batch goes at once, and what is left goes when it is old enough. One thread for all.
        """
        sent: list[int] = []
        full, rest = threading.Event(), threading.Event()

        def send(items: list[Any]) -> None:
            sent.append(len(items))
            (full if len(items) == 3 else rest).set()

        before = {*threading.enumerate()}  # Threads of others may end meanwhile.
        with (
            Gate("memory://", scope="test:acme") as gate,
            Emitter(
                gate,
                "usage",
                send,
                reference="usage:{number}",
                retry=Retry(),
                cadence=Cadence(size=3, seconds=0.05),
            ) as emitter,
        ):
            for number in range(3):
                emitter.emit({"number": number})
            assert full.wait(10)
            emitter.emit({"number": 3})
            assert rest.wait(10)
            threads = {*threading.enumerate()} - before

        assert (len(threads), sum(sent)) == (1, 4)
        assert {*threading.enumerate()} <= before

    async def _emitted_by_a_task(self) -> list[int]:
        sent: list[int] = []
        full, rest = asyncio.Event(), asyncio.Event()

        async def send(items: list[Any]) -> None:
            sent.append(len(items))
            (full if len(items) == 3 else rest).set()

        gate = AsyncGate("memory://", scope="test:acme")
        cadence = Cadence(size=3, seconds=0.05)
        async with AsyncEmitter(
            gate, "usage", send, reference="usage:{number}", retry=Retry(), cadence=cadence
        ) as emitter:
            for number in range(3):
                await emitter.emit({"number": number})
            await asyncio.wait_for(full.wait(), 10)
            await emitter.emit({"number": 3})
            await asyncio.wait_for(rest.wait(), 10)
        await gate.close()
        assert len(asyncio.all_tasks()) == 1
        return sent

    def test_a_task_sends_by_size_and_by_time(self) -> None:
        """
        Same for the awaiting one: one task, and it is gone when the emitter is closed.
        """
        assert asyncio.run(self._emitted_by_a_task()) == [3, 1]


class TestBackPressure:
    """The spool has an end."""

    def test_a_full_spool_refuses_and_takes_nothing(self, post: Post) -> None:
        """
        The error says what to do; when something has been sent there is room again.
        """
        emitter = post.emitter(spool_max=3)
        post.emit(emitter, 1, 2, 3)
        with pytest.raises(SpoolFull, match="spool_max is 3") as refused:
            post.emit(emitter, 4)
        post.do(emitter.flush())
        again = post.emit(emitter, 4)

        assert (refused.value.retry, refused.value.retry_after_seconds) == ("same-key", 5.0)
        assert not again[0].duplicate
        assert len(post.arrived) == 3


class TestDeclared:
    """Reference, retry ceilings and cadence are declared; what could not work is refused then, with advice."""

    @pytest.mark.requirement("C05")
    @pytest.mark.parametrize("size", [0, 1, -1, 1_001, math.inf, None, True, 2.5, "100"])
    def test_a_cadence_has_a_size(self, size: Any) -> None:
        """
        Not zero, not one (a send per event), not without a limit.
        """
        with pytest.raises(ConfigurationError, match="100 is a good start"):
            Cadence(size=size)

    @pytest.mark.requirement("C05")
    @pytest.mark.parametrize("seconds", [0, -1, 3_601, math.inf, math.nan, None, True, "5"])
    def test_a_cadence_has_an_end(self, seconds: Any) -> None:
        """
        More than nothing, at most an hour.
        """
        with pytest.raises(ConfigurationError, match="seconds"):
            Cadence(seconds=seconds)

    @pytest.mark.requirement("C05")
    def test_a_cadence_that_can_work_is_taken(self) -> None:
        """
        Seconds may be a timedelta; the defaults are a hundred and five seconds.
        """
        assert (Cadence().size, Cadence().seconds) == (100, 5.0)
        assert Cadence(seconds=timedelta(minutes=1.5)).seconds == 90.0  # type: ignore[arg-type]

    @pytest.mark.requirement("C05")
    @pytest.mark.parametrize(
        ("options", "advice"),
        [
            ({"reference": "usage"}, "has no field"),
            ({"reference": "usage:{timestamp}"}, "cannot be part of a key"),
            ({"reference": lambda uuid: uuid}, "cannot be part of a key"),
            ({"reference": 7}, "a template or a function"),
            ({"retry": None}, "how many attempts, and how long"),
            ({"retry": 3}, "how many attempts, and how long"),
            ({"retry": Retry(key="{customer}")}, "leave key out"),
            ({"cadence": None}, "Cadence"),
            ({"cadence": 5}, "Cadence"),
            ({"spool_max": 2}, "at least the cadence's size"),
            ({"spool_max": 10**9}, "at most"),
            ({"spool_max": None}, "spool_max"),
            ({"name": "two words"}, "visible ASCII"),
        ],
    )
    def test_what_could_not_work_is_refused(self, quick: Post, options: dict[str, Any], advice: str) -> None:
        """
        When it is declared, and not when the first batch fails.
        """
        with pytest.raises(ConfigurationError, match=advice):
            quick.emitter(**options)

    @pytest.mark.requirement("C05")
    @pytest.mark.parametrize("missing", ["reference", "retry", "cadence"])
    @pytest.mark.parametrize("kind", [Emitter, AsyncEmitter])
    def test_none_of_the_three_has_a_default(self, kind: Any, missing: str) -> None:
        """
        Whoever writes an emitter has to say all three.
        """
        said = {"reference": "{customer}", "retry": Retry(), "cadence": Cadence()}
        del said[missing]

        with pytest.raises(TypeError, match=missing):
            kind(None, "usage", print, **said)

    @pytest.mark.requirement("C05")
    @pytest.mark.parametrize(
        ("ceilings", "attempts", "seconds"),
        [({"attempts": 2}, 2, 0.1), ({"attempts": 5, "elapsed": 1, "base": 3, "jitter": "equal"}, 1, 1.0)],
    )
    def test_both_ceilings_hold(self, quick: Post, ceilings: dict[str, Any], attempts: int, seconds: float) -> None:
        """
        A send that always fails ends after so many attempts, or when the next wait would go past the time.
        """
        emitter = quick.emitter(retry=quick.policy(**ceilings))
        quick.answers = [ConnectionRefusedError("down")] * 9
        quick.emit(emitter, 1, 2, 3)
        began = quick.env.monotonic()
        done = quick.do(emitter.tick())

        assert (attempts, 3) == (len(quick.batches), done.given_up)
        assert quick.env.monotonic() - began <= seconds

    def test_colours_do_not_mix(self, quick: Post) -> None:
        """
        A blocking send under an awaiting emitter, and the other way round, is refused.
        """
        said: dict[str, Any] = {"reference": "{customer}", "retry": Retry(), "cadence": Cadence(), "timer": False}

        async def awaited(items: list[Any]) -> None: ...

        def blocks(items: list[Any]) -> None: ...

        kind, wrong = (AsyncEmitter, blocks) if quick.awaits else (Emitter, awaited)
        with pytest.raises(ConfigurationError):
            kind(quick.gate, "usage", wrong, **said)
        other: Any = Emitter if quick.awaits else AsyncEmitter
        with pytest.raises(ConfigurationError, match="needs a"):
            other(quick.gate, "usage", blocks if quick.awaits else awaited, **said)
