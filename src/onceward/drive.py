"""
The two loops that drive a flow: `run` blocks, `arun` awaits. Nothing else in the package exists twice.

When a failpoint is armed, the performers are wrapped so that both sides of every effect can be hit; when nothing is
armed the loops are as short as they look.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from onceward import failpoints
from onceward._core.errors import ConfigurationError
from onceward._core.flow import BOUNDARIES, INSTANT, INTERRUPTIBLE, Effect, Flow

T = TypeVar("T")

_log = logging.getLogger("onceward")

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
    """Thrown into a flow whose coroutine was closed: nobody waits for its answer any more."""


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
    loop = running_loop()
    if failpoints.armed():
        perform = _ahitting(perform)
    kept, work = Kept(), None
    try:
        effect = next(flow)
        while True:
            kind = type(effect)
            try:
                if kind in INSTANT:
                    answer = instant(effect)
                elif kind not in INTERRUPTIBLE:
                    work = asyncio.ensure_future(perform(effect))
                    answer = await to_the_end(work, kept)
                elif (strike := kept.taken()) is not None:
                    raise strike
                else:
                    answer = await perform(effect)
            except GeneratorExit:
                _leave_behind(loop, flow, work, instant, perform)
                raise
            except BaseException as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(answer)
    except StopIteration as stop:
        effect = answer = strike = work = None  # type: ignore[assignment]
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


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop that awaits us; refused if what awaits us is none of asyncio's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigurationError(NO_LOOP) from None


NO_LOOP = (
    "no event loop of asyncio is running here, and whatever awaits in Onceward needs one. Under trio, run a blocking "
    "Gate in a thread: await trio.to_thread.run_sync(...); anyio runs on asyncio as well (backend='asyncio')"
)


def _leave_behind(
    loop: asyncio.AbstractEventLoop,
    flow: Flow[Any],
    work: asyncio.Future[Any] | None,
    instant: Callable[[Effect], Any],
    perform: Callable[[Effect], Awaitable[Any]],
) -> None:
    """
    The coroutine is being closed, perhaps by the garbage collector: in any thread, in the middle of anything.

    So nothing is done here that may need what that thread holds. What the flow still wants written (a release, or
    doubt) is left to its event loop, which can be told so from anywhere.
    """
    try:
        loop.call_soon_threadsafe(_see_off, flow, work, instant, perform)
    except RuntimeError:
        return  # The loop has gone: the lease will lapse.


def _see_off(
    flow: Flow[Any],
    work: asyncio.Future[Any] | None,
    instant: Callable[[Effect], Any],
    perform: Callable[[Effect], Awaitable[Any]],
) -> None:
    task = asyncio.get_running_loop().create_task(_end_alone(flow, work, instant, perform))
    _leaving.add(task)
    task.add_done_callback(_leaving.discard)


_leaving: set[asyncio.Task[None]] = set()
"""A loop holds its tasks weakly, and nobody else knows these."""


async def _end_alone(
    flow: Flow[Any],
    work: asyncio.Future[Any] | None,
    instant: Callable[[Effect], Any],
    perform: Callable[[Effect], Awaitable[Any]],
) -> None:
    try:
        if work is not None:
            await asyncio.gather(work, return_exceptions=True)  # A write that was under way lands or fails first.
        await arun(_abandoned(flow), instant, perform)
    except Abandoned:
        return
    except Exception as error:
        _log.warning("onceward: an operation whose caller has gone could not be ended: %s", error)


def _abandoned(flow: Flow[T]) -> Flow[T]:
    """The rest of a flow whose caller has gone."""
    try:
        effect = flow.throw(Abandoned())
        while True:
            try:
                answer = yield effect
            except GeneratorExit:
                raise
            except BaseException as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


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
