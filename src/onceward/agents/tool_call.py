"""
A tool call and its identity: which run, which tool, which arguments, and which of several equal calls.

    key = hash of (run, tool, canonical arguments, nth equal call)

Not the turn: an agent that is restarted may come to the same call a turn earlier. Not the model's id: it is new
whenever the model answers anew. A business key (`Tool(key="charge:{order_id}")`) wins over all of it.

Equal calls are numbered from what the framework has stored (`number_in_history`) or, where it stores nothing, by
`AgentRun`. A call that came to no answer keeps its number: "again" then means that call, and not another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from onceward._core.canonical import canonical
from onceward._core.errors import KeyInvalid, KeyMissing
from onceward._core.key_recipes import recipe
from onceward._core.keys import length_prefixed
from onceward.agents.tools import BLIND, Tool

_DOMAIN = b"onceward/tool-call/1"


class ToolCall(NamedTuple):
    """One call that an agent wants made."""

    run: str
    """The piece of work that it belongs to: a resumed run has the name that it had."""
    tool: str
    arguments: Any
    nth: int = 0
    """How many equal calls of this run came to an answer before it."""
    id: str | None = None
    """The model's own name for it: for people and logs, never the key."""
    turn: int | None = None
    """Which answer of the model it is from: for people and logs, never the key."""
    key: str | None = None
    """A key that the caller sent along, as an MCP client may."""


def key_of_call(call: ToolCall, tool: Tool) -> str:
    """The key of a call: by the tool's template, as the caller sent it, or from its place in the run."""
    if tool.key is not None:
        return _by_template(call, tool.key)
    if call.key is not None:
        return call.key
    if not isinstance(call.run, str) or not call.run:
        raise KeyMissing(
            f"the call of {call.tool} belongs to no run, so a retry could not be told from another call; name the run "
            "after the piece of work (an order, a job), or give the tool a key: Tool(key='charge:{order_id}')"
        )
    hasher = sha256(_DOMAIN)
    for part in (call.run, call.tool, int.__repr__(call.nth)):
        hasher.update(length_prefixed(part))
    hasher.update(sha256(canonical(call.arguments)).digest())
    return hasher.hexdigest()


def _by_template(call: ToolCall, template: str | Callable[..., str]) -> str:
    made, arguments = _recipe(template), call.arguments
    missing = [name for name in made.fields if not isinstance(arguments, dict) or arguments.get(name) is None]
    if missing:
        raise KeyMissing(
            f"the key of {call.tool} is made from {', '.join(missing)}, and this call has no such argument: nothing "
            "was run. Make it a required argument of the tool, or correct the template"
        )
    return made.key(arguments)


def request_of_call(call: ToolCall) -> dict[str, Any]:
    """
    What a call asks for, and its key stands for: the tool belongs to it.

    A key that a caller sent, or a template made, may be used for two tools with equal arguments. The second is refused,
    and not given the first one's answer.
    """
    return {"tool": call.tool, "arguments": call.arguments}


def delivery_key(call: ToolCall) -> str:
    """The key of the note that a call's answer was delivered."""
    return f"delivered:{key_of_call(call, BLIND)}"


def nothing() -> None:
    """Such a note has nothing to do."""


_recipe = lru_cache(maxsize=1_000)(recipe)
"""Declared once, used by every call."""


class PastCall(NamedTuple):
    """A call in the stored history of a run."""

    id: str | None
    answered: bool
    """Whether it came to an answer: a result, and not a refusal or an error."""


def number_in_history(answers: Iterable[Iterable[PastCall]], id: str | None) -> int:
    """
    The number of the call `id` among equal calls, from the stored history.

    `answers` has, for each answer of the model, its calls that are equal to this one (same tool, equal arguments).
    A call that came to no answer leaves its number to the next one; two in one answer of the model are two calls.
    """
    done: list[bool] = []
    for calls in answers:
        free = [number for number, answered in enumerate(done) if not answered]
        for one in calls:
            number = free.pop(0) if free else len(done)
            if one.id == id:
                return number
            done[number : number + 1] = [one.answered]
    return next((number for number, answered in enumerate(done) if not answered), len(done))


def check_run(run: object) -> str:
    """The name of a run, if it can be one."""
    if not isinstance(run, str) or not run or len(run) > 1_000:
        raise KeyInvalid("the name of a run is 1 to 1,000 characters: the id of an order, a job or a thread")
    return run
