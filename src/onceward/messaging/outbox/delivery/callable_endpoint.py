"""
Delivery to a function of yours, plain or async.

    returns            delivered (or an outcome of its own: `DeliveryFailed("...", 30)`)
    raises             failed: tried again, not sooner than the error asks for
    raises, final      refused: one of the types that you named

A plain function cannot be stopped. It runs in a thread of its own, and when its time is over the try fails, so that the
relay can go on; should it still run when the message's turn comes again, that try waits for it and begins no other: in
one process, a function never has the same message twice at the same time. An async function is cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextvars import copy_context
from typing import Any, Final

from onceward._core.classifier import DEFAULT
from onceward._core.errors import ConfigurationError
from onceward.messaging.outbox.delivery.validation import check_positive
from onceward.messaging.outbox.delivery.webhook_response import RETRY_AFTER_MAX
from onceward.messaging.outbox.message import (
    Delivered,
    DeliveryFailed,
    DeliveryOutcome,
    DeliveryRefused,
    EndpointGone,
    Message,
)

SECONDS_MAX: Final = 86_400.0
RUNNING_MAX: Final = 64
"""Calls that run in one endpoint at once, those left behind included: one that hangs must not eat all threads."""


class CallableEndpoint:
    """A function `f(message)`."""

    def __init__(
        self,
        function: Callable[[Message], Any] | Callable[[Message], Awaitable[Any]],
        *,
        final: type[Exception] | tuple[type[Exception], ...] = (),
        seconds: float = 30.0,
    ) -> None:
        if not callable(function):
            raise ConfigurationError("a CallableEndpoint needs a function of one argument, the message")
        types = final if isinstance(final, tuple) else (final,)
        if not all(isinstance(one, type) and issubclass(one, Exception) for one in types):
            raise ConfigurationError("final must contain exception types, such as (ValueError,)")
        self._function = function
        self._final = types
        self._seconds = check_positive("seconds", seconds, SECONDS_MAX)
        self._running: dict[str, Future[DeliveryOutcome]] = {}
        self._guard = threading.Lock()

    def __repr__(self) -> str:
        return f"CallableEndpoint({getattr(self._function, '__qualname__', type(self._function).__name__)})"

    @property
    def seconds_max(self) -> float:
        """How long a try may take. Set the timeouts inside of a plain function lower than this."""
        return self._seconds

    def deliver(self, message: Message) -> DeliveryOutcome:
        """Try once, or wait for the try that still runs."""
        with self._guard:
            future = self._running.get(message.id)
            if future is None:
                if len(self._running) >= RUNNING_MAX:
                    return DeliveryFailed(f"{RUNNING_MAX} calls of this function are still running; it was not called")
                future = self._running[message.id] = Future()
                try:
                    context = copy_context()
                    threading.Thread(
                        target=context.run, args=(self._run, message, future), name="onceward-deliver", daemon=True
                    ).start()
                except RuntimeError:
                    del self._running[message.id]
                    return DeliveryFailed("no thread could be started for the function; it was not called")
        try:
            return future.result(self._seconds)
        except FutureTimeout:
            return DeliveryFailed(
                f"the function was still running after {self._seconds:g} seconds; it may have had its effect"
            )

    def _run(self, message: Message, future: Future[DeliveryOutcome]) -> None:
        try:
            outcome = self._outcome(message)
        except BaseException as error:  # SystemExit, too: a function does not end the relay.
            outcome = self._judged(error)
        with self._guard:
            del self._running[message.id]
        future.set_result(outcome)

    def _outcome(self, message: Message) -> DeliveryOutcome:
        returned = self._function(message)
        if inspect.isawaitable(returned):
            returned = asyncio.run(self._awaited(returned))
        if isinstance(returned, Delivered | DeliveryFailed | DeliveryRefused | EndpointGone):
            return returned
        return Delivered("the function returned")

    async def _awaited(self, awaitable: Awaitable[Any]) -> Any:
        async with asyncio.timeout(self._seconds):
            return await awaitable

    def _judged(self, error: BaseException) -> DeliveryOutcome:
        # The type alone: what an error says may have anything in it, and reasons are kept and shown.
        reason = f"the function raised {type(error).__name__}"
        if isinstance(error, self._final):
            return DeliveryRefused(f"{reason}, which is listed as final")
        wait = DEFAULT.judge(error).wait if isinstance(error, Exception) else None
        return DeliveryFailed(reason, None if wait is None else min(wait, RETRY_AFTER_MAX))
