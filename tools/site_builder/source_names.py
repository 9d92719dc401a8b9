"""
What the packages offer, read from their source: `__all__`, and where each name of it is defined. Nothing is imported,
so that no framework has to be installed, and nothing runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

SRC = Path(__file__).resolve().parents[2] / "src"
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Definition(NamedTuple):
    """Where a name is defined, and what stands there."""

    module: str
    name: str
    nodes: tuple[ast.stmt, ...]
    """A class, a function (with its overloads before it), or an assignment."""
    words: str | None
    """The docstring, or the text below an assignment."""


def file_of(module: str) -> Path | None:
    """The file of a module, if it is one of ours."""
    base = SRC.joinpath(*module.split("."))
    return next((file for file in (base / "__init__.py", base.with_suffix(".py")) if file.is_file()), None)


@cache
def tree_of(module: str) -> ast.Module:
    """A module of ours, parsed."""
    file = file_of(module)
    if file is None:
        raise LookupError(f"{module} is no module of this project")
    return ast.parse(file.read_text(encoding="utf-8"))


def modules() -> list[str]:
    """Every module of the project by its dotted name."""
    files = sorted((SRC / "onceward").rglob("*.py"))
    return [".".join(file.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__") for file in files]


def declared_names(module: str) -> list[str] | None:
    """`__all__` of a module; None if it has none."""
    file = file_of(module)
    if file is None or "__all__" not in file.read_text(encoding="utf-8"):
        return None
    for node in tree_of(module).body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "__all__" for to in node.targets):
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def offered_names(module: str) -> list[str]:
    """`__all__`; without one, the classes and functions that are defined there, and constants that are described."""
    declared = declared_names(module)
    if declared is not None:
        return declared
    found = dict.fromkeys(name for name, (_, there) in _imports(module).items() if name in _passed_on(module, there))
    for name, definition in _definitions(module).items():
        kind = definition.nodes[0]
        if not name.startswith("_") and (isinstance(kind, ast.ClassDef | Function) or definition.words):
            found[name] = None
    return list(found)


def find(module: str, name: str) -> Definition | None:
    """Where a name of a module is defined, through whatever imports it; None if that is outside of the project."""
    seen = set()
    while (module, name) not in seen:
        seen.add((module, name))
        if file_of(module) is None:
            return None
        if name in (here := _definitions(module)):
            return here[name]
        if name not in (imported := _imports(module)):
            return None
        module, name = imported[name]
    return None


def bases_of(definition: Definition) -> Iterator[Definition]:
    """The classes of ours that a class is made of, nearest first: itself, its bases and theirs."""
    yield definition
    node = definition.nodes[0]
    for base in node.bases if isinstance(node, ast.ClassDef) else ():
        plain = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(plain, ast.Name) and (found := find(definition.module, plain.id)) is not None:
            yield from bases_of(found)


def described(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str | None]]:
    """Statements with their words: a docstring, or the text that stands below an assignment."""
    for number, node in enumerate(body):
        if isinstance(node, ast.ClassDef | Function):
            yield node, ast.get_docstring(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            below = body[number + 1] if number + 1 < len(body) else None
            yield node, _text_of(below)


def names_of(node: ast.stmt) -> list[str]:
    """What a statement defines."""
    if isinstance(node, ast.ClassDef | Function):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [to.id for to in targets if isinstance(to, ast.Name)]


def _text_of(node: ast.stmt | None) -> str | None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return None


@cache
def _definitions(module: str) -> dict[str, Definition]:
    found: dict[str, Definition] = {}
    for body in _bodies(tree_of(module)):
        for node, words in described(body):
            for name in names_of(node):
                before = found.get(name)
                overloads = before.nodes if before and isinstance(node, Function) and _is_overload(before) else ()
                found[name] = Definition(module, name, (*overloads, node), words)
    return found


def _is_overload(definition: Definition) -> bool:
    last = definition.nodes[-1]
    return isinstance(last, Function) and any("overload" in ast.unparse(mark) for mark in last.decorator_list)


@cache
def _imports(module: str) -> dict[str, tuple[str, str]]:
    """Name -> the module it is imported from, and its name there."""
    is_package = (file := file_of(module)) is not None and file.name == "__init__.py"
    found: dict[str, tuple[str, str]] = {}
    for body in _bodies(tree_of(module)):
        for node in body:
            if isinstance(node, ast.ImportFrom):
                home = node.module or ""
                if node.level:
                    parts = module.split(".")
                    parts = parts[: len(parts) - node.level + is_package]
                    home = ".".join([*parts, home] if home else parts)
                found |= {alias.asname or alias.name: (home, alias.name) for alias in node.names}
    return found


def _passed_on(module: str, name: str) -> set[str]:
    """The name, if the module imports it to pass it on: `from home import name as name`."""
    nodes = [node for body in _bodies(tree_of(module)) for node in body if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in nodes for alias in node.names if alias.asname == alias.name == name}


def _bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """The statements of a module, and those under an `if` or a `try` of it."""
    yield tree.body
    for node in tree.body:
        if isinstance(node, ast.If | ast.Try):
            yield node.body
            yield node.orelse
