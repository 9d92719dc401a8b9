"""
The tool calls in the stored messages of a run, and the number of the next one: for adapters whose history is messages.

    past = PastMessages()
    past.called("call_1", "charge", {"order": "42"})
    past.answered("call_1")
    past.number("call_2", "charge", {"order": "42"})         # 1: the second of two equal calls

The file of each protocol knows how its messages look; what makes two calls equal, and which number one has, is here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from onceward._core.key_derivation import input_hash
from onceward.agents.tool_call import PastCall, number_in_history


class WantedCall(NamedTuple):
    """A call that the model wants made, and that has no answer yet."""

    id: str
    tool: str
    arguments: Any
    """Plain data; the text itself if it is no JSON."""
    kind: str = ""
    """What the adapter needs to know when it answers."""
    free_text: bool = False
    """Whether its one argument is a text, as that of OpenAI's custom tools."""


class PastMessages:
    """What messages say about the calls of a run."""

    def __init__(self) -> None:
        self._turns: list[list[WantedCall]] = []
        self._told: dict[str, bool] = {}
        self._open = False
        self.turn = 0
        """How many answers of the model with calls there are."""

    def called(self, id: str, tool: str, arguments: Any, kind: str = "", *, free_text: bool = False) -> None:
        """The model has asked for this. Calls with nothing between them are of one answer of the model."""
        if not self._open:
            self._turns.append([])
            self._open, self.turn = True, self.turn + 1
        self._turns[-1].append(WantedCall(id, tool, arguments, kind, free_text))

    def next_turn(self) -> None:
        """Something else than a call: the next call is of another answer of the model."""
        self._open = False

    def answered(self, id: str, *, result: bool = True) -> None:
        """This call has an answer: its result, or something that is none (a refusal, an error)."""
        self._open = False
        self._told[id] = result

    def knows(self, id: str) -> bool:
        """Whether this call is in the messages."""
        return any(one.id == id for turn in self._turns for one in turn)

    def wanted(self) -> list[WantedCall]:
        """The calls of the last answer of the model that have no answer yet, in its order."""
        last = self._turns[-1] if self._turns else []
        return [one for one in last if one.id not in self._told]

    def equal_calls(self, tool: str, arguments: Any) -> list[list[PastCall]]:
        """For each answer of the model its calls that are equal to this one."""
        wanted = input_hash(arguments)
        return [
            [
                PastCall(one.id, self._told.get(one.id, False))
                for one in turn
                if one.tool == tool and (one.arguments is arguments or _hash(one.arguments) == wanted)
            ]
            for turn in self._turns
        ]

    def number(self, id: str | None, tool: str, arguments: Any) -> int:
        """The number of this call among its equals."""
        return number_in_history(self.equal_calls(tool, arguments), id)


def _hash(arguments: Any) -> str | None:
    try:
        return input_hash(arguments)
    except Exception:
        return None  # Not plain data: equal to nothing.


def arguments_of(text: Any) -> Any:
    """The arguments of a call, which are JSON as a text. Text that is no JSON is left as it is."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text) if text.strip() else {}
    except ValueError:
        return text


def field(thing: Any, name: str) -> Any:
    """A field of a message, which is a dict or an object of an SDK."""
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def text_of(content: Any) -> str | None:
    """The text of an answer, if it is one: a text, or one block of it."""
    if isinstance(content, list | tuple) and len(content) == 1:
        content = field(content[0], "text")
    return content if isinstance(content, str) else None


def model_content(value: Any) -> Any:
    """What a model reads of a result: a text, or blocks of content as they are; anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(field(one, "type"), str) for one in value):
        return [one if isinstance(one, Mapping) else one.model_dump(mode="json", exclude_none=True) for one in value]
    return json.dumps(value, ensure_ascii=False, default=str)
