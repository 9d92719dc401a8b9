"""
Calls a function as a worker would, and tells a call that hangs from one that ends.

`Worker.call` runs it in a thread of its own (an async function in an event loop of that thread), or in a loop that is
running already, and waits for its end for as long as the limit says. The real clock is looked at for that limit only.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import traceback
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from typing import Any, NamedTuple

from onceward._core.errors import ConfigurationError
from onceward.runtime.environment import REAL
from onceward.testing.simulated_process import bystander, own_time

_NOT_THEIRS = (str(Path(__file__).parent.parent), str(Path(traceback.__file__).parent))


class CallEnd(NamedTuple):
    """How a call ended: with a value, or with what it raised."""

    value: Any = None
    error: BaseException | None = None


class RunningCall:
    """A call under way, in a thread or in somebody's event loop."""

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop | None) -> None:
        self._call = call
        self._ended = threading.Event()
        self._end: CallEnd | None = None
        self._thread: threading.Thread | None = None
        if loop is None:
            run = copy_context().run
            self._thread = threading.Thread(target=run, args=(self._in_thread,), name="onceward-worker", daemon=True)
            self._thread.start()
        else:
            asyncio.run_coroutine_threadsafe(self._in_loop(), loop)

    def wait(self, seconds: float) -> CallEnd | None:
        """The end of it; None if that does not come in time."""
        REAL.wait(self._ended, seconds)
        return self._end

    def where(self) -> str:
        """The line that it is at."""
        frame = sys._current_frames().get(self._thread.ident or 0) if self._thread is not None else None
        if frame is None:
            return "in the event loop of the test"
        lines = traceback.extract_stack(frame)
        at = next((one for one in reversed(lines) if not one.filename.startswith(_NOT_THEIRS)), lines[-1])
        return f"{at.filename}:{at.lineno}, in {at.name}: {at.line}"

    def _in_thread(self) -> None:
        try:
            value = self._call()
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
            self._end = CallEnd(value)
        except BaseException as error:  # Also its death: whoever waits must hear of it.
            self._end = CallEnd(None, error)
        finally:
            self._ended.set()

    async def _in_loop(self) -> None:
        try:
            value = self._call()
            self._end = CallEnd(await value if inspect.isawaitable(value) else value)
        except BaseException as error:
            self._end = CallEnd(None, error)
        finally:
            for _ in range(LOOP_ROUNDS):
                await REAL.asleep(0)  # What the call left behind in the loop belongs to it, and dies with it.
            self._ended.set()


LOOP_ROUNDS = 20
"""Rounds of the test's event loop after a call, in which its own left-over tasks come to an end."""


async def _awaited(value: Any) -> Any:
    return await value


class Worker:
    """Calls one function with its arguments."""

    def __init__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], seconds: float, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self.name = getattr(fn, "__name__", None) or repr(fn)[:60]
        self._fn, self._args, self.seconds, self._loop = fn, args, seconds, loop
        self._check()

    def call(self) -> CallEnd:
        """Call it and wait for the end; `TimeoutError` that says where it hangs, if there is none."""
        running = RunningCall(self._invoke, self._loop)
        end = running.wait(self.seconds)
        if end is None:
            raise TimeoutError(
                f"{self.name} has not returned after {self.seconds:g} s ({running.where()}). If it only needs longer, "
                "set seconds=; if it waits for the time, let it read the sandbox's clock; if it is async and needs the "
                "event loop of your test, use `await assert_once.in_loop(...)`"
            )
        return end

    def begin_duplicate(self, *, alive: bool) -> RunningCall:
        """Begin another call beside the first, which is held at a failpoint; `alive` if it would renew its lease."""
        duplicate = copy_context()
        duplicate.run(bystander.set, True)
        duplicate.run(own_time.set, alive)
        return duplicate.run(RunningCall, self._invoke, None)

    def _invoke(self) -> Any:
        value = self._fn(*self._args)
        if inspect.isgenerator(value) or inspect.isasyncgen(value):
            raise ConfigurationError(f"{self.name} returns a generator: nothing runs until it is read")
        return value

    def _check(self) -> None:
        if not callable(self._fn):
            raise ConfigurationError(f"assert_once takes a function to call often, not {type(self._fn).__name__}")
        if inspect.isgeneratorfunction(self._fn) or inspect.isasyncgenfunction(self._fn):
            raise ConfigurationError(
                f"{self.name} is a generator: calling it runs nothing. Give assert_once a function that reads it to "
                "its end"
            )
        try:
            inspect.signature(self._fn).bind(*self._args)
        except TypeError as error:
            raise ConfigurationError(
                f"{self.name} cannot be called with these arguments ({error}): pass them after the function, "
                "assert_once(fn, 'o-17'), and keywords with functools.partial"
            ) from None
        except ValueError:  # A function without a signature, such as some of C.
            return
