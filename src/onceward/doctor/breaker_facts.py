"""
Circuit breakers, and the calls to the outside that go through one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from onceward.doctor.box import CodePlace
from onceward.doctor.code_facts import BreakerFact, EffectFact
from onceward.lint.python.effects import effect_of, is_unkeyed_effect
from onceward.lint.python.names import PythonFile, keyword_of
from onceward.lint.python.scopes import FunctionNode, Scope

_MAKER: Final = re.compile(
    r"(?:^|[.?])(?:Async)?(?:Circuit)?Breaker$|^onceward\.(?:retry\.)?breaker$|^circuitbreaker\.circuit$"
)
_BREAKER: Final = re.compile(r"(?:^|[.?])(?:Async)?(?:Circuit)?Breaker\(\)|^onceward\.(?:retry\.)?breaker\(\)|breaker$")
_THRESHOLD: Final = ("threshold", "failure_threshold", "fail_max", "max_failures", "rate")
_RECOVERY: Final = ("recovery", "recovery_timeout", "reset_timeout", "timeout_duration", "ttl")
_FALLBACK: Final = ("fallback", "fallback_function")
_CALLERS: Final = frozenset({"call", "acall", "call_async", "calling", "guard"})
_OPEN: Final = re.compile(r"CircuitOpen|CircuitBreakerError|BreakerOpen|OpenState")
_TRANSPORTS: Final = re.compile(r"^onceward\.http\.(?:httpx2?|requests)\.\w+$")
"""Our own transports have a breaker for each host."""


def breaker_facts(file: PythonFile) -> Iterator[BreakerFact]:
    """The breakers that a file makes."""
    for node in file.nodes:
        if isinstance(node, ast.Call) and _MAKER.search(file.dotted(node.func)):
            threshold, recovery = keyword_of(node, *_THRESHOLD), keyword_of(node, *_RECOVERY)
            yield BreakerFact(
                CodePlace(file.source.path, node.lineno),
                file.text(threshold) if threshold is not None else None,
                file.text(recovery) if recovery is not None else None,
                keyword_of(node, *_FALLBACK) is not None,
            )


def fallbacks(file: PythonFile) -> Iterator[CodePlace]:
    """Where a file catches an open circuit."""
    for node in file.nodes:
        if isinstance(node, ast.ExceptHandler) and node.type is not None and _OPEN.search(ast.unparse(node.type)):
            yield CodePlace(file.source.path, node.lineno)


def effect_facts(file: PythonFile) -> Iterator[EffectFact]:
    """The calls of a file that change something outside."""
    covered = _covered_functions(file)
    imports = [one for node in file.nodes if isinstance(node, ast.ImportFrom) for one in _imported(node)]
    sends = any(_TRANSPORTS.match(one) for one in imports)
    gated = any(one.startswith("onceward.") for one in imports)  # The linter looks at those that are not, one by one.
    classes = {one.name for one in file.nodes if isinstance(one, ast.ClassDef)}
    for node in file.nodes:
        if not isinstance(node, ast.Call) or _is_inside(file, node.func, classes):
            continue
        effect = effect_of(file, node)
        if effect not in ("", "INSERT"):
            yield EffectFact(
                CodePlace(file.source.path, node.lineno),
                file.text(node.func),
                effect,
                gated or not is_unkeyed_effect(file, node),
                sends or _is_covered(file, node, covered),
            )


def _imported(node: ast.ImportFrom) -> list[str]:
    return [f"{node.module}.{one.name}" for one in node.names] if node.module else []


def _scopes(file: PythonFile, node: ast.AST) -> Iterator[Scope]:
    scope: Scope | None = file.scope_of(node)
    while scope is not None:
        yield scope
        scope = scope.parent


def _is_inside(file: PythonFile, called: ast.expr, classes: set[str]) -> bool:
    """Whether a function or a class of this very file is called: what it does outside is looked at there."""
    if file.function_named(called) is not None:
        return True
    owner = called.value if isinstance(called, ast.Attribute) else None
    if isinstance(owner, ast.Name):
        types = [one for scope in _scopes(file, owner) if (one := scope.types.get(owner.id)) is not None]
        annotated = ast.unparse(types[0]) if types else ""
        return file.dotted(owner).removeprefix("?").removesuffix("()") in classes or annotated in classes
    if isinstance(owner, ast.Attribute) and (around := file.class_of(owner)) is not None:
        declared = [one for one in around.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
        return any(
            isinstance(one.target, ast.Name) and one.target.id == owner.attr and ast.unparse(one.annotation) in classes
            for one in declared
        )
    return False


def is_breaker(file: PythonFile, node: ast.expr) -> bool:
    """Whether an expression is a breaker, by what the file shows or by its name."""
    name = file.dotted(node)
    return bool(_BREAKER.search(name)) and not name.endswith(".call()")


def _covered_functions(file: PythonFile) -> set[FunctionNode]:
    """Functions that a breaker calls: `breaker.call(fn)`, `@breaker`, `once(..., breaker=...)`."""
    found: set[FunctionNode] = set()
    for node in file.nodes:
        if _is_guarding(file, node) and isinstance(node, ast.Call):
            found |= {one for argument in node.args if (one := file.function_named(argument)) is not None}
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                if is_breaker(file, decorator) or (
                    isinstance(decorator, ast.Call) and keyword_of(decorator, "breaker") is not None
                ):
                    found.add(node)
    return found


def _is_covered(file: PythonFile, call: ast.Call, covered: set[FunctionNode]) -> bool:
    for node in file.above(call):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and node in covered:
            return True
        if isinstance(node, ast.With | ast.AsyncWith) and any(
            isinstance(one.context_expr, ast.Call)
            and isinstance(one.context_expr.func, ast.Attribute)
            and is_breaker(file, one.context_expr.func.value)
            for one in node.items
        ):
            return True
        if _is_guarding(file, node):
            return True
    return False


def _is_guarding(file: PythonFile, node: ast.AST) -> bool:
    """`breaker.call(...)` and the like."""
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in _CALLERS and is_breaker(file, called.value)
