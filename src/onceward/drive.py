"""
The two loops that drive a flow: `run` blocks, `arun` awaits. Nothing else in the package exists twice.

When a failpoint is armed, the performers are wrapped so that both sides of every effect can be hit; when nothing is
armed the loops are as short as they look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from onceward import failpoints
from onceward._core.flow import BOUNDARIES, INSTANT, INTERRUPTIBLE, Effect, Flow

T = TypeVar("T")

for _at, _what in BOUNDARIES.items():
    failpoints.declare(f"{_at}.before", f"just before {_what}")
    failpoints.declare(f"{_at}.after", f"just after {_what}")


class Unstoppable(asyncio.Future[T]):
    """
    The answer of a call that goes on whoever stops waiting for it: cancelling it does nothing.

    A task that awaits it hears of its own cancellation when the answer is there.
    """

    def cancel(self, msg: Any | None = None) -> bool:
        """Refuse: the call is under way."""
        return False


class Kept:
    """A cancellation that came while a store call was under way: it strikes when that has ended, however it ended."""

    __slots__ = ("cancelled",)

    def __init__(self) -> None:
        self.cancelled: asyncio.CancelledError | None = None

    def taken(self) -> asyncio.CancelledError | None:
        """Whoever takes it raises it."""
        cancelled, self.cancelled = self.cancelled, None
        return cancelled


class Abandoned(BaseException):
    """Thrown into a flow whose coroutine is being closed: nothing can be awaited any more."""


def run(flow: Flow[T], perform: Callable[[Effect], Any]) -> T:
    """Drive a flow by blocking."""
    if failpoints.armed():
        perform = _hitting(perform)
    try:
        effect = next(flow)
        while True:
            try:
                answer = perform(effect)
            except BaseException as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(answer)
    except StopIteration as stop:
        effect = answer = None  # type: ignore[assignment]  # An error may hold this frame, and they may hold the error.
        return stop.value  # type: ignore[no-any-return]


async def arun(flow: Flow[T], instant: Callable[[Effect], Any], perform: Callable[[Effect], Awaitable[Any]]) -> T:
    """
    Same as `run`, but awaits.

    A cancellation that arrives during a store call is kept until the call has answered, and is thrown into the flow
    at the next place where it may strike: so that a claim that landed is released, and not forgotten.
    """
    if failpoints.armed():
        perform = _ahitting(perform)
    kept = Kept()
    try:
        effect = next(flow)
        while True:
            kind = type(effect)
            try:
                if kind in INSTANT:
                    answer = instant(effect)
                elif kind not in INTERRUPTIBLE:
                    answer = await to_the_end(perform(effect), kept)
                elif (strike := kept.taken()) is not None:
                    raise strike
                else:
                    answer = await perform(effect)
            except GeneratorExit:
                _let_go(flow, instant, perform)
                raise
            except BaseException as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(answer)
    except StopIteration as stop:
        effect = answer = strike = None  # type: ignore[assignment]
        if kept.cancelled is not None:
            raise kept.taken() from None  # type: ignore[misc]
        return stop.value  # type: ignore[no-any-return]
    except Exception as error:
        if kept.cancelled is not None:
            raise kept.taken() from error  # type: ignore[misc]
        raise


async def to_the_end(work: Awaitable[Any], kept: Kept) -> Any:
    """Await `work` to its end, whoever cancels us meanwhile; the cancellation is kept, also if the work fails."""
    future: asyncio.Future[Any] = asyncio.ensure_future(work)
    while not future.done():
        try:
            await (future if type(future) is Unstoppable else asyncio.shield(future))
        except asyncio.CancelledError as error:
            if future.cancelled():
                raise
            kept.cancelled = error
        except Exception:  # noqa: S110 - raised by `result()` below, once
            pass
    return future.result()


def _let_go(flow: Flow[Any], instant: Callable[[Effect], Any], perform: Callable[[Effect], Awaitable[Any]]) -> None:
    """
    The coroutine is being closed: nothing can be awaited any more, but a write can still be sent.

    The flow says what it wants written (a release, or doubt); that is submitted and not waited for.
    """
    try:
        effect = flow.throw(Abandoned())
        while type(effect) in INSTANT:
            effect = flow.send(instant(effect))
        work = perform(effect)
        if not asyncio.isfuture(work):
            asyncio.get_running_loop().create_task(_forget(work))
    except (StopIteration, Abandoned, RuntimeError):
        return  # The flow has nothing to write, or the loop has gone: the lease will lapse.
    finally:
        flow.close()


async def _forget(work: Awaitable[Any]) -> None:
    await work


def _hitting(perform: Callable[[Effect], Any]) -> Callable[[Effect], Any]:
    def hitting(effect: Effect) -> Any:
        at = getattr(effect, "at", None)
        if at is None:
            return perform(effect)
        failpoints.hit(f"{at}.before")
        answer = perform(effect)
        failpoints.hit(f"{at}.after")
        return answer

    return hitting


def _ahitting(perform: Callable[[Effect], Awaitable[Any]]) -> Callable[[Effect], Awaitable[Any]]:
    async def hitting(effect: Effect) -> Any:
        at = getattr(effect, "at", None)
        if at is None:
            return await perform(effect)
        failpoints.hit(f"{at}.before")
        answer = await perform(effect)
        failpoints.hit(f"{at}.after")
        return answer

    return hitting
