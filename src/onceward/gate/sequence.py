# Made from sequence_async.py by `make halves`: change that file, not this one.
"""
A sequence: operations numbered from 1, strictly in order, one writer at a time.

Old numbers replay, the next one runs, a later one is `OutOfOrder`. A failure does not advance it. The mark survives
restarts and purges; results are kept for their retention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from onceward._core.operation import Found, NotFound, Outcome
from onceward._core.operation_flow import reconcile
from onceward._core.sequence_flow import operate_in_sequence
from onceward._core.terms import CallOptions, Options
from onceward.gate.call_factory import CallFactory, CallSpec
from onceward.gate.record_view import RecordView, view
from onceward.gate.sequence_calls import SequenceCalls

if TYPE_CHECKING:
    from onceward.gate import Gate


class Sequence:
    """A sequence under a `Gate`."""

    def __init__(self, gate: Gate, call_factory: CallFactory, name: str, options: Options) -> None:
        self._gate = gate
        self._numbers = SequenceCalls(call_factory, name, options)

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
        call = CallSpec(fn, request, name, probe, marked)
        prepared = self._numbers.prepare(number, call, options, awaits=False)
        return self._gate.drive(operate_in_sequence(prepared.request, self._numbers.name, number), prepared)

    def run(self, number: int, fn: Callable[..., Any], **options: Unpack[CallOptions]) -> Any:
        """Run number `number` once, if it is its turn; the value alone."""
        return self.call(number, fn, **options).answer

    def reconcile(self, number: int, answer: Found | NotFound, *, fence: int | None = None) -> RecordView:
        """Decide a number that is in doubt: `Found(result)` settles it, `NOT_FOUND` releases it."""
        about = self._numbers.about(number)
        return view(self._gate.drive(reconcile(about.request, answer, fence), about))
