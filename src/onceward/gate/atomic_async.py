# blocking half: atomic.py
"""
`async with gate.atomic(connection, key) as operation:` - the block form of atomic mode.

The flow is driven up to the point where it wants the function called; the block is that function. Leaving the block
answers the flow.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal

from onceward._core.colour import AWAITS
from onceward._core.engine import Ask
from onceward._core.flow import Flow
from onceward._core.operation import Outcome, Settling
from onceward.gate.atomic_block import Block, is_awaited
from onceward.gate.held import resumed
from onceward.gate.performing import AsyncPerformer


class AsyncAtomicBlock(Block):
    """A block inside the caller's transaction. It settles, or it is shown a replay."""

    def __init__(self, ask: Ask, flow: Flow[Outcome[Any]], performer: AsyncPerformer) -> None:
        super().__init__(ask, flow)
        self._performer = performer

    async def __aenter__(self) -> Settling:
        return self._begun(await self._performer.drive(self._opened()))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if self._operation is None:
            return False
        left = self._left(self._operation, error)
        if AWAITS:  # noqa: SIM102 - the blocking half is without it
            if isinstance(error, GeneratorExit) and not is_awaited():
                # Thrown away, perhaps by the garbage collector: nothing can be awaited. What was not committed is
                # undone with its connection.
                self._flow.close()  # of no colour
                return False
        try:
            outcome = await self._performer.drive(resumed(self._flow, left))
        except BaseException as raised:
            if raised is error:
                return False  # Let Python raise it again, with its own traceback.
            raise
        return self._shown(self._operation, outcome)
