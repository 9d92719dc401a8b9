"""
What both colours of `Window` share: from a request to its prepared call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onceward._core.errors import ConfigurationError
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.terms import Options, Seconds
from onceward.gate.call_factory import WINDOW, CallFactory, CallSpec, PreparedCall

WINDOW_SECONDS = 300
"""Five minutes: past it a repeat is more likely meant than retried."""


class WindowCalls:
    """From a request to its call, for both colours."""

    def __init__(
        self, call_factory: CallFactory, name: str, seconds: Seconds | None, money: bool, options: Options
    ) -> None:
        _refuse(money)
        self._call_factory = call_factory
        self.name = call_factory.stored_key(name)
        retain = WINDOW_SECONDS if seconds is None else seconds
        self._options = {"guarantee": "repeatable", **options, "retain": retain, "after_expiry": "run"}
        call_factory.agreed(self._options)

    def prepare(self, request: Any, fn: Callable[..., Any], money: bool, *, awaits: bool) -> PreparedCall:
        """One request, ready to be driven."""
        _refuse(money)
        parts = (self.name, fingerprint_canonical(request).hex())
        return self._call_factory.prepare(parts, CallSpec(fn, request), self._options, awaits=awaits, kind=WINDOW)


def _refuse(money: bool) -> None:
    if money:
        raise ConfigurationError(
            "a window lets duplicates through when it ends, so it is not for money; give each payment a key: "
            "gate.once(key=...)"
        )
