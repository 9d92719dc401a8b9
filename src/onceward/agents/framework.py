"""
What an adapter says about its framework: the seam for whoever writes one.

    FRAMEWORK = Framework("myframework", dump=dump, load=load, plain=plain, control_flow=(Interrupt,))

    result = gate.call(ToolCall(run, name, arguments, nth, id), function, framework=FRAMEWORK)
    if isinstance(result, ForModel): ...    # not run now, or failed: words for the model

`dump` makes plain data of the framework's own result, and `load` the result of that. `plain` makes a result of what a
probe found, or a person reconciled: plain data of their own. A result that `dump` must not keep is raised:

    raise NotFinal(result)       it asks for something first (input, approval): the key is free again
    raise FailedResult(result)   the framework has made a result of an error: nobody knows what happened
    return NotKept(result)       it happened, and cannot be given back later (a retry is refused)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onceward._core.errors import NothingHappened
from onceward.agents.tool_call import ToolCall


class NotFinal(NothingHappened):
    """The result asks for something first, and the call will come again. Nothing happened; the key is free again."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class FailedResult(Exception):
    """The framework made a result of an error. It is never stored as a success."""

    def __init__(self, result: Any, message: str = "") -> None:
        super().__init__(message)
        self.result = result


class NotKept:
    """A result that cannot be given back later. It happened: a retry is refused, and told so."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _as_it_is(value: Any) -> Any:
    return value


def _as_it_was(value: Any, call: ToolCall) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Framework:
    """What an adapter says about its framework, once."""

    name: str
    dump: Callable[[Any], Any] = _as_it_is
    """From the framework's result to plain data."""
    load: Callable[[Any, ToolCall], Any] = _as_it_was
    """From what `dump` made to the framework's result, for this call."""
    plain: Callable[[Any, ToolCall], Any] = _as_it_was
    """From what a probe found or a person reconciled to the framework's result, for this call."""
    control_flow: tuple[type[BaseException], ...] = ()
    """Exceptions that are no failures (an interrupt, an approval): they pass through, and the key is free again."""

    def stored(self, result: Any) -> Any:
        """A result as it is stored: with the framework's name, so that it is told from what a person gave."""
        dumped = self.dump(result)
        if isinstance(dumped, NotKept) or self.dump is _as_it_is:
            return dumped
        return {_FRAMEWORK: self.name, _RESULT: dumped}

    def restored(self, value: Any, call: ToolCall) -> Any:
        """The framework's result from what was stored."""
        if isinstance(value, NotKept):
            return value.value
        if isinstance(value, dict) and value.keys() == _ENVELOPE and value[_FRAMEWORK] == self.name:
            return self.load(value[_RESULT], call)
        return self.plain(value, call)


_FRAMEWORK, _RESULT = "framework", "result"
_ENVELOPE = {_FRAMEWORK, _RESULT}

PLAIN = Framework("plain")
"""Tools that return plain data, as in a loop of your own."""
