"""
The scopes of a file, and what is bound in them: parameters, imports, assignments.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TypeAlias

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
ScopeNode: TypeAlias = ast.Module | ast.ClassDef | FunctionNode

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SCOPES = (ast.Module, ast.ClassDef, *FUNCTIONS)


@dataclass(eq=False)
class Scope:
    """A module, class or function with the names that are bound in it."""

    node: ScopeNode
    parent: Scope | None
    imports: dict[str, str] = field(default_factory=dict)
    values: dict[str, list[ast.expr]] = field(default_factory=dict)
    """Name -> what is assigned to it, in order. `self.x` is a name of the class."""
    types: dict[str, ast.expr] = field(default_factory=dict)
    """Name -> annotation."""
    parameters: set[str] = field(default_factory=set)
    unclear: set[str] = field(default_factory=set)
    """Bound by a loop, an unpacking, an `except` and the like: what they stand for is not shown."""
    functions: dict[str, FunctionNode] = field(default_factory=dict)


def self_attribute(node: ast.Attribute) -> str:
    """`self.x` and `cls.x` as the name that a class has for it; empty for others."""
    is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    return f"self.{node.attr}" if is_own else ""


def evaluated_outside(node: ast.AST) -> list[ast.AST]:
    """Decorators, defaults and bases belong to the scope around a definition."""
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *node.keywords]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [*node.decorator_list]
    return []


def bind_parameters(scope: Scope, arguments: ast.arguments) -> None:
    """Put the parameters of a function into its scope."""
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if one is not None:
            scope.parameters.add(one.arg)
            if one.annotation is not None:
                scope.types[one.arg] = one.annotation


def bind(node: ast.AST, scope: Scope, scopes: dict[ast.AST, Scope], parents: dict[ast.AST, ast.AST]) -> None:
    """Put what one node binds into its scope; `self.x = ...` into that of the class."""
    match node:
        case ast.Import():
            for name in node.names:
                scope.imports[name.asname or name.name.split(".")[0]] = (
                    name.name if name.asname else name.name.split(".")[0]
                )
        case ast.ImportFrom():
            base = "." * node.level + (node.module or "")
            for name in node.names:
                scope.imports[name.asname or name.name] = f"{base}.{name.name}".removeprefix(".." if node.level else "")
        case ast.Assign():
            for target in node.targets:
                _bind_target(target, node.value, node, scope, scopes, parents)
        case ast.AnnAssign() | ast.NamedExpr():
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                scope.types[node.target.id] = node.annotation
            if node.value is not None:
                _bind_target(node.target, node.value, node, scope, scopes, parents)
        case ast.AugAssign() | ast.For() | ast.AsyncFor() | ast.comprehension():
            _bind_target(node.target, None, node, scope, scopes, parents)
        case ast.withitem() if node.optional_vars is not None:
            # `with httpx.Client() as client`: nearly always the thing itself.
            _bind_target(node.optional_vars, node.context_expr, node, scope, scopes, parents)
        case ast.ExceptHandler() if node.name:
            scope.unclear.add(node.name)
        case ast.Global() | ast.Nonlocal():
            scope.unclear.update(node.names)


def _bind_target(
    target: ast.expr,
    value: ast.expr | None,
    node: ast.AST,
    scope: Scope,
    scopes: dict[ast.AST, Scope],
    parents: dict[ast.AST, ast.AST],
) -> None:
    if isinstance(target, ast.Name):
        if value is None:
            scope.unclear.add(target.id)
        else:
            scope.values.setdefault(target.id, []).append(value)
    elif isinstance(target, ast.Attribute) and (key := self_attribute(target)):
        current: ast.AST | None = node
        while current is not None and not isinstance(current, ast.ClassDef):
            current = parents.get(current)
        if current is not None and value is not None:
            scopes[current].values.setdefault(key, []).append(value)
    elif isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            _bind_target(part, None, node, scope, scopes, parents)
    elif isinstance(target, ast.Starred):
        _bind_target(target.value, None, node, scope, scopes, parents)
