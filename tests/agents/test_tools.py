"""What a tool is: from a mapping, a decorator, or the annotations of a server that is trusted."""

from __future__ import annotations

from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest

from onceward import ConfigurationError
from onceward.agents import AgentGate, Tool, declared_tool, tool, tool_from_annotations


def test_a_mapping_wins_over_a_decorator_and_that_over_the_default() -> None:
    """What is said last and nearest to the application holds."""
    gate = AgentGate("memory://", scope="test:a", tools={"mail": Tool("read-only")}, default=Tool("repeatable"))

    assert gate.tool("mail", Tool("keyed")).kind == "read-only"
    assert gate.tool("charge", Tool("keyed")).kind == "keyed"
    assert gate.tool("other").kind == "repeatable"


def test_a_tool_of_which_nothing_is_said_is_blind() -> None:
    """Nothing is assumed."""
    assert AgentGate("memory://", scope="test:a").tool("anything").kind == "blind"


def test_the_decorator_is_found_through_others() -> None:
    """Frameworks wrap functions."""

    @tool("keyed", key="charge:{order_id}")
    def charge(order_id: str) -> None: ...

    @wraps(charge)
    def around(order_id: str) -> None: ...

    assert declared_tool(charge) == declared_tool(around) == Tool("keyed", key="charge:{order_id}")
    assert declared_tool(print) is None
    assert declared_tool(None) is None


@pytest.mark.parametrize(
    ("annotations", "kind"),
    [
        ({"readOnlyHint": True}, "read-only"),
        ({"readOnlyHint": False, "idempotentHint": True}, "repeatable"),
        (SimpleNamespace(read_only_hint=True), "read-only"),
        (SimpleNamespace(idempotentHint=True), "repeatable"),
        ({"readOnlyHint": "yes"}, None),
        ({"destructiveHint": False}, None),
        ({}, None),
        (None, None),
    ],
)
def test_annotations_say_two_things_or_nothing(annotations: Any, kind: str | None) -> None:
    """Read-only is not gated, idempotent may run again; anything else is no promise."""
    found = tool_from_annotations(annotations)

    assert (found and found.kind) == kind


@pytest.mark.parametrize(
    ("kind", "more", "says"),
    [
        ("safe", {}, "one of read-only"),
        ("probed", {}, "go together"),
        ("blind", {"probe": print}, "go together"),
        ("blind", {"options": {"guarantee": "keyed"}}, "kind is its guarantee"),
        ("keyed", {"key": "charge:{timestamp}"}, "timestamp"),
    ],
)
def test_a_tool_that_cannot_work_is_refused_where_it_is_declared(kind: Any, more: dict[str, Any], says: str) -> None:
    """Not at three in the morning."""
    with pytest.raises(ConfigurationError, match=says):
        Tool(kind, **more)


def test_options_of_a_tool_are_checked_by_the_first_call_at_the_latest() -> None:
    """An unknown option is named."""
    gate = AgentGate("memory://", scope="test:a", tools={"mail": Tool("blind", options={"laese": 3})})  # type: ignore[typeddict-unknown-key]

    with pytest.raises(ConfigurationError, match="laese"):
        gate.run("r").call("mail", {}, lambda: 1)
