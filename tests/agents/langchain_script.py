"""A chat model that follows a script: LangChain's own fakes refuse to be given tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

Script = Callable[[list[BaseMessage]], AIMessage]


class ScriptedModel(BaseChatModel):
    """Answers what its script says to the messages that it is given."""

    script: Script

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **more: Any) -> Any:
        """Its script knows the tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *unused: Any, **more: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.script(messages))])


def turns(*answers: AIMessage) -> Script:
    """A script of one answer for each turn since the user's last message, by what the history has: not by a counter."""

    def script(messages: list[BaseMessage]) -> AIMessage:
        since = 0
        for message in messages:
            since = 0 if message.type == "human" else since + (message.type == "ai")
        return answers[min(since, len(answers) - 1)].model_copy(deep=True)

    return script


def calls(*wanted: tuple[str, str, dict[str, Any]]) -> AIMessage:
    """An answer with tool calls: their id, their tool and their arguments."""
    return AIMessage("", tool_calls=[ToolCall(id=id, name=name, args=arguments) for id, name, arguments in wanted])


DONE = AIMessage("done")


def read(messages: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    """What the model reads of its tools: status and text of each result."""
    return [(message.status, str(message.content)) for message in messages if isinstance(message, ToolMessage)]
