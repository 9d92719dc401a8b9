"""
What a key is made of: the names and the fixed texts in the expression that makes it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from onceward._core.key_ingredients import words_of
from onceward.doctor.box import CodePlace
from onceward.doctor.code_facts import KeyFact
from onceward.lint.python.key_places import KeyPlace, key_places
from onceward.lint.python.names import PythonFile

_NODES_MAX: Final = 200
"""Of one key's expression and what is behind its names: people write a dozen."""
_HOPS_MAX: Final = 3
_FIELD: Final = re.compile(r"\{(\w+)[^{}]*\}")
_WORD: Final = re.compile(r"[A-Za-z]{3,}")
_OPERATION: Final = re.compile(r"(?:^|_)(?:operation|tool|action|kind|type|topic|endpoint|tool_name)(?:_|$)")
_OURS: Final = re.compile(r"(?:^|\.)(?:derive|downstream_key|key_of|derive_key)$")
"""What makes keys of ours: they name their operation, and are the same for the same input."""
_PLAIN: Final = frozenset({"str", "repr", "format", "join", "encode", "hexdigest", "sha256", "dumps", "int", "lower"})
"""What changes the form of a key, and not what it is made of."""


def key_facts(file: PythonFile) -> Iterator[KeyFact]:
    """The keys of one file."""
    for place in key_places(file):
        if not place.is_reference:
            yield _fact(file, place)


def _fact(file: PythonFile, key: KeyPlace) -> KeyFact:
    names, texts, opaque, ours = _ingredients(file, key.value, is_template=key.is_template)
    given = not texts and _is_handed_on(file, key.value) and not ours
    return KeyFact(
        place=CodePlace(file.source.path, getattr(key.node, "lineno", 1)),
        used_by=_user(file, key),
        made_of=tuple(dict.fromkeys(names)),
        words=tuple(texts),
        is_given=given,
        names_operation=ours
        or any(_WORD.search(text) for text in texts)
        or any(_OPERATION.search(words_of(name)) for name in names),
        is_opaque=opaque,
    )


def _is_handed_on(file: PythonFile, value: ast.expr) -> bool:
    """Whether a name that nothing of this file is assigned to, or a field of something, is the whole key."""
    seen = 0
    while isinstance(value, ast.Name) and (values := file.values_of(value)) and seen < _HOPS_MAX:
        value, seen = values[-1], seen + 1
    if isinstance(value, ast.Await):
        value = value.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("get", "header"):
        return True  # headers.get("Idempotency-Key")
    return isinstance(value, ast.Name | ast.Attribute | ast.Subscript)


def _ingredients(file: PythonFile, value: ast.expr, *, is_template: bool) -> tuple[list[str], list[str], bool, bool]:
    """Names, texts, whether a function that is not shown makes it, and whether one of ours does."""
    if is_template and isinstance(value, ast.Constant):
        text = str(value.value)
        return _FIELD.findall(text), [one for one in _FIELD.split(text)[::2] if one], False, False
    names: list[str] = []
    texts: list[str] = []
    opaque = ours = False
    todo: list[tuple[ast.AST, int]] = [(value, 0)]
    seen = 0
    while todo and seen < _NODES_MAX:
        node, hops = todo.pop(0)
        seen += 1
        match node:
            case ast.Constant(value=str(text)):
                texts += [text] if text.strip(" :/-_.|") else []
            case ast.Name():
                values = file.values_of(node)
                if values and hops < _HOPS_MAX:
                    todo += [(one, hops + 1) for one in values[-1:]]
                else:
                    names.append(node.id)
            case ast.Attribute():
                names.append(node.attr)
            case ast.Subscript(slice=ast.Constant(value=str(name))):
                names.append(name)
            case ast.Call():
                called = file.dotted(node.func)
                ours = ours or bool(_OURS.search(called))
                known = called.rpartition(".")[2].lstrip("?") in _PLAIN
                opaque = opaque or not (known or ours)
                names += [one.arg for one in node.keywords if ours and one.arg]
                owner = node.func.value if isinstance(node.func, ast.Attribute) and known else None
                todo += [(one, hops) for one in (owner, *node.args, *(one.value for one in node.keywords)) if one]
            case _:
                todo += [(one, hops) for one in ast.iter_child_nodes(node)]
    return names, texts, opaque, ours


def _user(file: PythonFile, key: KeyPlace) -> str:
    """What is called with the key, or what it is assigned to."""
    for node in (key.node, *file.above(key.node)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return node.name
        if isinstance(node, ast.Call) and node is not key.value:
            decorated = file.parents.get(node)
            if isinstance(decorated, ast.FunctionDef | ast.AsyncFunctionDef) and node in decorated.decorator_list:
                return decorated.name
            return file.text(node.func)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            function = file.function_of(node)
            return getattr(function, "name", "") or PurePath(file.source.path).stem
    return PurePath(file.source.path).stem
