"""
What the names of one file stand for, as far as the file itself shows it: imports, assignments, annotations.

`dotted(node)` is the full name of an expression whatever it was imported as: `post` after `from requests import post`
is `requests.post`, and `session.post` after `session = requests.Session()` is `requests.Session().post`. What the file
does not show has its own spelling behind a question mark: `?client.post`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from onceward.lint.findings import Edit, Finding
from onceward.lint.python.scopes import (
    FUNCTIONS,
    SCOPES,
    FunctionNode,
    Scope,
    bind,
    bind_parameters,
    evaluated_outside,
    self_attribute,
)
from onceward.lint.source_file import SourceFile

DEPTH_MAX: Final = 12
"""Names behind names that are followed: more is no longer what a reader sees."""

Found = TypeVar("Found")


def word_set(words: str) -> frozenset[str]:
    """A set of words, written with blanks between them."""
    return frozenset(words.split())


_BUILTINS: Final = word_set(
    "abs bytes dict enumerate format frozenset hash hex id int iter len list map max min next object print range repr "
    "reversed round set sorted str sum tuple type zip"
)


class PythonFile:
    """One parsed file: its tree, with parents, scopes and the meaning of names."""

    def __init__(self, source: SourceFile, tree: ast.Module) -> None:
        self.source = source
        self.tree = tree
        self.nodes: list[ast.AST] = []
        self.parents: dict[ast.AST, ast.AST] = {}
        self._scopes: dict[ast.AST, Scope] = {}
        self._remembered: dict[tuple[str, ast.AST], Any] = {}
        self.root = Scope(tree, None)
        self._read(tree)

    def finding(self, code: str, node: ast.AST, message: str) -> Finding:
        """A finding at a node: its first line is marked."""
        line, start = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line, end = getattr(node, "end_lineno", line), getattr(node, "end_col_offset", start + 1)
        text = self.source.line(line)
        stop = len(text.rstrip()) if end_line != line else self._characters(line, end)
        return self.source.finding(code, line, self._characters(line, start) + 1, stop + 1, message)

    def edit(self, node: ast.expr, text: str) -> Edit:
        """Another text in place of an expression."""
        end_line, end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        start = self._characters(node.lineno, node.col_offset) + 1
        return Edit(node.lineno, start, end_line, self._characters(end_line, end) + 1, text)

    def _characters(self, line: int, offset: int) -> int:
        """Offsets of the tree count bytes; people and editors count characters."""
        text = self.source.line(line)
        return offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))

    def remembered(self, what: str, node: ast.AST, compute: Callable[[], Found]) -> Found:
        """What is true of a node, computed once: a rule that asks for every call must not walk its function anew."""
        key = (what, node)
        if key not in self._remembered:
            self._remembered[key] = compute()
        found: Found = self._remembered[key]
        return found

    def scope_of(self, node: ast.AST) -> Scope:
        """The scope in which a node is evaluated."""
        return self._scopes[node]

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, from the inside out."""
        current = self.parents.get(node)
        while current is not None:
            yield current
            current = self.parents.get(current)

    def function_of(self, node: ast.AST) -> FunctionNode | None:
        """The function around a node, or None."""
        return next((one for one in self.above(node) if isinstance(one, FUNCTIONS)), None)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class around a node, or None."""
        return next((one for one in self.above(node) if isinstance(one, ast.ClassDef)), None)

    def text(self, node: ast.AST) -> str:
        """How a node is written, in a few words."""
        written = ast.get_source_segment(self.source.text, node) if self.source.text.isascii() else None
        written = " ".join((written or ast.unparse(node)).split())
        return written if len(written) <= 60 else f"{written[:57]}..."

    def dotted(self, node: ast.expr, depth: int = DEPTH_MAX) -> str:
        """The full name of an expression; `()` stands for a call's result; empty for what has no name."""
        parts: list[str] = []
        while True:
            if isinstance(node, ast.Attribute):
                key = self_attribute(node)
                values = self._class_values(node, key) if key else []
                if len(values) == 1 and depth > 0:
                    return self._joined(self.dotted(values[0], depth - 1) or f"?{key}", parts)
                parts.append(node.attr)
                node = node.value
            elif isinstance(node, ast.Call):
                parts.append("()")
                node = node.func
            elif isinstance(node, ast.Await):
                node = node.value
            elif isinstance(node, ast.Name):
                return self._joined(self._named(node, depth), parts)
            else:
                return ""

    def values_of(self, node: ast.expr) -> list[ast.expr]:
        """What is assigned to a name or to an attribute of `self`, in its scope; empty if that is not shown."""
        if isinstance(node, ast.Attribute):
            key = self_attribute(node)
            return self._class_values(node, key) if key else []
        if not isinstance(node, ast.Name):
            return []
        scope = self._binder(node)
        return [] if scope is None or node.id in scope.unclear else scope.values.get(node.id, [])

    def is_parameter(self, node: ast.expr) -> bool:
        """Whether a name is a parameter of the function around it."""
        scope = self._binder(node) if isinstance(node, ast.Name) else None
        return scope is not None and isinstance(node, ast.Name) and node.id in scope.parameters

    def function_named(self, node: ast.expr) -> FunctionNode | None:
        """The function of this file that a name, a method of `self` or a lambda stands for."""
        if isinstance(node, ast.Lambda):
            return node
        if isinstance(node, ast.Attribute) and (key := self_attribute(node)):
            owner = self.class_of(node)
            return self._scopes_by_node[owner].functions.get(key.removeprefix("self.")) if owner else None
        if not isinstance(node, ast.Name):
            return None
        scope = self._binder(node)
        return scope.functions.get(node.id) if scope and not scope.values.get(node.id) else None

    def _joined(self, head: str, parts: list[str]) -> str:
        name = head
        for part in reversed(parts):
            name += part if part == "()" else f".{part}"
        return name

    def _binder(self, node: ast.Name) -> Scope | None:
        scope: Scope | None = self._scopes[node]
        first = True
        while scope is not None:
            if (first or not isinstance(scope.node, ast.ClassDef)) and (
                node.id in scope.values
                or node.id in scope.imports
                or node.id in scope.parameters
                or node.id in scope.unclear
                or node.id in scope.functions
            ):
                return scope
            scope, first = scope.parent, False
        return None

    def _named(self, node: ast.Name, depth: int) -> str:
        scope = self._binder(node)
        if scope is None:
            return node.id if node.id in _BUILTINS else f"?{node.id}"
        if node.id in scope.imports:
            return scope.imports[node.id]
        values = scope.values.get(node.id, [])
        if len(values) == 1 and node.id not in scope.unclear and depth > 0:
            return self.dotted(values[0], depth - 1) or f"?{node.id}"
        if node.id in scope.types and depth > 0:
            named = self._type_name(scope.types[node.id], depth)
            if named and not named.startswith("?"):
                return f"{named}()"
        return f"?{node.id}"

    def _type_name(self, annotation: ast.expr, depth: int) -> str:
        if isinstance(annotation, ast.BinOp):  # `Session | None`
            sides = [annotation.left, annotation.right]
            annotation = next((side for side in sides if not isinstance(side, ast.Constant)), annotation.left)
        if isinstance(annotation, ast.Subscript) and self.dotted(annotation.value, depth - 1).endswith("Optional"):
            annotation = annotation.slice
        return self.dotted(annotation, depth - 1) if isinstance(annotation, ast.Name | ast.Attribute) else ""

    def _class_values(self, node: ast.AST, key: str) -> list[ast.expr]:
        owner = self.class_of(node)
        scope = self._scopes_by_node.get(owner) if owner else None
        return [] if scope is None or key in scope.unclear else scope.values.get(key, [])

    def _read(self, tree: ast.Module) -> None:
        """Walk once, without recursion: parents, scopes, and what binds names."""
        self._scopes_by_node: dict[ast.AST, Scope] = {tree: self.root}
        todo: list[tuple[ast.AST, Scope]] = [(tree, self.root)]
        while todo:
            node, scope = todo.pop()
            self.nodes.append(node)
            self._scopes[node] = scope
            inner = scope
            if isinstance(node, SCOPES) and not isinstance(node, ast.Module):
                inner = self._scopes_by_node[node] = Scope(node, scope)
                if isinstance(node, FUNCTIONS):
                    bind_parameters(inner, node.args)
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    scope.functions[node.name] = node
            bind(node, scope, self._scopes_by_node, self.parents)
            outside = evaluated_outside(node)
            for child in reversed(list(ast.iter_child_nodes(node))):
                self.parents[child] = node
                todo.append((child, scope if child in outside else inner))
        self.nodes.sort(key=lambda one: (getattr(one, "lineno", 0), getattr(one, "col_offset", 0)))


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """The calls within a node, in the order of the text, without those in functions that are only defined there."""
    found = [one for one in walk_here(node) if isinstance(one, ast.Call)]
    yield from sorted(found, key=lambda one: (one.end_lineno or 0, one.end_col_offset or 0))


def walk_here(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is within it, without the insides of functions and classes that are defined in it."""
    todo = [node]
    while todo:
        current = todo.pop()
        yield current
        if current is not node and isinstance(current, (*FUNCTIONS, ast.ClassDef)):
            continue
        children = current.body if current is node and isinstance(current, FUNCTIONS) else None
        todo += (children if isinstance(children, list) else [children]) if children else ast.iter_child_nodes(current)


def keyword_of(call: ast.Call, *names: str) -> ast.expr | None:
    """The value of a keyword argument, by any of these names."""
    return next((one.value for one in call.keywords if one.arg in names), None)


def last_name(node: ast.expr | None) -> str:
    """The last part of a name: `ConnectError` of `httpx.ConnectError`; empty for what is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
