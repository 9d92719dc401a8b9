"""
A sequence: operations numbered from 1, strictly in order, one writer at a time.

Old numbers replay, the next one runs, a later one is `OutOfOrder`. A failure does not advance it. The mark survives
restarts and purges; results are kept for their retention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from onceward._core.engine import reconcile
from onceward._core.errors import ConfigurationError
from onceward._core.operation import Found, NotFound, Outcome
from onceward._core.sequence import ENTRY, NUMBER_MAX, take
from onceward._core.terms import CallOptions, Options
from onceward.gate.asking import Asking, Called
from onceward.gate.records import RecordView, view

if TYPE_CHECKING:
    from onceward.gate.awaiting import AsyncGate
    from onceward.gate.blocking import Gate


class _Numbers:
    """What both colours share: from a number to its flow."""

    def __init__(self, asking: Asking, name: str, options: Options) -> None:
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
    ) -> Called:
        """One number, ready to be driven."""
        if isinstance(number, bool) or not isinstance(number, int) or number > NUMBER_MAX:
            raise ConfigurationError("a sequence is numbered with whole numbers: 1, 2, 3")
        parts, changes = (self.name, str(number)), {**self._options, **options}
        given = f"{self._given} / {number}"
        return self._asking.called(
            parts, fn, request, name, probe, marked, changes, awaits=awaits, kind=ENTRY, given=given
        )

    def about(self, number: int) -> Called:
        """Only the name of a number, for deciding it."""
        return self._asking.about((self.name, str(number)), ENTRY)


class Sequence:
    """A sequence under a blocking gate."""

    def __init__(self, gate: Gate, asking: Asking, name: str, options: Options) -> None:
        self._gate = gate
        self._numbers = _Numbers(asking, name, options)

    def call(
        self,
        number: int,
        fn: Callable[..., Any],
        *,
        request: Any = None,
        name: str | None = None,
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Unpack[Options],
    ) -> Outcome[Any]:
        """Run number `number` once, if it is its turn."""
        called = self._numbers.called(number, fn, request, name, probe, marked, options, awaits=False)
        return self._gate.drive(take(called.ask, self._numbers.name, number), called)

    def run(self, number: int, fn: Callable[..., Any], **options: Unpack[CallOptions]) -> Any:
        """Same as `call`, but returns the value alone."""
        return (self.call(number, fn, **options)).answer

    def reconcile(self, number: int, answer: Found | NotFound, *, fence: int | None = None) -> RecordView:
        """Decide a number that is in doubt: `Found(result)` settles it, `NOT_FOUND` releases it."""
        about = self._numbers.about(number)
        return view(self._gate.drive(reconcile(about.ask, answer, fence), about))


class AsyncSequence:
    """Same as `Sequence`, but awaits."""

    def __init__(self, gate: AsyncGate, asking: Asking, name: str, options: Options) -> None:
        self._gate = gate
        self._numbers = _Numbers(asking, name, options)

    async def call(
        self,
        number: int,
        fn: Callable[..., Any],
        *,
        request: Any = None,
        name: str | None = None,
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Unpack[Options],
    ) -> Outcome[Any]:
        """Same as `Sequence.call`, but awaits."""
        called = self._numbers.called(number, fn, request, name, probe, marked, options, awaits=True)
        return await self._gate.drive(take(called.ask, self._numbers.name, number), called)

    async def run(self, number: int, fn: Callable[..., Any], **options: Unpack[CallOptions]) -> Any:
        """Same as `Sequence.run`, but awaits."""
        return (await self.call(number, fn, **options)).answer

    async def reconcile(self, number: int, answer: Found | NotFound, *, fence: int | None = None) -> RecordView:
        """Same as `Sequence.reconcile`, but awaits."""
        about = self._numbers.about(number)
        return view(await self._gate.drive(reconcile(about.ask, answer, fence), about))
