# blocking half: anthropic_tool.py; BetaAsyncBuiltinFunctionTool=BetaBuiltinFunctionTool
"""
A tool of Anthropic's runner behind the gate.
"""

from __future__ import annotations

from typing import Any

from anthropic.lib.tools import BetaAsyncBuiltinFunctionTool

from onceward.agents.anthropic_parts import FRAMEWORK, InvalidArguments, ToolDelegate, looked_at, told


class AsyncGatedTool(ToolDelegate, BetaAsyncBuiltinFunctionTool):
    """A tool behind the gate."""

    async def call(self, input: object) -> Any:
        """Called by the runner."""
        if self._only_looks(input):
            return await self._tool.call(input)

        async def make() -> Any:
            try:
                return await self._tool.call(input)
            except ValueError as error:
                raise looked_at(error, self._tool) from error.__cause__

        try:
            return told(await self._numbered.acall(self.name, input, make, framework=FRAMEWORK, declared=self._known))
        except InvalidArguments as invalid:
            raise invalid.error from invalid.__cause__
