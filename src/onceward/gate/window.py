"""
A window: best-effort deduplication of equal requests for a while.

The request itself is the key. Within the window (from its first processing; not sliding; the boundary itself is
outside) an equal request replays; after it, it runs again: duplicates are accepted by design. So it is for search as
you type and the like, and refuses operations declared as money.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onceward._core.engine import operate
from onceward._core.errors import ConfigurationError
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.operation import Outcome
from onceward._core.terms import Options, Seconds
from onceward.gate.asking import WINDOW, Asking, Called

if TYPE_CHECKING:
    from onceward.gate.awaiting import AsyncGate
    from onceward.gate.blocking import Gate


WINDOW_SECONDS = 300
"""Five minutes: past it a repeat is more likely meant than retried."""


class _Requests:
    """What both colours share: from a request to its call."""

    def __init__(self, asking: Asking, name: str, seconds: Seconds | None, money: bool, options: Options) -> None:
        _refuse(money)
        self._asking = asking
        self.name = asking.stored_key(name)
        retain = WINDOW_SECONDS if seconds is None else seconds
        self._options = {"guarantee": "repeatable", **options, "retain": retain, "after_expiry": "run"}
        asking.agreed(self._options)

    def called(self, request: Any, fn: Callable[..., Any], money: bool, *, awaits: bool) -> Called:
        """One request, ready to be driven."""
        _refuse(money)
        parts = (self.name, fingerprint_canonical(request).hex())
        return self._asking.called(parts, fn, request, None, None, None, self._options, awaits=awaits, kind=WINDOW)


def _refuse(money: bool) -> None:
    if money:
        raise ConfigurationError(
            "a window lets duplicates through when it ends, so it is not for money; give each payment a key: "
            "gate.once(key=...)"
        )


class Window:
    """A window under a blocking gate."""

    def __init__(
        self, gate: Gate, asking: Asking, name: str, seconds: Seconds | None, *, money: bool, options: Options
    ) -> None:
        self._gate = gate
        self._requests = _Requests(asking, name, seconds, money, options)

    def call(self, request: Any, fn: Callable[..., Any], *, money: bool = False) -> Outcome[Any]:
        """Run `fn` unless an equal request ran within the window."""
        called = self._requests.called(request, fn, money, awaits=False)
        return self._gate.drive(operate(called.ask), called)

    def run(self, request: Any, fn: Callable[..., Any], *, money: bool = False) -> Any:
        """Same as `call`, but returns the value alone."""
        return (self.call(request, fn, money=money)).answer


class AsyncWindow:
    """Same as `Window`, but awaits."""

    def __init__(
        self, gate: AsyncGate, asking: Asking, name: str, seconds: Seconds | None, *, money: bool, options: Options
    ) -> None:
        self._gate = gate
        self._requests = _Requests(asking, name, seconds, money, options)

    async def call(self, request: Any, fn: Callable[..., Any], *, money: bool = False) -> Outcome[Any]:
        """Same as `Window.call`, but awaits."""
        called = self._requests.called(request, fn, money, awaits=True)
        return await self._gate.drive(operate(called.ask), called)

    async def run(self, request: Any, fn: Callable[..., Any], *, money: bool = False) -> Any:
        """Same as `Window.run`, but awaits."""
        return (await self.call(request, fn, money=money)).answer
