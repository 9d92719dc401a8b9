"""
OW120 to OW122: how our own gates are used.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from onceward._core.key_ingredients import words_of
from onceward.lint.findings import Finding
from onceward.lint.python.effects import MONEY, effect_of
from onceward.lint.python.key_places import is_gate
from onceward.lint.python.names import PythonFile, calls_in, keyword_of, walk_here
from onceward.lint.python.scopes import FunctionNode

_RUNNERS: Final = {"run": 1, "call": 1, "step": 1}
"""Methods that take a function, with its position."""
_POLICIES: Final = frozenset({"onceward.Retry()", "onceward.retry.Retry()"})


def check_gates(file: PythonFile) -> Iterator[Finding]:
    """What is wrong with the gated functions of a file."""
    for node in file.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                yield from _decorated(file, decorator, node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from _called(file, node, node.func)


def _decorated(file: PythonFile, decorator: ast.expr, function: FunctionNode) -> Iterator[Finding]:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = file.dotted(called)
    is_once = isinstance(called, ast.Attribute) and called.attr == "once" and is_gate(file, called.value)
    if is_once or file.dotted(decorator) in _POLICIES or name in ("onceward.needs_key", "onceward.gate.needs_key"):
        if yields := _yield_of(function):
            yield _generator(file, yields)
        elif is_once and isinstance(called, ast.Attribute):
            yield from _without_guarantee(file, decorator, called.value, function)


def _called(file: PythonFile, call: ast.Call, method: ast.Attribute) -> Iterator[Finding]:
    if method.attr == "window" and is_gate(file, method.value):
        yield from _window(file, call)
    position = _RUNNERS.get(method.attr)
    if position is None or len(call.args) <= position:
        return
    owner = file.dotted(method.value)
    gate = method.value
    if owner.endswith((".plan()", ".sequence()")) and (made := _maker(file, method.value)) is not None:
        gate = made
    if not is_gate(file, gate):
        return
    function = file.function_named(call.args[position])
    if function is None:
        return
    if yields := _yield_of(function):
        yield _generator(file, call.args[position], inside=yields)
    else:
        yield from _without_guarantee(file, call, gate, function)


def _maker(file: PythonFile, node: ast.expr) -> ast.expr | None:
    """The gate behind `gate.plan("x")` or a name for it."""
    values = [node] if isinstance(node, ast.Call) else file.values_of(node)
    made = values[0] if len(values) == 1 else None
    return made.func.value if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) else None


def _without_guarantee(
    file: PythonFile, declared: ast.expr, gate: ast.expr, function: FunctionNode
) -> Iterator[Finding]:
    if not isinstance(declared, ast.Call) or _declares(declared):
        return
    makers = file.values_of(gate) if isinstance(gate, ast.Name | ast.Attribute) else [gate]
    if any(isinstance(one, ast.Call) and _declares(one) for one in makers) or not makers:
        return  # Declared for the whole gate; or a gate that comes from elsewhere, which may declare it.
    if any(isinstance(call.func, ast.Attribute) and call.func.attr == "effect" for call in calls_in(function)):
        return
    for call in calls_in(function):
        if effect := effect_of(file, call):
            message = (
                f"{file.text(call.func)} ({effect}) runs under a gate without a guarantee: a crash leaves it in doubt. "
                'Declare guarantee="keyed", "probed", "atomic" or "repeatable"; or "blind", if it is'
            )
            yield file.finding("OW120", call, message)
            return


def _declares(call: ast.Call) -> bool:
    return any(one.arg in ("guarantee", "probe", None) for one in call.keywords)


def _yield_of(function: FunctionNode) -> ast.AST | None:
    if isinstance(function, ast.Lambda):
        return None
    for one in walk_here(function):
        if isinstance(one, ast.Yield | ast.YieldFrom):
            return one
    return None


def _generator(file: PythonFile, node: ast.AST, inside: ast.AST | None = None) -> Finding:
    line = f" (it yields on line {getattr(inside, 'lineno', 0)})" if inside is not None else ""
    return file.finding(
        "OW121",
        node,
        f"a generator under a gate: its effects happen after the gate is done{line}. Use gate.hold, or return a list",
    )


def _window(file: PythonFile, call: ast.Call) -> Iterator[Finding]:
    money = keyword_of(call, "money")
    if isinstance(money, ast.Constant) and money.value is True:
        yield file.finding("OW122", money, "a window lets a late duplicate through, and this is money. Use a key")
        return
    name = call.args[0] if call.args else keyword_of(call, "name")
    texts = [one.value for one in ast.walk(name) if isinstance(one, ast.Constant)] if name is not None else []
    if name is not None and any(isinstance(text, str) and MONEY.search(words_of(text)) for text in texts):
        yield file.finding(
            "OW122", name, "a window lets a late duplicate through, and this looks like money. Use a key"
        )
