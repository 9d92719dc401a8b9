# blocking half: atomic.py
"""
`async with gate.atomic(connection, key) as operation:` - the block form of atomic mode.

The operation goes up to the point where its function would be called; the block is that function. Leaving the block is
its end.
"""

from __future__ import annotations

from types import TracebackType
from typing import Literal

from onceward._core.colour import AWAITS
from onceward._core.operation import AtomicOperation
from onceward._core.operation_flow import OperationRequest
from onceward.gate.atomic_block_base import AtomicBlockBase, is_closing_awaited
from onceward.gate.atomic_line_async import AsyncAtomicLine


class AsyncAtomicBlock(AtomicBlockBase):
    """A block inside the caller's transaction. It settles, or it is shown a replay."""

    def __init__(self, request: OperationRequest, line: AsyncAtomicLine) -> None:
        super().__init__(request)
        self._line = line

    async def __aenter__(self) -> AtomicOperation:
        self._enter()
        return self._begun(await self._line.hold())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if self._operation is None:
            return False
        left = self._left(self._operation, error)
        if AWAITS:  # noqa: SIM102 - the blocking half is without it
            if isinstance(error, GeneratorExit) and not is_closing_awaited():
                # Thrown away, perhaps by the garbage collector: nothing can be awaited. What was not committed is
                # undone with its connection.
                self._line.close()  # of no colour
                return False
        try:
            outcome = await self._line.end(left)
        except BaseException as raised:
            if raised is error:
                return False  # Let Python raise it again, with its own traceback.
            raise
        return self._shown(self._operation, outcome)
