"""A breaker in use: both colours, threads, names, hooks."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from retry_support import REFUSED, Answer, Failed, Script, Sleepless

from onceward import CircuitOpen, ConfigurationError, Retry
from onceward.retry import Breaker, CircuitState, breaker


def fail(call: Any, through: Breaker, times: int, error: Any = REFUSED) -> None:
    for _ in range(times):
        with pytest.raises(type(error) if isinstance(error, Exception) else error):
            call(through, Script(error))


@pytest.mark.requirement("D58", "D59", "D60", "D61")
def test_its_life(call: Any, still: Sleepless) -> None:
    """
    Closed, five failures, open (nothing is called, and it says when to come back), a probe, closed.
    """
    through, script, changes = Breaker("payments", environment=still), Script("done"), []
    through._on_change = lambda name, state: changes.append((name, state.value))
    fail(call, through, 5)
    with pytest.raises(CircuitOpen) as raised:
        call(through, script)
    assert (script.calls, raised.value.retry_after_seconds, through.state) == (0, 30, "open")
    assert raised.value.retry_at is not None
    still.advance(30)

    assert call(through, script) == "done"
    assert through.state == "closed"
    assert changes == [("payments", "open"), ("payments", "half_open"), ("payments", "closed")]


@pytest.mark.requirement("D65")
@pytest.mark.parametrize("error", [Failed(400), Failed(401), Failed(404), Failed(409), Failed(422), ValueError("bug")])
def test_business_errors_neither_trip_nor_save_it(call: Any, still: Sleepless, error: Exception) -> None:
    """
    Twenty of them leave it closed; and among them, five failures in a row still open it.
    """
    through = Breaker("payments", environment=still)
    fail(call, through, 20, error)
    assert through.state == "closed"
    for _ in range(4):
        fail(call, through, 1)
        fail(call, through, 1, error)
    fail(call, through, 1)

    assert through.state == "open"


@pytest.mark.requirement("D67")
def test_a_fallback_answers_while_it_is_open(call: Any, still: Sleepless) -> None:
    """
    It is handed the refusal, and what it returns is the answer.
    """
    through = Breaker("payments", fallback=lambda error: f"ask a human: {error.code}", environment=still)
    fail(call, through, 5)

    assert call(through, Script("done")) == "ask a human: circuit_open"


def test_an_awaited_fallback_is_awaited(still: Sleepless) -> None:
    """
    In the awaiting colour a fallback may be `async def`.
    """

    async def human(error: CircuitOpen) -> str:
        return "asked"

    async def fetch() -> str:
        return "done"

    through = Breaker("payments", fallback=human, environment=still)
    through.trip()

    assert asyncio.run(through.acall(fetch)) == "asked"


def test_calls_run_side_by_side(still: Sleepless) -> None:
    """
    Nothing is held while a call runs: eight threads are inside at the same time.
    """
    through, together = Breaker("payments", environment=still), threading.Barrier(8)

    def meet() -> None:
        together.wait(30)

    threads = [threading.Thread(target=through.call, args=(meet,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert not together.broken


@pytest.mark.requirement("D63")
def test_of_twenty_waiting_threads_one_probes(still: Sleepless) -> None:
    """
    They come at the same instant; one goes through, nineteen are refused.
    """
    through, together, inside, refused = Breaker("p", environment=still), threading.Barrier(20), [], []
    through.trip()
    still.advance(31)
    done = threading.Event()

    def probe() -> None:
        inside.append(1)
        done.wait(30)

    def work() -> None:
        together.wait(30)
        try:
            through.call(probe)
        except CircuitOpen:
            refused.append(1)
            if len(refused) == 19:
                done.set()

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(inside), len(refused)) == (1, 19)


def test_cancelling_a_call_counts_for_nothing(still: Sleepless) -> None:
    """
    Neither while closed nor as a probe, whose slot is free again at once.
    """
    through = Breaker("p", threshold=1, environment=still)

    async def main() -> None:
        async def cancelled() -> None:
            raise asyncio.CancelledError

        for _ in range(3):
            with pytest.raises(asyncio.CancelledError):
                await through.acall(cancelled)
        assert through.state == "closed"
        through.trip()
        still.advance(31)
        with pytest.raises(asyncio.CancelledError):
            await through.acall(cancelled)

        async def fetch() -> str:
            return "done"

        assert await through.acall(fetch) == "done"

    asyncio.run(main())


def test_rejections_share_no_traceback(still: Sleepless) -> None:
    """
    Two thousand refusals: the last one's traceback is as short as the first one's.
    """
    through = Breaker("p", environment=still)
    through.trip()

    def depth() -> int:
        with pytest.raises(CircuitOpen) as raised:
            through.call(Script("done"))
        return len(raised.traceback)

    first = depth()
    assert {first} == {depth() for _ in range(2_000)}


def test_answers_can_count_as_failures(call: Any, still: Sleepless) -> None:
    """
    For clients that return what others raise: a 503 counts, a 404 does not.
    """
    through = Breaker("p", threshold=2, failed=lambda answer: answer.status_code >= 400, environment=still)
    for status in (404, 503, 404, 503):
        call(through, Script(Answer(status)))

    assert through.state == "open"


def test_a_block_and_a_decorator(still: Sleepless) -> None:
    """
    `with breaker.guard():`, `async with`, and `@breaker` on both kinds of function.
    """
    through = Breaker("p", threshold=4, environment=still)

    @through
    def plain() -> None:
        raise REFUSED

    @through
    async def awaited() -> None:
        raise REFUSED

    async def guarded() -> None:
        async with through.guard():
            raise REFUSED

    with pytest.raises(REFUSED):
        plain()
    with pytest.raises(REFUSED):
        asyncio.run(awaited())
    with pytest.raises(REFUSED), through.guard():
        raise REFUSED
    assert through.state == "closed"
    with pytest.raises(REFUSED):
        asyncio.run(guarded())
    assert through.state == "open"
    with pytest.raises(CircuitOpen), through.guard():
        raise AssertionError("entered")
    with pytest.raises(CircuitOpen):
        asyncio.run(guarded())


@pytest.mark.requirement("D66")
def test_one_name_is_one_breaker() -> None:
    """
    Everywhere in the process; other options for the same name are refused; another name is another breaker.
    """
    payments = breaker("payments", threshold=2)
    assert payments is breaker("payments")
    assert payments is breaker("payments", threshold=2)
    assert payments is not breaker("mail")
    with pytest.raises(ConfigurationError, match="other options"):
        breaker("payments", threshold=3)


@pytest.mark.parametrize("name", ["", "two words", "new\nline", "tab\t", "ünïcode", "x" * 101, None, 7])
def test_a_name_that_cannot_be_one_is_refused(name: Any) -> None:
    """
    With what a name may be.
    """
    with pytest.raises(ConfigurationError, match="visible ASCII"):
        Breaker(name)


def test_a_hook_that_raises_changes_nothing(call: Any, still: Sleepless) -> None:
    """
    on_change is told outside of the breaker's lock, and its errors are its own.
    """
    through = Breaker("p", threshold=1, on_change=Script(RuntimeError), environment=still)
    fail(call, through, 1)

    assert through.state == "open"


def test_a_slow_rate_of_failures_opens_it(call: Any, still: Sleepless) -> None:
    """
    Every other call fails: no row ever comes, and a rate of a half opens it.
    """
    through = Breaker("p", rate=0.5, environment=still)
    for _ in range(10):
        call(through, Script("done"))
        fail(call, through, 1)

    assert through.state == "open"


def test_it_can_be_opened_and_closed_by_hand(call: Any, still: Sleepless) -> None:
    """
    For operators.
    """
    through = Breaker("p", environment=still)
    through.trip()
    assert through.retry_after() == 30
    through.reset()

    assert through.retry_after() is None
    assert call(through, Script("done")) == "done"


def test_the_wall_clock_does_not_matter(call: Any, still: Sleepless) -> None:
    """
    An hour forwards opens nothing early, an hour back delays nothing.
    """
    through = Breaker("p", environment=still)
    through.trip()
    still.jump(3_600)
    with pytest.raises(CircuitOpen):
        call(through, Script("done"))
    still.jump(-7_200)
    still.advance(30)

    assert call(through, Script("done")) == "done"


class TestLeavingItOut:
    """Pure computing needs no breaker, and a read needs no key: both are left out by saying so."""

    @pytest.mark.requirement("D77")
    def test_a_breaker_that_is_not_enabled_does_nothing(self, call: Any, still: Sleepless) -> None:
        """
        Failures do not open it, tripping does not, a policy goes on as without it; a decorated function is itself.
        """
        off = Breaker("p", threshold=1, enabled=False, environment=still)

        def compute() -> int:
            return 1

        assert off(compute) is compute
        for _ in range(3):
            with pytest.raises(REFUSED):
                call(off, Script(REFUSED))
            off.trip()
        with off.guard():
            pass
        assert CircuitState.CLOSED is off.state
        assert call(Retry(breaker=off, environment=still), Script(REFUSED, REFUSED, "done")) == "done"
        with pytest.raises(ConfigurationError, match="enabled"):
            Breaker("p", enabled="no")  # type: ignore[arg-type]

    @pytest.mark.requirement("D77")
    def test_a_read_is_tried_again_without_a_key(self, call: Any, still: Sleepless) -> None:
        """
        Declared safe, an unknown outcome is no reason to stop.
        """
        assert call(Retry(safe=True, environment=still), Script(TimeoutError, "done")) == "done"
