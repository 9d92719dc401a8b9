"""Refused before anything was sent: no doubt, if that was the first thing that the function did."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from onceward import CircuitOpen, Retry
from onceward.retry import Breaker
from onceward.testing import no_sleeping

REFUSED, UNKNOWN = ConnectionRefusedError, TimeoutError


def opened(world: Any) -> Breaker:
    breaker = Breaker("payments", environment=world.env)
    breaker.trip()
    return breaker


def state(gate: Any, key: str) -> str | None:
    found = gate.get(key)
    return None if found is None else found.state


@pytest.fixture(params=["call", "run", "once", "plan"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def _nothing() -> str:
    return "ch_1"


class TestRefusedInside:
    """What is refused before anything was sent leaves no doubt, if it was the first thing that the function did."""

    @pytest.mark.fault("a-refusal-inside-the-function-leaves-doubt")
    def test_an_open_circuit_inside_the_function_releases_it(self, world: Any, how: str) -> None:
        """
        The function is one call through a breaker, written as one usually does.
        """
        gate, breaker = world.gate(), opened(world)
        made = world.gate().gate  # Its functions are not wrapped here: that would be another call.

        def blocking(order: int = 1) -> Any:
            return breaker.call(lambda: "ch_1")

        async def awaiting(order: int = 1) -> Any:
            return await breaker.acall(_nothing)

        body = awaiting if world.awaits else blocking
        ways = {
            "once": lambda: made.once(key="charge:{order}")(body)(order=1),
            "plan": lambda: made.plan("order").step("charge:1", body),
            "call": lambda: made.call("charge:1", body),
            "run": lambda: made.run("charge:1", body),
        }

        def pay() -> Any:
            return world.do(ways[how]())

        with pytest.raises(CircuitOpen):
            pay()

        assert [row.state for row in gate.rows()] == ["released"]
        breaker.reset()
        assert getattr(answer := pay(), "value", answer) == "ch_1"

    @pytest.mark.fault("a-refusal-speaks-for-what-was-done-before-it")
    @pytest.mark.parametrize("shape", ["before", "loop", "helper", "callback", "item", "with"])
    def test_a_refusal_does_not_speak_for_what_was_done_before_it(self, world: Any, shape: str) -> None:
        """
        The goods are reserved, and then the payment is refused: nobody may reserve them again.
        """
        gate, breaker, done = world.gate(), opened(world), []

        def helper() -> Any:
            done.append(1)
            return breaker.call(lambda: "ch_1")

        def before() -> Any:
            done.append(1)
            return breaker.call(lambda: "ch_1")

        def loop() -> Any:
            while True:
                if done:
                    return breaker.call(lambda: "ch_1")
                done.append(1)

        def callback() -> Any:
            return max([1, 2], key=lambda _: done.append(1) or breaker.call(lambda: "ch_1"))

        def item() -> Any:
            shelf[0] = 1
            return breaker.call(lambda: "ch_1")

        def within() -> Any:
            with Shelf():
                return breaker.call(lambda: "ch_1")

        class Shelf(dict[int, int]):
            def __setitem__(self, key: int, value: int) -> None:
                done.append(1)

            def __enter__(self) -> None:
                done.append(1)

            def __exit__(self, *_: object) -> None:
                pass

        shelf = Shelf()
        bodies = {
            "before": before,
            "loop": loop,
            "helper": lambda: helper(),
            "callback": callback,
            "item": item,
            "with": within,
        }
        with pytest.raises(CircuitOpen):
            gate.run("charge:1", bodies[shape])

        assert (len(done), state(gate, "charge:1")) == (1, "in_doubt")

    def test_a_refused_connection_releases_it_if_it_was_the_first_call(self, world: Any) -> None:
        """
        A real client and a port that nobody listens on.
        """
        httpx = pytest.importorskip("httpx")
        gate, url = world.gate(), f"http://127.0.0.1:{unused_port()}/charges"
        if world.awaits:
            client = httpx.AsyncClient()

            async def pay() -> Any:
                return await client.post(url, json={"amount": 5})
        else:
            client = httpx.Client()

            def pay() -> Any:
                return client.post(url, json={"amount": 5})

        with pytest.raises(httpx.ConnectError):
            world.do(gate.gate.run("charge:1", pay))
        world.do(client.aclose() if world.awaits else client.close())

        assert state(gate, "charge:1") == "released"

    def test_a_policy_inside_that_has_tried_twice_is_not_looked_through(self, world: Any) -> None:
        """
        Only the last attempt can be seen: an earlier one may have done something before it was refused.
        """
        gate, tries = world.gate(), []

        def charge() -> None:
            tries.append(1)
            raise REFUSED

        policy = Retry(environment=world.env)
        with no_sleeping(), pytest.raises(REFUSED):
            gate.run("charge:1", lambda: policy.call(charge))

        assert (len(tries), state(gate, "charge:1")) == (3, "in_doubt")

    def test_doubt_from_an_earlier_run_stays(self, world: Any) -> None:
        """
        Doubt is sticky: the refusal of this run says nothing about the one before.
        """
        gate, breaker = world.gate(guarantee="keyed"), opened(world)
        with pytest.raises(UNKNOWN):
            gate.run("charge:1", world.Effect(UNKNOWN()))

        async def awaiting() -> Any:
            return await breaker.acall(_nothing)

        body = awaiting if world.awaits else lambda: breaker.call(lambda: "ch_1")
        with pytest.raises(CircuitOpen):
            world.do(gate.gate.run("charge:1", body))

        assert state(gate, "charge:1") == "in_doubt"


def unused_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
