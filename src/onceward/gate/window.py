"""
A window: best-effort deduplication of equal requests for a while.

The request itself is the key. Within the window (from its first processing; not sliding; the boundary itself is
outside) an equal request replays; after it, it runs again: duplicates are accepted by design. So it is for search as
you type and the like, and refuses operations declared as money.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from onceward._core.engine import Ask, operate
from onceward._core.errors import ConfigurationError
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.flow import Flow
from onceward._core.operation import Outcome
from onceward.gate.asking import WINDOW, Asking, Invoke, checked_body, invoker
from onceward.gate.declaring import name_of

if TYPE_CHECKING:
    from onceward.gate.awaiting import AsyncGate
    from onceward.gate.blocking import Gate

T = TypeVar("T")

WINDOW_SECONDS = 300
"""Five minutes: past it a repeat is more likely meant than retried."""


class _Requests:
    """What both colours share: from a request to its flow."""

    def __init__(
        self, asking: Asking, name: str, seconds: float | timedelta | None, money: bool, options: dict[str, Any]
    ) -> None:
        if money:
            raise ConfigurationError(
                "a window lets duplicates through when it ends, so it is not for money; give each payment a key: "
                "gate.once(key=...)"
            )
        self._asking = asking
        self.name = asking.stored_key(name)
        retain = WINDOW_SECONDS if seconds is None else seconds
        fixed = {"guarantee": "repeatable", **options, "retain": retain, "after_expiry": "run"}
        self._terms = asking.agreed(fixed)

    def flow(
        self, request: Any, fn: Callable[..., Any], awaits: bool, money: bool
    ) -> tuple[Flow[Outcome[Any]], Ask, Invoke]:
        if money:
            raise ConfigurationError("a window is not for money: give each payment a key with gate.once(key=...)")
        body = checked_body(fn, self._terms, awaits=awaits)
        parts = (self.name, fingerprint_canonical(request).hex())
        ask = self._asking.ask(parts, request, self._terms, kind=WINDOW, operation=name_of(fn), marked=body.marked)
        return operate(ask), ask, invoker(fn, body)


class Window:
    """A window under a blocking gate."""

    def __init__(
        self,
        gate: Gate,
        asking: Asking,
        name: str,
        seconds: float | timedelta | None,
        *,
        money: bool,
        options: dict[str, Any],
    ) -> None:
        self._gate = gate
        self._requests = _Requests(asking, name, seconds, money, options)

    def call(self, request: Any, fn: Callable[..., T], *, money: bool = False) -> Outcome[T]:
        """Run `fn` unless an equal request ran within the window."""
        flow, ask, invoke = self._requests.flow(request, fn, False, money)
        return self._gate.drive(flow, ask, invoke)

    def run(self, request: Any, fn: Callable[..., T], *, money: bool = False) -> T:
        """Same as `call`, but returns the value alone."""
        return self.call(request, fn, money=money).value


class AsyncWindow:
    """Same as `Window`, but awaits."""

    def __init__(
        self,
        gate: AsyncGate,
        asking: Asking,
        name: str,
        seconds: float | timedelta | None,
        *,
        money: bool,
        options: dict[str, Any],
    ) -> None:
        self._gate = gate
        self._requests = _Requests(asking, name, seconds, money, options)

    async def call(self, request: Any, fn: Callable[..., Any], *, money: bool = False) -> Outcome[Any]:
        """Same as `Window.call`, but awaits."""
        flow, ask, invoke = self._requests.flow(request, fn, True, money)
        return await self._gate.drive(flow, ask, invoke)

    async def run(self, request: Any, fn: Callable[..., Any], *, money: bool = False) -> Any:
        """Same as `Window.run`, but awaits."""
        return (await self.call(request, fn, money=money)).value
