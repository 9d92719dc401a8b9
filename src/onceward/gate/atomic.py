# Made from atomic_async.py by `make halves`: change that file, not this one.
"""
`with gate.atomic(connection, key) as operation:` - the block form of atomic mode.

The operation goes up to the point where its function would be called; the block is that function. Leaving the block is
its end.
"""

from __future__ import annotations

from types import TracebackType
from typing import Literal

from onceward._core.operation import AtomicOperation
from onceward._core.operation_flow import OperationRequest
from onceward.gate.atomic_block_base import AtomicBlockBase
from onceward.gate.atomic_line import AtomicLine


class AtomicBlock(AtomicBlockBase):
    """A block inside the caller's transaction. It settles, or it is shown a replay."""

    def __init__(self, request: OperationRequest, line: AtomicLine) -> None:
        super().__init__(request)
        self._line = line

    def __enter__(self) -> AtomicOperation:
        self._enter()
        return self._begun(self._line.hold())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if self._operation is None:
            return False
        left = self._left(self._operation, error)
        try:
            outcome = self._line.end(left)
        except BaseException as raised:
            if raised is error:
                return False  # Let Python raise it again, with its own traceback.
            raise
        return self._shown(self._operation, outcome)
