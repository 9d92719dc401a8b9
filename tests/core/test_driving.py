"""The loops that drive generators: answers are sent in, errors are thrown in, and what is left behind is closed."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

import pytest

from onceward.runtime.flow_driver import drive_steps, drive_steps_async, rest_of


def _walked(steps: Generator[Any, Any, Any], perform: Callable[[Any], Any]) -> Any:
    async def performing(asked: Any) -> Any:
        return perform(asked)

    async def awaited() -> Any:
        return await drive_steps_async(steps, performing)

    return asyncio.run(awaited())


BOTH = pytest.mark.parametrize("drive", [drive_steps, _walked], ids=["blocking", "awaiting"])


def _failing(asked: Any) -> Any:
    if asked == "bad":
        raise KeyError(asked)
    return f"{asked}!"


@BOTH
def test_answers_are_sent_in_and_the_end_is_returned(drive: Any) -> None:
    """
    Each thing that is asked for is performed once, in order.
    """

    def steps() -> Generator[str, str, list[str]]:
        return [(yield "one"), (yield "two")]

    assert drive(steps(), _failing) == ["one!", "two!"]
    assert drive((one for one in ()), _failing) is None


@BOTH
@pytest.mark.fault("an-error-is-not-thrown-into-the-steps", "an-error-is-not-thrown-into-awaiting-steps")
def test_an_error_is_thrown_in_where_it_was_asked_for(drive: Any) -> None:
    """
    The steps may bear it and go on; what they do not bear is raised to whoever drives them.
    """
    borne = []

    def bears() -> Generator[str, str, str]:
        try:
            yield "bad"
        except KeyError as error:
            borne.append(error.args)
        return (yield "then")

    def does_not() -> Generator[str, str, None]:
        yield "bad"

    with pytest.raises(KeyError):
        drive(does_not(), _failing)
    try:
        told = drive(bears(), _failing)
    except KeyError:
        told = "not thrown in"

    assert (told, borne) == ("then!", [("bad",)])


@BOTH
def test_a_flow_pauses_where_it_is_told_to_and_goes_on_later(drive: Any) -> None:
    """
    The first part returns what it paused at; the rest begins with the answer to that.
    """

    def steps() -> Generator[Any, Any, Any]:
        first = yield "one"
        middle = yield 2
        return [first, middle, (yield "three")]

    flow = steps()
    paused = drive(rest_of(flow, lambda: next(flow), until=int), _failing)
    ended = drive(rest_of(flow, lambda: flow.send("two"), until=int), _failing)

    assert (paused, ended) == (2, ["one!", "two", "three!"])


def test_an_error_goes_through_what_is_left_of_a_flow() -> None:
    """
    Thrown in from outside, it reaches the place where the flow waits.
    """

    def steps() -> Generator[str, str, str]:
        try:
            yield "bad"
        except KeyError:
            return "borne"
        return "missed"

    flow = steps()

    assert drive_steps(rest_of(flow, lambda: next(flow)), _failing) == "borne"


def test_a_coroutine_that_is_closed_ends_its_steps() -> None:
    """
    At once, in the place where they wait, and not when somebody finds them forgotten.
    """
    ended = []

    def steps() -> Generator[str, str, None]:
        try:
            yield "one"
        finally:
            ended.append("closed")

    async def never(asked: str) -> None:
        await asyncio.get_running_loop().create_future()

    async def begun() -> None:
        coroutine = drive_steps_async(steps(), never)
        coroutine.send(None)
        coroutine.close()

    asyncio.run(begun())

    assert ended == ["closed"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, asyncio.CancelledError])
def test_an_interrupt_leaves_through_the_steps(kind: type[BaseException]) -> None:
    """
    What is around the place where they wait is undone on the way.
    """
    undone = []

    def steps() -> Generator[str, str, None]:
        try:
            yield "one"
        finally:
            undone.append("undone")

    def interrupted(asked: str) -> None:
        raise kind

    with pytest.raises(kind):
        drive_steps(steps(), interrupted)
    assert undone == ["undone"]


@pytest.mark.fault("an-interrupt-before-an-answer-is-sent-in-is-not-heard")
def test_an_interrupt_that_comes_before_an_answer_is_sent_in_is_thrown_in() -> None:
    """
    Wherever in the loop it arrives: the steps hear of it, and what they have begun is undone.
    """
    performed = []

    def steps() -> Generator[str, str, None]:
        yield "begin"
        try:
            yield "work"
        except KeyboardInterrupt:
            yield "undo"
            raise

    def interrupting(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code is not drive_steps.__code__:
            return None
        if event == "line" and performed == ["begin", "work"] and "send" in lines[frame.f_lineno - first]:
            raise KeyboardInterrupt
        return interrupting

    lines, first = inspect.getsourcelines(drive_steps)
    before = sys.gettrace()
    sys.settrace(interrupting)
    try:
        with pytest.raises(KeyboardInterrupt):
            drive_steps(steps(), performed.append)
    finally:
        sys.settrace(before)

    assert performed == ["begin", "work", "undo"]
