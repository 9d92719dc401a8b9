"""
What a tool is: whether it has an effect, and what may be done when nobody knows whether that took place.

    read-only     has no effect; never gated
    repeatable    doing it twice is the same as doing it once
    atomic        writes rows, and settles in the same transaction (`current_operation()` has the means)
    keyed         sends `current_operation().downstream_key(...)` to a system that honours it
    probed        has a probe, which can find out whether it took place
    blind         none of these: after a crash it is in doubt, and not run again

Said in a mapping (`AgentGate(tools={...})`), with a decorator (`@tool("keyed", ...)`), or, only where told to believe
them, by the annotations of an MCP server. A mapping wins over a decorator, and that over annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

from onceward._core.errors import ConfigurationError
from onceward._core.key_recipes import recipe
from onceward._core.terms import Options

ToolKind: TypeAlias = Literal["read-only", "repeatable", "atomic", "keyed", "probed", "blind"]
Price: TypeAlias = Decimal | int | str | Callable[[Any], Decimal | int | str]
"""What a call costs, or a function of its arguments that says it."""

F = TypeVar("F", bound=Callable[..., Any])

READ_ONLY: Final = "read-only"
_KINDS = get_args(ToolKind)
_ATTRIBUTE = "__onceward_tool__"


@dataclass(frozen=True, slots=True)
class Tool:
    """
    What a tool is.

    `key` is a template over its arguments ("charge:{order_id}") or a function of them, for what must happen once
    whoever asks and however often: it wins over the call's place in its run. `check` names a read-only tool with which
    the model can see whether a call took place. `options` are those of a gate's operations, such as `lease`.
    """

    kind: ToolKind = "blind"
    key: str | Callable[..., str] | None = field(default=None, kw_only=True)
    probe: Callable[..., Any] | None = field(default=None, kw_only=True)
    """For `probed`: given the `ToolCall`, returns Found(result) or NOT_FOUND."""
    check: str | None = field(default=None, kw_only=True)
    price: Price | None = field(default=None, kw_only=True)
    """What a call costs, for `AgentGate(spend=...)`: an amount, or a function of the arguments."""
    options: Options = field(default_factory=Options, kw_only=True)

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ConfigurationError(f"a tool is one of {', '.join(_KINDS)}, not {str(self.kind)[:40]!r}")
        if (self.kind == "probed") != (self.probe is not None):
            raise ConfigurationError("Tool('probed') and probe=function go together: the probe finds out what happened")
        if self.price is not None and self.kind == READ_ONLY:
            raise ConfigurationError(
                "a read-only tool never goes through the gate, so its price would not be counted; make it "
                "Tool('repeatable', price=...)"
            )
        if "guarantee" in self.options:
            raise ConfigurationError("a tool's kind is its guarantee: leave guarantee out of its options")
        if self.key is not None:
            recipe(self.key)  # It says what is wrong with it.

    @property
    def gated(self) -> bool:
        """Whether its calls go through the gate: whether it has effects."""
        return self.kind != READ_ONLY

    def terms(self) -> Options:
        """What the gate is told about its operations."""
        said = Options(**self.options)
        if self.gated:
            said["guarantee"] = self.kind  # type: ignore[typeddict-item]  # All but the first kind are guarantees.
        if self.kind == "atomic":
            said["settle"] = "inside"  # A tool opens its own transaction: nobody can hand it one.
        return said


BLIND: Final = Tool("blind")


def tool(kind: ToolKind, **more: Any) -> Callable[[F], F]:
    """Say what a tool is where it is written: `@tool("keyed", key="charge:{order_id}")`; takes what `Tool` takes."""
    said = Tool(kind, **more)

    def mark(fn: F) -> F:
        setattr(fn, _ATTRIBUTE, said)
        return fn

    return mark


def declared_tool(fn: object) -> Tool | None:
    """What the decorator said about a function, also through decorators around it; None if it said nothing."""
    seen = 0
    while fn is not None and seen < 20:
        said = getattr(fn, _ATTRIBUTE, None)
        if isinstance(said, Tool):
            return said
        fn, seen = getattr(fn, "__wrapped__", None), seen + 1
    return None


def tool_from_annotations(annotations: object) -> Tool | None:
    """
    What the annotations of an MCP tool say. Only for servers that are trusted: whoever calls this believes them.

    A tool that is read-only is not gated, an idempotent one may run again; anything else says nothing.
    """
    if _hint(annotations, "read_only_hint", "readOnlyHint") is True:
        return Tool(READ_ONLY)
    if _hint(annotations, "idempotent_hint", "idempotentHint") is True:
        return Tool("repeatable")
    return None


def _hint(annotations: object, *names: str) -> object:
    """By either spelling: the second line of the SDK writes them in snake_case, the protocol does not."""
    for name in names:
        found = annotations.get(name) if isinstance(annotations, Mapping) else getattr(annotations, name, None)
        if found is not None:
            return found
    return None


class ToolTable:
    """What is known of an agent's tools: said in a mapping, declared with the tool, or the default."""

    def __init__(self, tools: Mapping[str, Tool], default: Tool) -> None:
        for name, said in tools.items():
            if not isinstance(said, Tool):
                raise ConfigurationError(f"tools[{name!r}] must be a Tool, such as Tool('blind')")
        self._tools = dict(tools)
        self._default = default

    def find(self, name: str, declared: Tool | None = None) -> Tool:
        """What the tool of this name is; `declared` is what its adapter knows of it."""
        return self._tools.get(name) or declared or self._default
