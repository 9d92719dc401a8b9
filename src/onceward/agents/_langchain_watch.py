"""
A tool on its way through the middleware between us and it: seen when it raises, and not run again inside one claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from onceward._core.errors import NothingHappened
from onceward.agents._langchain_results import LANGCHAIN
from onceward.agents.model_text import failure_text
from onceward.agents.tool_attempt import tool_terms
from onceward.agents.tool_call import ToolCall
from onceward.agents.tools import Tool

_MAY_RUN_AGAIN: Final = frozenset({"repeatable", "keyed", "atomic"})


class WatchedTool:
    """
    A tool that is seen when it raises, and that a retry inside one claim does not run again.

    Stands in for the tool on its way through middleware that is nearer to it than ours: `ToolRetryMiddleware` would run
    a blind tool again within its claim, and `handle_tool_errors` makes a text of what it raises.
    """

    def __init__(self, tool: BaseTool, said: Tool, call: ToolCall) -> None:
        self.__dict__.update(_tool=tool, _said=said, _call=call, raised=None)

    @property  # type: ignore[misc]
    def __class__(self) -> type[BaseTool]:  # type: ignore[override]
        return type(self._tool)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_tool"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._tool, name, value)

    def invoke(self, *args: Any, **more: Any) -> Any:
        """Run it, if it may run."""
        refusal = self._refusal()
        if refusal is not None:
            return refusal
        with self._watching():
            return self._tool.invoke(*args, **more)

    async def ainvoke(self, *args: Any, **more: Any) -> Any:
        """Run it, if it may run."""
        refusal = self._refusal()
        if refusal is not None:
            return refusal
        with self._watching():
            return await self._tool.ainvoke(*args, **more)

    def _refusal(self) -> ToolMessage | None:
        if self.raised is None or self._said.kind in _MAY_RUN_AGAIN or isinstance(self.raised, self._harmless()):
            return None
        text = failure_text(self._call.tool, self._said, self.raised, in_doubt=True)
        return ToolMessage(text, status="error", tool_call_id=self._call.id or "", name=self._call.tool)

    def _harmless(self) -> tuple[type[BaseException], ...]:
        return NothingHappened, *cast(tuple[type[BaseException], ...], tool_terms(self._said, LANGCHAIN)["before"])

    @contextmanager
    def _watching(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.__dict__["raised"] = error
            raise
