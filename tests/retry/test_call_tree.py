"""What goes down a call tree: one owner, one deadline; and loops, threads and tasks that share a policy."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from retry_support import REFUSED, UNKNOWN, Script, Sleepless

from colours import Colour
from onceward import CircuitOpen, ConfigurationError, DeadlineExceeded, OutcomeUnknown, Retry, deadline, stop_of
from onceward.retry import Breaker, Budget, StopReason, deadline_header, is_replayable, parse_deadline, time_left


class TestOneOwner:
    """Three layers of three attempts are three calls, not twenty-seven."""

    @pytest.mark.requirement("D69")
    def test_three_layers_make_three_calls_and_say_what_it_would_have_been(self, still: Sleepless) -> None:
        """
        The outermost owns the retries; the stop says that it would have been twenty-seven.
        """
        told: list[Any] = []
        script, outer = Script(REFUSED), Retry(name="outer", environment=still)
        inner = Retry(name="inner", on_nested=told.append, environment=still)

        with pytest.raises(REFUSED) as raised:
            outer.call(lambda: inner.call(lambda: inner.call(script)))
        stop = stop_of(raised.value)
        assert stop is not None
        assert (script.calls, stop.amplification, stop.name) == (3, 27, "outer")
        assert (told[-1].owner, told[-1].amplification) == ("outer", 27)

    def test_the_negative_control_multiplies(self, still: Sleepless) -> None:
        """
        With a context of its own, each layer is its own owner: the same three layers make twenty-seven calls.
        """
        script = Script(REFUSED)

        def alone(fn: Any) -> Any:
            return contextvars.Context().run(Retry(environment=still).call, fn)

        with pytest.raises(REFUSED):
            alone(lambda: alone(lambda: alone(script)))
        assert script.calls == 27

    def test_the_inner_layer_leaves_the_decision_to_the_owner(self, still: Sleepless) -> None:
        """
        An unkeyed layer inside a keyed one does not turn its error into another: the owner has the key.
        """
        script = Script(UNKNOWN, "done")

        assert Retry(environment=still).bind(key="k").call(lambda: Retry(environment=still).call(script)) == "done"

    def test_it_reaches_tasks_and_threads(self, still: Sleepless) -> None:
        """
        A task, asyncio.to_thread and a thread with the copied context all know the owner.
        """
        script, inner = Script(REFUSED), Retry(environment=still)

        async def in_a_task() -> None:
            await asyncio.create_task(in_a_thread())

        async def in_a_thread() -> None:
            await asyncio.to_thread(inner.call, script)

        with pytest.raises(REFUSED):
            asyncio.run(Retry(environment=still).acall(in_a_task))
        assert script.calls == 3

        def by_hand() -> None:
            errors: list[BaseException] = []

            def work() -> None:
                try:
                    inner.call(script)
                except REFUSED as error:
                    errors.append(error)

            thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
            thread.start()
            thread.join()
            raise errors[0]

        with pytest.raises(REFUSED):
            Retry(environment=still).call(by_hand)
        assert script.calls == 6

    def test_a_task_that_outlives_the_call_is_on_its_own(self, still: Sleepless) -> None:
        """
        What was started under a policy and goes on after it has ended retries for itself again.
        """
        script = Script(REFUSED)

        async def main() -> None:
            ended = asyncio.Event()

            async def background() -> None:
                await ended.wait()
                with pytest.raises(REFUSED):
                    Retry(environment=still).call(script)

            async def start() -> asyncio.Task[None]:
                return asyncio.create_task(background())

            task = await Retry(environment=still).acall(start)
            ended.set()
            await task

        asyncio.run(main())
        assert script.calls == 3

    def test_recursion_through_a_policy_is_bounded(self, still: Sleepless) -> None:
        """
        A function that calls itself through its policy, ten deep: ten calls an attempt, not three to the tenth.
        """
        calls = []

        @Retry(environment=still)
        def down(depth: int) -> None:
            calls.append(depth)
            if depth == 0:
                raise REFUSED
            down(depth - 1)

        with pytest.raises(REFUSED):
            down(10)
        assert len(calls) == 33

    @pytest.mark.requirement("D68")
    def test_an_inner_breaker_ends_the_outer_retries(self, still: Sleepless) -> None:
        """
        It is open: the outer policy does not knock again.
        """
        breaker = Breaker("inner", environment=still)
        breaker.trip()
        script = Script("done")

        with pytest.raises(CircuitOpen):
            Retry(environment=still).call(lambda: breaker.call(script))
        assert (script.calls, still.slept) == (0, [])


class TestDeadlines:
    """An absolute time, seen by everything below."""

    def test_a_deadline_bounds_every_policy_inside(self, still: Sleepless) -> None:
        """
        Two seconds in all, whatever the policy would allow; the server's wait of three does not fit.
        """
        script = Script(Slow(3))

        with deadline(2, environment=still), pytest.raises(DeadlineExceeded) as raised:
            Retry(environment=still).call(script)
        stop = stop_of(raised.value)
        assert stop is not None and stop.retry_at is not None
        assert (script.calls, still.slept, stop.reason) == (1, [], StopReason.DEADLINE)

    def test_our_own_wait_does_not_go_past_it_either(self, still: Sleepless) -> None:
        """
        Without a server's wait: the reason is the deadline, and the error's cause is the last one.
        """

        def slow() -> None:
            still.advance(1.5)
            raise REFUSED

        with deadline(2, environment=still), pytest.raises(DeadlineExceeded) as raised:
            Retry(environment=still, base=5, jitter="equal").call(slow)
        assert isinstance(raised.value.__cause__, REFUSED)

    def test_an_inner_deadline_can_only_be_earlier(self, still: Sleepless) -> None:
        """
        Five inside two is two; two inside five is two; outside there is none.
        """
        with deadline(2, environment=still), deadline(5, environment=still):
            assert time_left(environment=still) == 2
        with deadline(5, environment=still):
            with deadline(2, environment=still):
                assert time_left(environment=still) == 2
            assert time_left(environment=still) == 5
        assert time_left() is None

    def test_the_policys_own_time_goes_down_too(self, still: Sleepless) -> None:
        """
        A layer inside knows how much of the outer layer's time is left.
        """
        seen = []
        Retry(elapsed=10, environment=still).call(lambda: seen.append(time_left(environment=still)))

        assert seen == [10]

    def test_a_deadline_inside_a_policy_keeps_its_owner(self, still: Sleepless) -> None:
        """
        A block in between does not make the inner layer an owner.
        """
        script = Script(REFUSED)

        def inner() -> Any:
            with deadline(30, environment=still):
                return Retry(environment=still).call(script)

        with pytest.raises(REFUSED):
            Retry(environment=still).call(inner)
        assert script.calls == 3

    def test_it_reaches_threads_and_tasks(self, still: Sleepless) -> None:
        """
        Like the owner.
        """

        async def main() -> float | None:
            with deadline(7, environment=still):
                return await asyncio.create_task(asyncio.to_thread(time_left, environment=still))

        assert asyncio.run(main()) == 7

    def test_it_leaves_the_process_as_milliseconds_left(self, still: Sleepless) -> None:
        """
        A header with what is left, because two hosts' clocks differ; and back.
        """
        assert deadline_header() == {}
        with deadline(1.5, environment=still):
            assert deadline_header(environment=still) == {"Onceward-Timeout-Ms": "1500"}
            still.advance(2)
            assert deadline_header(environment=still) == {"Onceward-Timeout-Ms": "0"}
        assert parse_deadline(" 1500 ") == 1.5
        assert parse_deadline(None) is None
        assert parse_deadline("999999999999") == 86_400

    @pytest.mark.parametrize("value", ["", "-1", "1.5", "1e3", "٣", "soon", "1" * 13, "0x10"])
    def test_a_header_that_is_no_deadline_is_refused(self, value: str) -> None:
        """
        A deadline half understood is none.
        """
        with pytest.raises(ConfigurationError, match="milliseconds"):
            parse_deadline(value)

    @pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), "5"])
    def test_a_deadline_that_is_none_is_refused(self, seconds: Any) -> None:
        """
        When it is made.
        """
        with pytest.raises(ConfigurationError):
            deadline(seconds)


class Slow(Exception):
    """A server that asks for a wait."""

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.status_code = 429
        self.headers = {"retry-after": str(seconds)}


class TestSharing:
    """One policy, many users."""

    def test_two_hundred_tasks_share_a_policy(self, still: Sleepless) -> None:
        """
        Each fails twice and succeeds at its third attempt: two hundred values, six hundred calls. None ends early.
        """
        policy = Retry(environment=still)

        async def main() -> list[int]:
            async def one(number: int) -> int:
                script = Script(REFUSED, REFUSED, number)

                async def fetch() -> int:
                    await asyncio.sleep(0)
                    return script()  # type: ignore[no-any-return]

                return await policy.acall(fetch)

            return await asyncio.gather(*(one(number) for number in range(200)))

        assert asyncio.run(main()) == list(range(200))

    def test_two_hundred_tasks_loop_over_a_shared_policy(self, still: Sleepless) -> None:
        """
        Every loop has its own attempts, so none swallows another's failure.
        """
        policy = Retry(environment=still)

        async def main() -> list[int]:
            async def one(number: int) -> int:
                script = Script(REFUSED, REFUSED, number)
                async for attempt in policy.attempts():
                    with attempt:
                        await asyncio.sleep(0)
                        return script()  # type: ignore[no-any-return]
                return -1

            return await asyncio.gather(*(one(number) for number in range(200)))

        assert asyncio.run(main()) == list(range(200))

    def test_threads_share_a_policy(self, still: Sleepless) -> None:
        """
        Sixteen threads, a hundred calls each, one budget: what was granted and what was called add up.
        """
        budget = Budget(burst=100, environment=still)
        policy, calls, lock = Retry(2, budget=budget, environment=still), [0], threading.Lock()

        def flaky() -> None:
            with lock:
                calls[0] += 1
            raise REFUSED

        def work() -> None:
            for _ in range(100):
                with pytest.raises(Exception):  # noqa: B017 - either ending will do
                    policy.call(flaky)

        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (budget.granted, calls[0]) == (100, 1_700)


class TestLoops:
    """`for attempt in policy.attempts(): with attempt: ...`"""

    def test_a_loop_ends_with_the_first_success(self, colour: Colour, still: Sleepless) -> None:
        """
        Two failures, one success; the attempts are numbered, and carry the key.
        """
        script, seen = Script(REFUSED, REFUSED, "done"), []

        def body(attempt: Any) -> None:
            seen.append((attempt.number, attempt.key))
            script()

        colour.loop(Retry(environment=still).bind(key="k"), body)

        assert seen == [(1, "k"), (2, "k"), (3, "k")]

    def test_a_loop_raises_the_last_error(self, colour: Colour, still: Sleepless) -> None:
        """
        The same rules as a call: the last error unchanged, an unknown outcome not repeated.
        """
        script = Script(REFUSED)
        with pytest.raises(REFUSED) as raised:
            colour.loop(Retry(environment=still), script)
        stop = stop_of(raised.value)
        assert stop is not None
        assert (script.calls, stop.reason) == (3, StopReason.ATTEMPTS)
        with pytest.raises(OutcomeUnknown):
            colour.loop(Retry(environment=still), Script(UNKNOWN))

    def test_a_loop_asks_breaker_and_budget(self, colour: Colour, still: Sleepless) -> None:
        """
        Five failures open the circuit; then the loop's body is never entered.
        """
        breaker, budget = Breaker("b", threshold=3, environment=still), Budget(environment=still)
        policy = Retry(breaker=breaker, budget=budget, environment=still)
        with pytest.raises(REFUSED):
            colour.loop(policy, Script(REFUSED))
        assert budget.granted == 2
        script = Script("done")
        with pytest.raises(CircuitOpen):
            colour.loop(policy, script)
        assert script.calls == 0
        still.advance(31)
        colour.loop(policy, script)
        assert (script.calls, breaker.state) == (1, "closed")

    def test_a_loop_without_its_block_is_refused(self, still: Sleepless) -> None:
        """
        Nobody would learn how the attempt ended, and it would be made for ever.
        """
        with pytest.raises(ConfigurationError, match="with attempt"):
            for _ in Retry(environment=still).attempts():
                pass

    def test_a_loop_is_used_once(self, still: Sleepless) -> None:
        """
        The policy is not iterable, and a loop's attempts cannot be shared.
        """
        attempts = Retry(environment=still).attempts()
        for attempt in attempts:
            with attempt:
                pass
        with pytest.raises(ConfigurationError, match="has been used"):
            iter(attempts)
        with pytest.raises(TypeError):
            iter(Retry())  # type: ignore[call-overload]

    def test_an_interrupt_leaves_a_loop_at_once(self, colour: Colour, still: Sleepless) -> None:
        """
        It is not kept, and no further attempt is made.
        """
        script = Script(colour.stop)
        with pytest.raises(colour.stop):
            colour.loop(Retry(environment=still), script)
        assert script.calls == 1


def test_a_body_is_judged_before_it_is_sent(tmp_path: Any) -> None:
    """
    Bytes, text and data can be sent again, a file that can be wound back too; a generator or an iterator cannot.
    """
    (tmp_path / "body").write_bytes(b"x")

    async def astream() -> Any:
        yield b"x"

    class Odd:
        def seekable(self) -> bool:
            raise OSError

    with (tmp_path / "body").open("rb") as file:
        assert [is_replayable(body) for body in (None, b"x", "x", {"a": 1}, file)] == [True] * 5
    assert [is_replayable(body) for body in ((b for b in b"x"), iter([1]), astream(), Odd())] == [False] * 4


def test_cancelling_is_not_a_failure(still: Sleepless) -> None:
    """
    A cancelled attempt goes through as it is: no retry, and the breaker's count stays.
    """
    breaker = Breaker("b", threshold=1, environment=still)

    async def main() -> None:
        started = asyncio.Event()

        async def hang() -> None:
            started.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(Retry(breaker=breaker, environment=still).acall(hang))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert breaker.state == "closed"
