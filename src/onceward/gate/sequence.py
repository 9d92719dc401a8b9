"""
A sequence: operations numbered from 1, strictly in order, one writer at a time.

Old numbers replay, the next one runs, a later one is `OutOfOrder`. A failure does not advance it. The mark survives
restarts and purges; results are kept for their retention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from onceward._core.engine import Ask
from onceward._core.errors import ConfigurationError
from onceward._core.flow import Flow
from onceward._core.operation import Outcome
from onceward._core.sequence import ENTRY, NUMBER_MAX, take
from onceward.gate.asking import Asking, Invoke, checked_body, invoker
from onceward.gate.declaring import name_of

if TYPE_CHECKING:
    from onceward.gate.awaiting import AsyncGate
    from onceward.gate.blocking import Gate

T = TypeVar("T")


class _Numbers:
    """What both colours share: from a number to its flow."""

    def __init__(self, asking: Asking, name: str, options: dict[str, Any]) -> None:
        self._asking = asking
        self.name = asking.stored_key(name)
        self._options = options
        asking.agreed(options)

    def flow(
        self,
        number: int,
        fn: Callable[..., Any],
        awaits: bool,
        *,
        request: Any,
        probe: Callable[..., Any] | None,
        options: dict[str, Any],
    ) -> tuple[Flow[Outcome[Any]], Ask, Invoke]:
        if isinstance(number, bool) or not isinstance(number, int) or number > NUMBER_MAX:
            raise ConfigurationError("a sequence is numbered with whole numbers: 1, 2, 3")
        terms = self._asking.agreed({**self._options, **options})
        body = checked_body(fn, terms, awaits=awaits, probe=probe)
        ask = self._asking.ask(
            (self.name, str(number)),
            request,
            terms,
            kind=ENTRY,
            operation=name_of(fn),
            marked=body.marked,
            probes=probe is not None,
        )
        return take(ask, self.name, number), ask, invoker(fn, body)


class Sequence:
    """A sequence under a blocking gate."""

    def __init__(self, gate: Gate, asking: Asking, name: str, options: dict[str, Any]) -> None:
        self._gate = gate
        self._numbers = _Numbers(asking, name, options)

    def call(
        self,
        number: int,
        fn: Callable[..., T],
        *,
        request: Any = None,
        probe: Callable[..., Any] | None = None,
        **options: Any,
    ) -> Outcome[T]:
        """Run number `number` once, if it is its turn."""
        flow, ask, invoke = self._numbers.flow(number, fn, False, request=request, probe=probe, options=options)
        return self._gate.drive(flow, ask, invoke, probe)

    def run(self, number: int, fn: Callable[..., T], **options: Any) -> T:
        """Same as `call`, but returns the value alone."""
        return self.call(number, fn, **options).value


class AsyncSequence:
    """Same as `Sequence`, but awaits."""

    def __init__(self, gate: AsyncGate, asking: Asking, name: str, options: dict[str, Any]) -> None:
        self._gate = gate
        self._numbers = _Numbers(asking, name, options)

    async def call(
        self,
        number: int,
        fn: Callable[..., Any],
        *,
        request: Any = None,
        probe: Callable[..., Any] | None = None,
        **options: Any,
    ) -> Outcome[Any]:
        """Same as `Sequence.call`, but awaits."""
        flow, ask, invoke = self._numbers.flow(number, fn, True, request=request, probe=probe, options=options)
        return await self._gate.drive(flow, ask, invoke, probe)

    async def run(self, number: int, fn: Callable[..., Any], **options: Any) -> Any:
        """Same as `Sequence.run`, but awaits."""
        return (await self.call(number, fn, **options)).value
