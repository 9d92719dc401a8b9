"""Functions as endpoints: what they return and raise, and what happens when they do not end."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from delivery_support import message

from onceward import ConfigurationError
from onceward.messaging.outbox.delivery import CallableEndpoint
from onceward.messaging.outbox.delivery.callable_endpoint import RUNNING_MAX
from onceward.messaging.outbox.message import (
    Delivered,
    DeliveryFailed,
    DeliveryOutcome,
    DeliveryRefused,
    EndpointGone,
    Message,
)

GENEROUS = 60.0


class CardDeclined(Exception):
    """Something that trying again does not mend."""


class Limited(Exception):
    """As HTTP clients raise it: an answer that asks for time."""

    status_code = 429

    def __init__(self, seconds: str) -> None:
        self.headers = {"Retry-After": seconds}


class TestOutcomes:
    """Returning is delivering; raising is failing."""

    @pytest.mark.parametrize("colour", ["plain", "async"])
    def test_a_function_is_given_the_message(self, colour: str) -> None:
        """
        Plain or async, all of it.
        """
        got: list[Message] = []

        async def later(one: Message) -> None:
            await asyncio.sleep(0)
            got.append(one)

        outcome = CallableEndpoint(got.append if colour == "plain" else later).deliver(message(attempt=3))

        assert Delivered("the function returned") == outcome
        assert [message(attempt=3)] == got

    @pytest.mark.parametrize(
        "outcome",
        [Delivered("as 7"), DeliveryFailed("not now", 30.0), DeliveryRefused("never"), EndpointGone("closed")],
    )
    def test_a_function_may_say_itself_what_came_of_it(self, outcome: DeliveryOutcome) -> None:
        """
        Any outcome; anything else that it returns means that it is done.
        """

        async def later(_one: Message) -> DeliveryOutcome:
            return outcome

        assert outcome == CallableEndpoint(lambda _one: outcome).deliver(message())
        assert outcome == CallableEndpoint(later).deliver(message())
        assert Delivered("the function returned") == CallableEndpoint(lambda _one: False).deliver(message())

    def test_an_exception_fails_and_a_final_one_refuses(self) -> None:
        """
        By type, with what inherits from it. What it says is not repeated: it could have anything in it.
        """

        def pay(one: Message) -> None:
            raise (CardDeclined if one.attempt == 1 else KeyError)("canary")

        endpoint = CallableEndpoint(pay, final=CardDeclined)

        assert DeliveryRefused("the function raised CardDeclined, which is listed as final") == endpoint.deliver(
            message()
        )
        assert DeliveryFailed("the function raised KeyError") == endpoint.deliver(message(attempt=2))
        assert isinstance(CallableEndpoint(pay, final=(Exception,)).deliver(message(attempt=2)), DeliveryRefused)

    def test_an_error_that_asks_for_time_gets_it(self) -> None:
        """
        As everywhere else, and for a day at most.
        """

        def limited(one: Message) -> None:
            raise Limited("30" if one.attempt == 1 else "99999999")

        endpoint = CallableEndpoint(limited)

        assert DeliveryFailed("the function raised Limited", 30.0) == endpoint.deliver(message())
        assert DeliveryFailed("the function raised Limited", 86_400.0) == endpoint.deliver(message(attempt=2))

    @pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
    def test_a_function_does_not_end_the_relay(self, error: type[BaseException]) -> None:
        """
        Whatever it raises.
        """

        def leave(_one: Message) -> None:
            raise error

        assert DeliveryFailed(f"the function raised {error.__name__}") == CallableEndpoint(leave).deliver(message())

    def test_context_variables_are_those_of_the_caller(self) -> None:
        """
        Although it runs in another thread.
        """
        variable = contextvars.ContextVar("variable", default="none")
        seen: list[str] = []
        variable.set("the caller's")

        CallableEndpoint(lambda _one: seen.append(variable.get())).deliver(message())

        assert seen == ["the caller's"]


class TestTime:
    """A try ends; a function that does not is never run beside itself."""

    def test_a_function_that_hangs_is_left_and_joined_by_the_next_try(self) -> None:
        """
        The first try fails in time. The second begins no other run: it waits for the one that is there, and has its
        outcome.
        """
        release, calls = threading.Event(), []

        def slow(one: Message) -> DeliveryOutcome:
            calls.append(one.attempt)
            release.wait(GENEROUS)
            return Delivered("at last")

        endpoint = CallableEndpoint(slow, seconds=0.2)
        first = endpoint.deliver(message())
        second = endpoint.deliver(message(attempt=2))
        other = endpoint.deliver(message(id="msg_2"))
        release.set()
        third = _until_delivered(endpoint)

        assert {DeliveryFailed} == {type(one) for one in (first, second, other)}
        assert "still running after 0.2 seconds" in first[0]
        assert Delivered("at last") == third
        assert calls[:2] == [1, 1]  # One run of each of the two messages while they hung.

    def test_an_async_function_is_cancelled(self) -> None:
        """
        And the thread is free again.
        """
        cancelled = threading.Event()

        async def slow(_one: Message) -> None:
            try:
                await asyncio.sleep(GENEROUS)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        outcome = CallableEndpoint(slow, seconds=0.2).deliver(message())

        assert isinstance(outcome, DeliveryFailed)
        assert cancelled.wait(GENEROUS)

    def test_functions_that_hang_do_not_eat_all_threads(self) -> None:
        """
        From a number on, no other is begun.
        """
        release = threading.Event()
        endpoint = CallableEndpoint(lambda _one: release.wait(GENEROUS), seconds=0.001)
        try:
            for number in range(RUNNING_MAX):
                endpoint.deliver(message(id=f"msg_{number}"))
            outcome = endpoint.deliver(message(id="one_more"))
        finally:
            release.set()

        assert isinstance(outcome, DeliveryFailed)
        assert "it was not called" in outcome.reason

    def test_many_threads_may_deliver_at_once(self) -> None:
        """
        Each message is handed over as often as it is tried, and none twice at the same time.
        """
        guard, inside, worst = threading.Lock(), dict.fromkeys(range(4), 0), []

        def work(one: Message) -> None:
            number = int(one.id)
            with guard:
                inside[number] += 1
                worst.append(inside[number])
            with guard:
                inside[number] -= 1

        endpoint = CallableEndpoint(work)
        threads = [
            threading.Thread(target=lambda n=n: [endpoint.deliver(message(id=str(n % 4))) for _ in range(25)])
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GENEROUS)

        assert set(worst) == {1}
        assert 100 <= len(worst) <= 200


def _until_delivered(endpoint: CallableEndpoint) -> DeliveryOutcome:
    for _ in range(300):
        if isinstance(outcome := endpoint.deliver(message(attempt=3)), Delivered):
            return outcome
    return outcome


@pytest.mark.parametrize(
    "options",
    [{"seconds": 0}, {"seconds": float("inf")}, {"final": "ValueError"}, {"final": (ValueError, 7)}, {"final": int}],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    """
    When the endpoint is made.
    """
    with pytest.raises(ConfigurationError):
        CallableEndpoint(print, **options)
    with pytest.raises(ConfigurationError):
        CallableEndpoint("print")  # type: ignore[arg-type]


def test_it_is_shown_by_its_functions_name() -> None:
    """
    A person reads it in a log.
    """
    assert repr(CallableEndpoint(print)) == "CallableEndpoint(print)"
