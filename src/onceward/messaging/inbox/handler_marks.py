"""
Whether a module's source marks a handler, found by reading it: nothing is imported, not even the package around it.

A stored row names `package.module:function`. Importing a module runs it, so the mark is looked for before: a function
under `@handler(...)` in the file, `name = handler(...)(function)`, or an import of the name from a file that has it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_HOME = "onceward.messaging.inbox"
IMPORTS_MAX = 8
"""How many files a name is followed through."""
SOURCE_BYTES_MAX = 4_000_000


def find_source(module: str) -> Path | None:
    """The file of a module that could be imported; None if it has no source. Raises ModuleNotFoundError for none."""
    places: list[str] | None = None
    found: ModuleSpec | None = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}".lstrip(".")
        found = PathFinder.find_spec(name, places)
        if found is None:
            raise ModuleNotFoundError(f"no module named {name!r}", name=name)
        places = list(found.submodule_search_locations or ())
    origin = None if found is None else found.origin
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def is_marked(module: str, name: str, steps: int = IMPORTS_MAX) -> bool:
    """Whether the source of a module marks this name as a handler, itself or where it imports it from."""
    file = find_source(module)
    if file is None or steps <= 0:
        return False
    with file.open("rb") as opened:
        read = opened.read(SOURCE_BYTES_MAX)
    try:
        tree = ast.parse(read)
    except (SyntaxError, ValueError, RecursionError):
        return False
    known = dict(_onceward_names(tree))
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=defined) if defined == name:
                if any(_is_mark(one, known) for one in statement.decorator_list):
                    return True
            case ast.Assign(targets=[ast.Name(id=bound)], value=ast.Call(func=called)) if bound == name:
                if _is_mark(called, known):
                    return True
            case ast.ImportFrom():
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        return is_marked(_absolute(statement, module, file), alias.name, steps - 1)
            case _:
                continue
    return False


def _absolute(statement: ast.ImportFrom, module: str, file: Path) -> str:
    if not statement.level:
        return statement.module or ""
    package = module.split(".")
    package = package[: len(package) - statement.level + (file.name == "__init__.py")]
    return ".".join([*package, *filter(None, [statement.module])])


def _onceward_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names that this file gives to things of Onceward's, with what they are."""
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").partition(".")[0] == "onceward":
            for alias in statement.names:
                yield alias.asname or alias.name, f"{statement.module}.{alias.name}"
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name.partition(".")[0] == "onceward":
                    yield (alias.asname, alias.name) if alias.asname else ("onceward", "onceward")


def _is_mark(node: ast.expr, known: dict[str, str]) -> bool:
    """Whether an expression is a call of `handler`."""
    if not isinstance(node, ast.Call):
        return False
    parts: list[str] = []
    called = node.func
    while isinstance(called, ast.Attribute):
        parts.insert(0, called.attr)
        called = called.value
    if not isinstance(called, ast.Name) or called.id not in known:
        return False
    full = ".".join([known[called.id], *parts])
    return full.startswith(_HOME) and full.rpartition(".")[2] == "handler"
