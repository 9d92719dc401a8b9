"""What no manual foresees: odd functions, odd errors, odd waits, cancellations at every step. Each has its answer."""

from __future__ import annotations

import asyncio
import functools
import gc
import http.client
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from retry_support import REFUSED, UNKNOWN, Failed, Says, Script, Sleepless

from onceward import ConfigurationError, DeadlineExceeded, OutcomeUnknown, Retry, stop_of
from onceward._core.verdict import Action, Certainty, Kind
from onceward.retry import Breaker, CircuitState, StopReason, breaker
from onceward.testing import no_sleeping


class TestOddErrors:
    """What is raised is raised, whatever it is."""

    def test_an_error_that_takes_no_attributes_is_raised_unchanged(self, call: Any, still: Sleepless) -> None:
        """
        It cannot carry its stop, so it carries none; whoever listens is told all the same.
        """

        @dataclass(frozen=True)
        class Frozen(ConnectionRefusedError):
            reason: str

        told: list[Any] = []
        error = Frozen("full")

        with pytest.raises(Frozen) as raised:
            call(Retry(on_stop=told.append, environment=still), Script(error))
        assert raised.value is error
        assert (stop_of(error), told[0].reason) == (None, StopReason.ATTEMPTS)

    def test_an_error_with_slots_carries_its_stop(self, call: Any, still: Sleepless) -> None:
        """
        Slots take nothing away that an exception has.
        """

        class Slotted(ConnectionRefusedError):
            __slots__ = ("detail",)

        with pytest.raises(Slotted) as raised:
            call(Retry(environment=still), Script(Slotted))
        assert stop_of(raised.value) is not None

    def test_one_error_raised_for_ever_does_not_grow(self, call: Any, still: Sleepless) -> None:
        """
        Some libraries raise the same object again and again: it carries one note of ours, the last.
        """
        error = ConnectionRefusedError()
        error.add_note("theirs")
        for _ in range(5):
            with pytest.raises(REFUSED):
                call(Retry(name="fetch", environment=still), Script(error))

        assert [n.partition(" in ")[0] for n in error.__notes__] == [
            "theirs",
            "onceward: fetch stopped after 3 attempts",
        ]

    def test_a_group_is_tried_again_if_every_one_of_it_may_be(self, still: Sleepless) -> None:
        """
        Two refused connections in a task group: again. One that is a bug among them: not.
        """

        async def group(*errors: type[Exception]) -> None:
            async with asyncio.TaskGroup() as tasks:
                for error in errors:
                    tasks.create_task(self._failing(error))

        attempts: list[int] = []

        async def counted(*errors: type[Exception]) -> None:
            attempts.append(1)
            await group(*errors)

        for errors, expected in (((REFUSED, REFUSED), 3), ((REFUSED, ValueError), 1)):
            attempts.clear()
            with pytest.raises(ExceptionGroup) as raised:
                asyncio.run(Retry(environment=still).acall(counted, *errors))
            assert len(attempts) == expected
            assert stop_of(raised.value) is not None

    @staticmethod
    async def _failing(error: type[Exception]) -> None:
        raise error

    def test_an_error_that_means_the_end_to_python_is_an_error(self, still: Sleepless) -> None:
        """
        A function that raises StopIteration has failed, and so has a block of a loop; nobody takes it for an end.
        """
        with pytest.raises(StopIteration) as raised:
            Retry(environment=still).call(Script(StopIteration))
        assert stop_of(raised.value) is not None
        with pytest.raises(RuntimeError, match="StopIteration") as wrapped:
            for attempt in Retry(environment=still).attempts():
                with attempt:
                    raise StopIteration
        assert isinstance(wrapped.value.__cause__, StopIteration)

    def test_an_awaited_one_as_well(self, still: Sleepless) -> None:
        """
        The same with StopAsyncIteration.
        """

        async def main() -> None:
            with pytest.raises(StopAsyncIteration):
                await Retry(environment=still).acall(self._failing, StopAsyncIteration)
            async for attempt in Retry(environment=still).attempts():
                with attempt:
                    raise StopAsyncIteration

        with pytest.raises(RuntimeError, match="StopAsyncIteration"):
            asyncio.run(main())

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
    def test_what_is_meant_for_the_process_goes_through_at_once(self, still: Sleepless, error: Any) -> None:
        """
        No other attempt, no failure for the breaker, and its probe's slot is given back.
        """
        circuit = Breaker("p", probe_lapse=86_400, environment=still)
        circuit.trip()
        still.advance(30)
        script = Script(error)

        with pytest.raises(error):
            Retry(breaker=circuit, environment=still).call(script)
        assert (script.calls, circuit.state, circuit.retry_after()) == (1, CircuitState.HALF_OPEN, None)

    def test_a_response_cut_in_the_middle_may_have_had_its_effect(self, call: Any, still: Sleepless) -> None:
        """
        Without a key it is not asked for again; with one it is.
        """
        cut = http.client.IncompleteRead(b'{"charge": "ch', 40)

        with pytest.raises(OutcomeUnknown):
            call(Retry(environment=still), Script(cut))
        assert call(Retry(environment=still).bind(key="charge:1"), Script(cut, "done")) == "done"

    @pytest.mark.parametrize("ends", [(REFUSED,), (REFUSED, REFUSED, "done"), (UNKNOWN,)])
    def test_nothing_is_left_to_the_garbage_collector(self, ends: tuple[Any, ...]) -> None:
        """
        Errors hold frames, and frames hold arguments: what a failed attempt held is let go of when the call is over.
        """

        class Large:
            """An argument."""

        def fetch(script: Script, _: Large) -> None:
            script()

        async def afetch(script: Script, _: Large) -> None:
            script()

        def blocking() -> None:
            with suppress(Exception):
                Retry().call(fetch, Script(*ends), Large())

        async def awaiting() -> None:
            with suppress(Exception):
                await Retry().acall(afetch, Script(*ends), Large())

        async def main() -> None:
            for _ in range(2):
                blocking()
                await awaiting()
                assert not [one for one in gc.get_objects() if type(one) is Large]

        gc.disable()
        try:
            with no_sleeping():
                asyncio.run(main())
        finally:
            gc.enable()


class TestOddWaits:
    """Whatever a server asks for, the answer is a sane wait or a stop."""

    @pytest.mark.parametrize(
        "asked",
        [
            "-5",
            "1e400",
            "nan",
            "Thu, 01 Jan 1900 00:00:00 GMT",
            "Fri, 31 Dec 9999 25:99:99 GMT",
            "",
            "soon",
            "1" * 5_000,
        ],
    )
    def test_what_is_no_wait_leaves_our_own(self, call: Any, still: Sleepless, asked: str) -> None:
        """
        Malformed, negative, long ago: as if nothing had been said.
        """
        assert call(Retry(environment=still), Script(Failed(429, Retry_After=asked), "done")) == "done"
        assert len(still.slept) == 1 and 0 <= still.slept[0] <= 0.1

    @pytest.mark.parametrize("asked", ["99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT", "86400"])
    def test_what_is_too_long_stops_at_once_and_can_be_shown(self, call: Any, still: Sleepless, asked: str) -> None:
        """
        Nothing is slept, and the time to come back is one that a calendar has.
        """
        with pytest.raises(DeadlineExceeded) as raised:
            call(Retry(environment=still), Script(Failed(429, Retry_After=asked)))
        assert still.slept == []
        assert raised.value.retry_at is not None and 86_400 <= (raised.value.retry_after_seconds or 0) <= 30 * 86_400

    @pytest.mark.parametrize("wait", [float("nan"), float("inf"), -1.0, 1e308])
    def test_a_classifier_may_say_anything(self, call: Any, still: Sleepless, wait: float) -> None:
        """
        A wait that is none never reaches the clock.
        """
        judge = Says(Certainty.NOT_SENT, Kind.RATE_LIMIT, Action.SAME_KEY, wait)
        with pytest.raises(Exception) as raised:
            call(Retry(classifier=judge, environment=still), Script(REFUSED))
        assert stop_of(raised.value) is not None
        assert all(0 <= slept <= 10 for slept in still.slept)


class TestOddFunctions:
    """What can be called again is, in every form; what cannot be is refused when it is declared."""

    def test_methods_of_every_kind(self, still: Sleepless) -> None:
        """
        Plain, class and static methods, bound ones, partials and objects that are called.
        """
        policy, script = Retry(environment=still), Script(REFUSED, "done")

        class Client:
            @policy
            def plain(self, value: str) -> tuple[Any, str]:
                return script(), value

            @classmethod
            @policy
            def of_class(cls, value: str) -> tuple[Any, str]:
                return script(), value

            @staticmethod
            @policy
            def static(value: str) -> tuple[Any, str]:
                return script(), value

            def __call__(self, value: str) -> tuple[Any, str]:
                return script(), value

        forms: list[Callable[[str], Any]] = [
            Client().plain,
            Client.of_class,
            Client().of_class,
            Client.static,
            Client().static,
            policy(functools.partial(Client(), value="v")),  # type: ignore[list-item]
            functools.partial(policy.call, Client()),
            policy(Client()),
        ]
        for form in forms:
            script.calls = 0
            assert (form() if form is forms[5] else form("v")) == ("done", "v")  # type: ignore[call-arg]
            assert script.calls == 2

    @pytest.mark.parametrize("kind", [staticmethod, classmethod, property])
    def test_a_descriptor_is_refused(self, kind: Any) -> None:
        """
        Around a static method it would be given the instance; the other way round it works, and the error says so.
        """
        for decorate in (Retry(), Breaker("p")):
            with pytest.raises(ConfigurationError, match=f"@{kind.__name__} above"):
                decorate(kind(lambda: None))

    def test_a_generator_is_refused_in_every_form(self, still: Sleepless) -> None:
        """
        Calling it does nothing yet, so nothing would ever be tried again.
        """

        def rows() -> Iterator[int]:
            yield 1

        async def arows() -> AsyncIterator[int]:
            yield 1

        class Rows:
            def __call__(self) -> Iterator[int]:
                yield 1

        policy = Retry(environment=still)
        for fn in (rows, arows, Rows(), functools.partial(rows)):
            with pytest.raises(ConfigurationError, match="generator"):
                policy(fn)
            with pytest.raises(ConfigurationError, match="generator"):
                policy.call(fn)
            with pytest.raises(ConfigurationError, match="generator"):
                asyncio.run(policy.acall(fn))

    def test_a_decorated_function_goes_to_another_process(self) -> None:
        """
        It is found by its name there, policy and all.
        """
        assert pickle.loads(pickle.dumps(decorated)) is decorated
        assert decorated() == "done"

    @pytest.mark.parametrize(
        "options",
        [
            {"attempts": 10**9},
            {"attempts": 10**9, "allow_many": True},
            {"attempts": "3"},
            {"attempts": float("nan")},
            {"max_retries": True},
            {"elapsed": True},
            {"elapsed": -1},
            {"elapsed": "60"},
            {"elapsed": 1e400},
            {"timeout": float("nan")},
            {"timeout": True},
            {"base": True},
            {"base": -1},
            {"base": float("nan")},
            {"cap": "10"},
            {"cap": 1e400},
            {"on_auth": "page"},
            {"on_nested": 7},
            {"failed": True},
            {"dead": []},
            {"budget": 0.1},
            {"breaker": "payments"},
            {"name": 7},
            {"key": 7},
            {"environment": None},
        ],
    )
    def test_a_choice_that_cannot_work_is_refused_when_it_is_made(self, options: dict[str, Any]) -> None:
        """
        With an error that names it.
        """
        with pytest.raises(ConfigurationError):
            Retry(**options)

    @pytest.mark.parametrize("name", ["", "two words", "two\nlines", "tab\t", "ünï", "x" * 101, None, 7, b"p"])
    def test_a_name_is_one_word(self, name: Any) -> None:
        """
        It stands in logs, in messages and in a store: no spaces, no newlines, nothing that is not ASCII.
        """
        with pytest.raises(ConfigurationError, match="visible ASCII"):
            Breaker(name)
        with pytest.raises(ConfigurationError, match="visible ASCII"):
            breaker(name)


@Retry()
def decorated() -> str:
    """Found by name."""
    return "done"
