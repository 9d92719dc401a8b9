"""
The numbers of a sequence, whoever waits for them: from a number to its call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onceward._core.errors import ConfigurationError
from onceward._core.sequence_flow import ENTRY, NUMBER_MAX
from onceward._core.terms import Options
from onceward.gate.call_factory import CallFactory, PreparedCall


class SequenceCalls:
    """From a number to its flow, for both colours."""

    def __init__(self, asking: CallFactory, name: str, options: Options) -> None:
        self._asking = asking
        self.name = asking.stored_key(name)
        self._given = name
        self._options = options
        asking.agreed(options)

    def called(
        self,
        number: int,
        fn: Callable[..., Any],
        request: Any,
        name: str | None,
        probe: Callable[..., Any] | None,
        marked: bool | None,
        options: Options,
        *,
        awaits: bool,
    ) -> PreparedCall:
        """One number, ready to be driven."""
        if isinstance(number, bool) or not isinstance(number, int) or number > NUMBER_MAX:
            raise ConfigurationError("a sequence is numbered with whole numbers: 1, 2, 3")
        parts, changes = (self.name, str(number)), {**self._options, **options}
        given = f"{self._given} / {number}"
        return self._asking.called(
            parts, fn, request, name, probe, marked, changes, awaits=awaits, kind=ENTRY, given=given
        )

    def about(self, number: int) -> PreparedCall:
        """Only the name of a number, for deciding it."""
        return self._asking.about((self.name, str(number)), ENTRY)
