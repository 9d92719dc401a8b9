"""
What both colours of `Sequence` share: from a number to its prepared call.
"""

from __future__ import annotations

from onceward._core.errors import ConfigurationError
from onceward._core.sequence_flow import ENTRY, NUMBER_MAX
from onceward._core.terms import Options
from onceward.gate.call_factory import CallFactory, CallSpec, PreparedCall


class SequenceCalls:
    """From a number to its flow, for both colours."""

    def __init__(self, call_factory: CallFactory, name: str, options: Options) -> None:
        self._call_factory = call_factory
        self.name = call_factory.stored_key(name)
        self._given = name
        self._options = options
        call_factory.agreed(options)

    def prepare(self, number: int, call: CallSpec, options: Options, *, awaits: bool) -> PreparedCall:
        """One number, ready to be driven."""
        if isinstance(number, bool) or not isinstance(number, int) or number > NUMBER_MAX:
            raise ConfigurationError("a sequence is numbered with whole numbers: 1, 2, 3")
        parts, changes = (self.name, str(number)), {**self._options, **options}
        given = f"{self._given} / {number}"
        return self._call_factory.prepare(parts, call, changes, awaits=awaits, kind=ENTRY, given=given)

    def about(self, number: int) -> PreparedCall:
        """Only the name of a number, for deciding it."""
        return self._call_factory.about((self.name, str(number)), ENTRY)
