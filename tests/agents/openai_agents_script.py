"""
A scripted model for the OpenAI Agents SDK, which also works with its oldest version that is supported.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from agents import Model, ModelResponse, Usage


class Script(Model):
    """Answers in turn: each a list of items, or a function of what the model reads that returns one."""

    def __init__(self, *answers: list[Any] | Callable[[Any], list[Any]]) -> None:
        self._answers = list(answers)
        self.read: list[str] = []

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        """The next answer."""
        self.read.append(str(input))
        answer = self._answers.pop(0)
        output = answer(input) if callable(answer) else answer
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *rest: Any, **more: Any) -> Any:
        """Not streamed here."""
        raise NotImplementedError


def wants(tool: str, id: str, **arguments: Any) -> ResponseFunctionToolCall:
    """A call that the model wants."""
    return ResponseFunctionToolCall(type="function_call", name=tool, call_id=id, arguments=json.dumps(arguments))


def says(text: str) -> ResponseOutputMessage:
    """What the model says at last."""
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="msg", type="message", role="assistant", status="completed", content=[content])
