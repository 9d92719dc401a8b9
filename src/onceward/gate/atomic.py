# Made from atomic_async.py by `make halves`: change that file, not this one.
"""
`with gate.atomic(connection, key) as operation:` - the block form of atomic mode.

The flow runs up to the point where it would call the function; the block is that function. Leaving the block resumes
the flow.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal

from onceward._core.flow import Flow
from onceward._core.operation import AtomicOperation, Outcome
from onceward._core.operation_flow import OperationRequest
from onceward.gate.atomic_block_base import AtomicBlockBase
from onceward.gate.effect_runner import EffectRunner
from onceward.gate.paused_flow import resume_after_call


class AtomicBlock(AtomicBlockBase):
    """A block inside the caller's transaction. It settles, or it is shown a replay."""

    def __init__(self, request: OperationRequest, flow: Flow[Outcome[Any]], performer: EffectRunner) -> None:
        super().__init__(request, flow)
        self._effect_runner = performer

    def __enter__(self) -> AtomicOperation:
        return self._begun(self._effect_runner.drive(self._opened()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if self._operation is None:
            return False
        left = self._left(self._operation, error)
        try:
            outcome = self._effect_runner.drive(resume_after_call(self._flow, left))
        except BaseException as raised:
            if raised is error:
                return False  # Let Python raise it again, with its own traceback.
            raise
        return self._shown(self._operation, outcome)
