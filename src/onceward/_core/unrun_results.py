"""
What a function may give back that is no result: work that nobody has begun, or that nobody has brought to its end.

A generator, a coroutine or another awaitable is a promise to do something. If it has not begun, it has done nothing,
and storing that as an answer would tell every retry that it ran.
"""

from __future__ import annotations

import inspect
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final

from onceward._core.errors import ConfigurationError, NothingHappened
from onceward._core.flow import Raised, Returned
from onceward._core.reply import Reply

DATA: Final = frozenset((dict, list, str, int, float, bool, bytes, tuple, type(None), Reply))
"""Types of results that are never such work: to ask takes longer than to know."""


class UnrunResult(ConfigurationError, NothingHappened):
    """The function gave back work that was not begun. It is no result: the key is free again."""

    retry = ConfigurationError.retry


def checked_result(returned: Returned) -> Returned | Raised:
    """What the function returned; or, if that is work that has not been done, the error that says so."""
    value = returned.value
    if type(value) in DATA:
        return returned
    if isinstance(value, GeneratorType | CoroutineType | AsyncGeneratorType):
        if _ended(value):
            return returned
        if _begun(value):
            return Raised(ConfigurationError(_half_done(value)))
        if not isinstance(value, AsyncGeneratorType):
            value.close()  # Python would warn that it was never awaited: the error says that better.
        return Raised(UnrunResult(_not_begun(value)))
    if inspect.isawaitable(value):
        # A future or a task may be under way, and what it does cannot be taken back; any other begins when awaited.
        under_way = hasattr(value, "add_done_callback")
        return Raised(ConfigurationError(_half_done(value)) if under_way else UnrunResult(_not_begun(value)))
    return returned


def may_be_unrun(value: Any) -> bool:
    """Whether this could be work that has not been done, so that `checked_result` must judge it."""
    return type(value) not in DATA and (
        isinstance(value, GeneratorType | AsyncGeneratorType) or inspect.isawaitable(value)
    )


def refuse_generator(fn: Any, name: str) -> None:
    """A generator function does nothing when it is called, so a gate would record what never ran."""
    if is_generator(fn):
        raise ConfigurationError(
            f"{name} is a generator function: calling it runs nothing, so there would be nothing to record. Do the "
            "work in a plain function and return its result (a list, for example); to stream a response, use gate.hold"
        )


def is_generator(fn: Any) -> bool:
    """Whether calling `fn` gives a generator, of either colour, as far as can be seen without calling it."""
    called = getattr(type(fn), "__call__", None)  # noqa: B004 - the method itself is looked at, not whether it is there
    kinds = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if not any(kind(fn) or kind(called) for kind in kinds):
        return False
    flags: int = getattr(getattr(fn, "__code__", None), "co_flags", 0)
    return not flags & inspect.CO_ITERABLE_COROUTINE  # An older way to write a coroutine.


def _begun(work: Any) -> bool:
    if isinstance(work, GeneratorType):
        return inspect.getgeneratorstate(work) != inspect.GEN_CREATED
    if isinstance(work, CoroutineType):
        return inspect.getcoroutinestate(work) != inspect.CORO_CREATED
    return bool(work.ag_running or work.ag_frame is None or work.ag_frame.f_lasti > _NOT_BEGUN)


def _ended(work: Any) -> bool:
    frames = (getattr(work, name, None) for name in ("gi_frame", "cr_frame", "ag_frame"))
    return all(frame is None for frame in frames)


async def _none_yet() -> Any:
    yield


_NOT_BEGUN = _none_yet().ag_frame.f_lasti
"""Where an async generator stands that has not begun; before Python 3.12 there is no better way to ask."""


def _what(value: Any) -> str:
    known = {GeneratorType: "a generator", CoroutineType: "a coroutine", AsyncGeneratorType: "an async generator"}
    return known.get(type(value)) or f"something to await ({type(value).__name__})"


def _not_begun(value: Any) -> str:
    return (
        f"the function returned {_what(value)} that was never started, so its work was not done, and the key "
        "is free again. Do the work inside the function: run the generator to its end, or await the coroutine (under "
        "AsyncGate), and return the result"
    )


def _half_done(value: Any) -> str:
    return (
        f"the function returned {_what(value)} that was started but not finished, so nobody knows how much of "
        "its work is done. Run it to its end inside the function, and return the result"
    )
