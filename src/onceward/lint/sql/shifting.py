"""
Statements that were read as a text of their own, put at their place in the whole.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

T = TypeVar("T")


def shifted(value: T, by: int, not_before: int = 0) -> T:
    """The same statement with all its places moved."""
    moved: Any = _shift(value, by, not_before)
    return moved  # type: ignore[no-any-return]


def _shift(value: Any, by: int, not_before: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_shift(one, by, not_before) for one in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed: dict[str, Any] = {}
    for field in fields(value):
        old = getattr(value, field.name)
        if field.name in ("at", "end"):
            changed[field.name] = max(old + by, not_before)
        elif isinstance(old, tuple) or is_dataclass(old):
            changed[field.name] = _shift(old, by, not_before)
    return replace(value, **changed)
