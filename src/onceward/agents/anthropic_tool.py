# Made from anthropic_tool_async.py by `make halves`: change that file, not this one.
"""
A tool of Anthropic's runner behind the gate.
"""

from __future__ import annotations

from typing import Any

from anthropic.lib.tools import BetaBuiltinFunctionTool

from onceward.agents.anthropic_parts import FRAMEWORK, InvalidArguments, ToolDelegate, looked_at, told


class GatedTool(ToolDelegate, BetaBuiltinFunctionTool):
    """A tool behind the gate."""

    def call(self, input: object) -> Any:
        """Called by the runner."""
        if self._only_looks(input):
            return self._tool.call(input)

        def make() -> Any:
            try:
                return self._tool.call(input)
            except ValueError as error:
                raise looked_at(error, self._tool) from error.__cause__

        try:
            return told(self._numbered.call(self.name, input, make, framework=FRAMEWORK, declared=self._known))
        except InvalidArguments as invalid:
            raise invalid.error from invalid.__cause__
