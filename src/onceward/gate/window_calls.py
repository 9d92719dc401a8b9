"""
The requests of a window, whoever waits for them: from a request to its call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onceward._core.errors import ConfigurationError
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.terms import Options, Seconds
from onceward.gate.call_factory import WINDOW, CallFactory, PreparedCall

WINDOW_SECONDS = 300
"""Five minutes: past it a repeat is more likely meant than retried."""


class WindowCalls:
    """From a request to its call, for both colours."""

    def __init__(self, asking: CallFactory, name: str, seconds: Seconds | None, money: bool, options: Options) -> None:
        _refuse(money)
        self._asking = asking
        self.name = asking.stored_key(name)
        retain = WINDOW_SECONDS if seconds is None else seconds
        self._options = {"guarantee": "repeatable", **options, "retain": retain, "after_expiry": "run"}
        asking.agreed(self._options)

    def called(self, request: Any, fn: Callable[..., Any], money: bool, *, awaits: bool) -> PreparedCall:
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
