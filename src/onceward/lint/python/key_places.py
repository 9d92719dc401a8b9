"""
Where a file makes a key: the expressions that are used as one.

By name, in any spelling: an argument `idempotency_key=`, a header `"Idempotency-Key":`, a variable, what a function of
such a name returns. And by meaning, for our own gates: the first argument of `gate.run`, the template of `once`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from onceward._core.key_ingredients import words_of
from onceward.lint.python.names import PythonFile, keyword_of, word_set

KEY_NAMES: Final = word_set(
    "idempotency_key idempotent_key idempotence_key idem_key idempotency_token idempotency_id x_idempotency_key "
    "x_idempotency_token dedup_key dedupe_key deduplication_key deduplication_id message_deduplication_id "
    "client_request_token pay_pal_request_id paypal_request_id"
)
"""Names that mean a key wherever they stand, as `words_of` writes them."""
ARGUMENT_NAMES: Final = KEY_NAMES | {"client_token"}
"""As an argument: elsewhere a `client_token` may be a credential."""
REFERENCE_NAMES: Final = frozenset({"reference_id"})
"""A reference of the caller's, which deduplicates as well; others may mean other things by it."""
GATES: Final = frozenset(f"onceward.{place}{name}()" for place in ("", "gate.") for name in ("Gate", "AsyncGate"))


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """An expression that is used as a key."""

    value: ast.expr
    node: ast.AST
    """What is marked if the whole expression is meant."""
    is_template: bool = False
    """A recipe's text, with fields in braces."""
    is_reference: bool = False
    is_kept: bool = False
    """Assigned to an attribute or a field: it may well be stored with the thing that it names."""
    is_fallback: bool = False
    """Used only if the caller brings none."""
    is_returned: bool = False
    """Given back by a function that makes keys: whoever calls it may store it."""


def is_key_name(name: str | None) -> bool:
    """Whether a name means an idempotency key."""
    return bool(name) and words_of(name or "") in KEY_NAMES


def is_gate(file: PythonFile, node: ast.expr) -> bool:
    """Whether an expression is a gate of ours."""
    return file.dotted(node) in GATES


def key_places(file: PythonFile) -> Iterator[KeyPlace]:
    """Every expression that is used as a key, in the order of the text."""
    for node in file.nodes:
        for place in _places_at(file, node):
            yield _without_fallback(place)


def _places_at(file: PythonFile, node: ast.AST) -> Iterator[KeyPlace]:
    match node:
        case ast.Call():
            yield from _places_in_call(file, node)
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                if is_key_name(_constant_text(key)):
                    yield KeyPlace(value, value)
        case ast.Assign():
            for target in node.targets:
                yield from _places_in_target(file, target, node.value, node)
        case ast.AnnAssign() if node.value is not None:
            yield from _places_in_target(file, node.target, node.value, node)
        case ast.Return() if node.value is not None:
            function = file.function_of(node)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and _makes_keys(function.name):
                yield KeyPlace(node.value, node.value, is_returned=True)


def _places_in_call(file: PythonFile, call: ast.Call) -> Iterator[KeyPlace]:
    for keyword in call.keywords:
        if keyword.arg and words_of(keyword.arg) in ARGUMENT_NAMES:
            yield KeyPlace(keyword.value, keyword.value)
        elif keyword.arg and words_of(keyword.arg) in REFERENCE_NAMES:
            yield KeyPlace(keyword.value, keyword.value, is_reference=True)
    name = file.dotted(call.func)
    if name in ("onceward.recipe", "onceward.keys.recipe") and call.args:
        yield from _template(call.args[0])
    if isinstance(call.func, ast.Attribute):
        method = call.func.attr
        if method == "setdefault" and len(call.args) == 2 and is_key_name(_constant_text(call.args[0])):
            yield KeyPlace(call.args[1], call.args[1], is_fallback=True)
        elif is_gate(file, call.func.value):
            yield from _places_of_gate(method, call)
    template = keyword_of(call, "key")
    if template is not None and name in ("onceward.Retry", "onceward.retry.Retry"):
        yield from _template(template)


def _places_of_gate(method: str, call: ast.Call) -> Iterator[KeyPlace]:
    position = {"run": 0, "call": 0, "hold": 0, "atomic": 1}.get(method)
    given = keyword_of(call, "key")
    if method == "once" and given is not None:
        yield from _template(given)
    elif position is not None:
        value = given if given is not None else call.args[position] if len(call.args) > position else None
        if value is not None and not isinstance(value, ast.Starred):
            yield KeyPlace(value, value)


def _template(value: ast.expr) -> Iterator[KeyPlace]:
    if isinstance(value, ast.Lambda):
        yield KeyPlace(value.body, value.body)
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield KeyPlace(value, value, is_template=True)


def _places_in_target(file: PythonFile, target: ast.expr, value: ast.expr, node: ast.AST) -> Iterator[KeyPlace]:
    fallback = is_under_missing_key(file, node)
    if isinstance(target, ast.Name) and is_key_name(target.id):
        in_class = isinstance(file.parents.get(node), ast.ClassDef)
        yield KeyPlace(value, value, is_kept=in_class, is_fallback=fallback)
    elif isinstance(target, ast.Attribute) and is_key_name(target.attr):
        yield KeyPlace(value, value, is_kept=True, is_fallback=fallback)
    elif isinstance(target, ast.Subscript) and is_key_name(_constant_text(target.slice)):
        yield KeyPlace(value, value, is_fallback=fallback)


def is_under_missing_key(file: PythonFile, node: ast.AST) -> bool:
    """Whether it stands in `if not key:`, `if key is None:`, `if "Idempotency-Key" not in headers:` and the like."""
    for above in file.above(node):
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return False
        if isinstance(above, ast.If):
            words = {words_of(text) for one in ast.walk(above.test) for text in _texts(one)}
            if words & KEY_NAMES or any(word.endswith("key") for word in words):
                return True
    return False


def _constant_text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def _without_fallback(place: KeyPlace) -> KeyPlace:
    """`given or str(uuid4())`, `given if given else ...`: the caller may bring a key that is the same every time."""
    value = place.value
    if (isinstance(value, ast.BoolOp) and isinstance(value.op, ast.Or)) or isinstance(value, ast.IfExp):
        return replace(place, is_fallback=True)
    return place


def _makes_keys(name: str) -> bool:
    """Whether a function of this name returns a key: `make_idempotency_key`, `_idempotency_key_for`."""
    words = f"_{words_of(name)}_"
    return (
        "idempot" in words
        and any(f"_{key}_" in words for key in KEY_NAMES)
        and not words.startswith(("_is_", "_has_", "_check_", "_validate_"))
    )
