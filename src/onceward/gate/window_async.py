# blocking half: window.py
"""
A window: best-effort deduplication of equal requests for a while.

The request itself is the key. Within the window (from its first processing; not sliding; the boundary itself is
outside) an equal request replays; after it, it runs again: duplicates are accepted by design. So it is for search as
you type and the like, and refuses operations declared as money.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onceward._core.colour import AWAITS
from onceward._core.operation import Outcome
from onceward._core.terms import Options, Seconds
from onceward.gate.call_factory import CallFactory
from onceward.gate.window_calls import WindowCalls

if TYPE_CHECKING:
    from onceward.gate import AsyncGate


class AsyncWindow:
    """A window under an `AsyncGate`."""

    def __init__(
        self,
        gate: AsyncGate,
        call_factory: CallFactory,
        name: str,
        seconds: Seconds | None,
        *,
        money: bool,
        options: Options,
    ) -> None:
        self._gate = gate
        self._requests = WindowCalls(call_factory, name, seconds, money, options)

    async def call(self, request: Any, fn: Callable[..., Any], *, money: bool = False) -> Outcome[Any]:
        """Run `fn` unless an equal request ran within the window."""
        prepared = self._requests.prepare(request, fn, money, awaits=AWAITS)
        return await self._gate.operate(prepared)

    async def run(self, request: Any, fn: Callable[..., Any], *, money: bool = False) -> Any:
        """Run `fn` unless an equal request ran within the window; the value alone."""
        return (await self.call(request, fn, money=money)).answer
