"""
Operations that the code declares, read from the text: `@gate.once(key=...)`, `gate.atomic`, `gate.run`, tools.

What the text does not show (a number from elsewhere, a gate that is imported) is named as unresolved.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from onceward._core.durations import SECOND
from onceward._core.terms import DEFAULT_TERMS
from onceward.doctor.box import CodePlace
from onceward.doctor.code_facts import OperationFact
from onceward.lint.python.key_places import is_gate
from onceward.lint.python.names import PythonFile, keyword_of
from onceward.lint.python.scopes import FUNCTIONS

_FIELD: Final = re.compile(r"\{(\w+)[^{}]*\}")
_UNITS: Final = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400, "weeks": 604_800}
_TOOLS: Final = frozenset({"onceward.agents.Tool", "onceward.agents.tools.Tool"})
_LEFT_OUT: Final = frozenset({"operation", "self", "cls"})


def operation_facts(file: PythonFile) -> Iterator[OperationFact]:
    """The operations of one file, in the order of the text."""
    for node in file.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and _is_once(file, decorator):
                    yield _declared(file, decorator, node)
        elif isinstance(node, ast.Call) and file.dotted(node.func) in _TOOLS and keyword_of(node, "key") is not None:
            yield _tool(file, node)


def atomic_places(file: PythonFile) -> Iterator[CodePlace]:
    """Where record and rows commit together: `gate.atomic(connection, ...)`, `settle="inside"`."""
    for node in file.nodes:
        if isinstance(node, ast.Call) and _is_atomic(file, node):
            yield CodePlace(file.source.path, node.lineno)


def _is_atomic(file: PythonFile, call: ast.Call) -> bool:
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method == "settle_inside":
        return True
    if method == "atomic" and isinstance(call.func, ast.Attribute) and is_gate(file, call.func.value):
        return True
    said = {one.arg: _text(one.value) for one in call.keywords}
    return said.get("settle") == "inside" or said.get("guarantee") == "atomic"


def _is_once(file: PythonFile, call: ast.Call) -> bool:
    method = call.func
    return (
        isinstance(method, ast.Attribute)
        and method.attr == "once"
        and (is_gate(file, method.value) or keyword_of(call, "key") is not None)
    )


def _declared(file: PythonFile, once: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef) -> OperationFact:
    gate = once.func.value if isinstance(once.func, ast.Attribute) else once.func
    options = _Options(file, once, gate)
    parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    key = keyword_of(once, "key")
    fields = _fields(file, key)
    if fields is None:
        options.unresolved.append("key")
    left_out = _LEFT_OUT | set(_names(keyword_of(once, "exclude"))) | {_text(keyword_of(once, "connection"))}
    return OperationFact(
        place=CodePlace(file.source.path, function.lineno),
        name=_text(keyword_of(once, "name")) or function.name,
        identified_by=fields,
        compared_by=tuple(one for one in parameters if one not in left_out),
        guarantee=options.text("guarantee", DEFAULT_TERMS.guarantee),
        retain_seconds=options.seconds("retain", DEFAULT_TERMS.retain),
        tombstone_seconds=options.tombstone(),
        scope=options.scope,
        unresolved=tuple(dict.fromkeys(options.unresolved)),
        is_atomic=keyword_of(once, "connection") is not None,
    )


def _tool(file: PythonFile, call: ast.Call) -> OperationFact:
    options = _Options(file, call, None)
    fields = _fields(file, keyword_of(call, "key"))
    parent = file.parents.get(call)
    name = "tool"
    if isinstance(parent, ast.Dict):
        name = (
            next((_text(key) for key, value in zip(parent.keys, parent.values, strict=True) if value is call), "")
            or name
        )
    elif isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        name = parent.targets[0].id
    guarantee = _text(call.args[0]) if call.args else "blind"
    return OperationFact(
        place=CodePlace(file.source.path, call.lineno),
        name=name,
        identified_by=fields,
        compared_by=None,
        guarantee=guarantee or None,
        retain_seconds=options.seconds("retain", DEFAULT_TERMS.retain),
        tombstone_seconds=options.tombstone(),
        scope=None,
        unresolved=() if fields is not None else ("key",),
    )


class _Options:
    """The options of a declaration, with those of its gate behind them."""

    def __init__(self, file: PythonFile, call: ast.Call, gate: ast.expr | None) -> None:
        self._file = file
        makers = [] if gate is None else [one for one in _made(file, gate) if isinstance(one, ast.Call)]
        self._maker = makers[0] if len(makers) == 1 else None
        self._call = call
        self.unresolved: list[str] = []
        scope = keyword_of(self._maker, "scope") if self._maker is not None else None
        self.scope = _text(scope) or None
        if gate is not None and (self._maker is None or (scope is not None and not self.scope)):
            self.unresolved.append("scope")
        self._is_elsewhere = gate is not None and self._maker is None

    def _value(self, name: str) -> ast.expr | None:
        own = keyword_of(self._call, name)
        return own if own is not None else keyword_of(self._maker, name) if self._maker is not None else None

    def text(self, name: str, default: str) -> str | None:
        """An option that is a word; None if the text does not show it."""
        value = self._value(name)
        if value is None:
            if self._is_elsewhere:
                self.unresolved.append(name)
                return None
            return default
        if not _text(value):
            self.unresolved.append(name)
        return _text(value) or None

    def seconds(self, name: str, default: int) -> float | None:
        """An option that is a duration."""
        value = self._value(name)
        if value is None:
            if self._is_elsewhere:
                self.unresolved.append(name)
                return None
            return default / SECOND
        found = _seconds(self._file, value)
        if found is None:
            self.unresolved.append(name)
        return found

    def tombstone(self) -> float | None:
        """How long a late retry is refused."""
        if _text(self._value("after_expiry")) == "run":
            return 0.0
        return self.seconds("tombstone", DEFAULT_TERMS.tombstone)


def _made(file: PythonFile, gate: ast.expr) -> list[ast.expr]:
    values = file.values_of(gate)
    if values:
        return values
    return [gate] if isinstance(gate, ast.Call) else []


def _fields(file: PythonFile, key: ast.expr | None) -> tuple[str, ...] | None:
    """The arguments that a key is made of."""
    for one in (key, *(file.values_of(key) if isinstance(key, ast.Name) else ())):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            return tuple(dict.fromkeys(_FIELD.findall(one.value)))
        function = one if isinstance(one, ast.Lambda) else file.function_named(one) if one is not None else None
        if isinstance(function, FUNCTIONS):
            return tuple(argument.arg for argument in (*function.args.args, *function.args.kwonlyargs))
    return None


def _seconds(file: PythonFile, node: ast.expr) -> float | None:
    """A number of seconds: 60, 24 * 3600, timedelta(hours=24), or a name for one of these."""
    for one in (node, *(file.values_of(node) if isinstance(node, ast.Name) else ())):
        if isinstance(one, ast.Call) and file.dotted(one.func).endswith("timedelta") and not one.args:
            parts = [(_UNITS.get(part.arg or ""), _number(part.value)) for part in one.keywords]
            if all(unit is not None and number is not None for unit, number in parts):
                return sum(float(unit or 0) * float(number or 0) for unit, number in parts)
        found = _number(one)
        if found is not None:
            return found
    return None


def _number(node: ast.expr) -> float | None:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return float(value)
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            one, other = _number(left), _number(right)
            return None if one is None or other is None else one * other
    return None


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _names(node: ast.expr | None) -> list[str]:
    return [_text(one) for one in node.elts] if isinstance(node, ast.Tuple | ast.List) else []
