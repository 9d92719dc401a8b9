"""
Retries that are written by hand: what a loop shows about errors, its end, and its pauses.
"""

from __future__ import annotations

import ast
import re
from typing import Final

from onceward.doctor.box import CodePlace
from onceward.doctor.code_facts import RetryFact
from onceward.lint.python.names import PythonFile, walk_here
from onceward.lint.python.retry_places import RetryPlace
from onceward.lint.python.scopes import FUNCTIONS

_NODES_MAX: Final = 3_000
_HOPS_MAX: Final = 3
_VALUES_MAX: Final = 5
"""Of one name: a generated file may assign ten thousand."""
_NETWORK: Final = re.compile(
    r"Connect|Timeout|ConnectionReset|OSError|IOError|NetworkError|TransportError|RequestException|HTTPError|"
    r"HTTPStatusError|RequestError|ServerError|URLError|BAD_GATEWAY|SERVICE_UNAVAILABLE|GATEWAY_TIMEOUT|"
    r"INTERNAL_SERVER|is_server_error"
)
_SERVER_STATUSES: Final = frozenset({"500", "502", "503", "504"})
_EVERYTHING: Final = frozenset({"Exception", "BaseException", ""})
_BASE: Final = re.compile(r"(?:^|_)(?:base|initial|delay|backoff|wait|pause|interval)(?:_|$)", re.IGNORECASE)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def mentioned(file: PythonFile, *nodes: ast.AST) -> frozenset[str]:
    """The names and numbers in some nodes, and in the functions and constants of this file that they lead to."""
    found: set[str] = set()
    done: set[ast.AST] = set()
    todo: list[tuple[ast.AST, int]] = [(node, 0) for node in nodes]
    while todo and len(done) < _NODES_MAX:
        node, hops = todo.pop()
        if node in done:
            continue
        done.add(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            found.add(str(node.value))
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
            if hops < _HOPS_MAX:
                function = file.function_named(node)
                todo += [
                    (one, hops + 1) for one in (*file.values_of(node)[-_VALUES_MAX:], *([function] if function else []))
                ]
        todo += [(one, hops) for one in ast.iter_child_nodes(node)]
    return frozenset(found)


def names_network(words: frozenset[str]) -> bool:
    """Whether any of these is what a network or a server does."""
    return bool(words & (_SERVER_STATUSES | {"Exception"})) or any(_NETWORK.search(word) for word in words)


def loop_fact(file: PythonFile, loop: ast.For | ast.AsyncFor | ast.While, place: RetryPlace) -> RetryFact:
    """What a loop that tries again shows."""
    inside = list(walk_here(loop))
    handled = [one for handler in place.handlers for one in (handler.type, *handler.body) if one is not None]
    words = mentioned(file, *handled)
    pauses = [one for one in inside if isinstance(one, ast.Call) and file.dotted(one.func).endswith(".sleep")]
    paused = [leaf for call in pauses for argument in call.args for leaf in _behind(file, argument)]
    doubles = any(_doubles(one) for one in (*inside, *paused))
    classified = place.statuses_only or all(_is_classified(file, one) for one in place.handlers)
    # Where errors are distinguished, it matters which ones are named; `except Exception` takes them all.
    named = words - {"Exception"} if classified else words
    return RetryFact(
        CodePlace(file.source.path, loop.lineno),
        "",
        classified=classified,
        network=names_network(named) or place.statuses_only or None,
        limited=_ends(loop),
        exponential=bool(pauses) and doubles,
        jitter=_jitter(file, paused) if pauses else "none",
        capped=not doubles
        or any(isinstance(one, ast.Call) and file.dotted(one.func) == "min" for one in (*inside, *paused)),
        base=_base(file, loop, pauses),
        mentions=words,
    )


def _behind(file: PythonFile, node: ast.expr) -> list[ast.AST]:
    """A pause with everything that its names stand for."""
    found: list[ast.AST] = []
    todo: list[tuple[ast.AST, int]] = [(node, 0)]
    while todo and len(found) < _NODES_MAX:
        one, hops = todo.pop()
        found.append(one)
        todo += [(child, hops) for child in ast.iter_child_nodes(one)]
        if isinstance(one, ast.Name | ast.Call) and hops < _HOPS_MAX:
            function = file.function_named(one.func if isinstance(one, ast.Call) else one)
            values = file.values_of(one)[-_VALUES_MAX:] if isinstance(one, ast.Name) else []
            todo += [(value, hops + 1) for value in (*values, *([function] if function else []))]
    return found


def _is_classified(file: PythonFile, handler: ast.ExceptHandler) -> bool:
    """Whether it takes some errors only, or asks the error what it is before it goes on."""
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    caught = {file.dotted(one) if one is not None else "" for one in types}
    if not {name.lstrip("?") for name in caught} & _EVERYTHING:
        return True
    for node in (one for part in handler.body for one in ast.walk(part)):
        if isinstance(node, ast.If):
            asks = any(isinstance(one, ast.Name) and one.id == handler.name for one in ast.walk(node.test))
            leaves = any(
                isinstance(one, ast.Raise | ast.Return | ast.Break | ast.Continue)
                for part in (*node.body, *node.orelse)
                for one in ast.walk(part)
            )
            if asks and leaves:
                return True
    return False


def _ends(loop: ast.For | ast.AsyncFor | ast.While) -> bool | None:
    if not isinstance(loop, ast.While):
        return True
    if not (isinstance(loop.test, ast.Constant) and loop.test.value):
        return True
    counts = any(isinstance(one, ast.AugAssign) for one in walk_here(loop))
    gives_up = any(isinstance(one, ast.Raise) for one in walk_here(loop))
    return True if counts and gives_up else None if gives_up else False


def _doubles(node: ast.AST) -> bool:
    """`2 ** attempt`, `1 << attempt`, `delay *= 2`, `delay = delay * 2`."""
    match node:
        case ast.BinOp(op=ast.Pow() | ast.LShift(), right=ast.Name() | ast.BinOp()):
            return True
        case ast.AugAssign(op=ast.Mult() | ast.LShift()):
            return True
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return any(
                isinstance(one, ast.BinOp)
                and isinstance(one.op, ast.Mult)
                and isinstance(one.left, ast.Name)
                and one.left.id == name
                for one in ast.walk(value)
            )
    return False


def _jitter(file: PythonFile, paused: list[ast.AST]) -> str:
    """`random.uniform(0, ceiling)` and `random.random() * ceiling` are full; any other chance is some."""
    kind = "none"
    for node in paused:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            sides = [one.func for one in (node.left, node.right) if isinstance(one, ast.Call)]
            kind = "full" if any(file.dotted(one) == "random.random" for one in sides) else kind
        if not isinstance(node, ast.Call):
            continue
        name = file.dotted(node.func)
        if name.endswith(("random.uniform", "randrange", "randint")) and node.args:
            first = node.args[0]
            return "full" if isinstance(first, ast.Constant) and not first.value else "some"
        if kind == "none" and re.search(r"random|jitter", name, re.IGNORECASE):
            kind = "some"
    return kind


def _base(file: PythonFile, loop: ast.AST, pauses: list[ast.Call]) -> str | None:
    """The first pause: a number in the pause, or a name for it with its default."""
    function = file.function_of(loop)
    if isinstance(function, FUNCTIONS):
        arguments = function.args
        named = [*arguments.posonlyargs, *arguments.args][::-1]
        pairs = [
            *zip(named, arguments.defaults[::-1], strict=False),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        for name, value in sorted(pairs, key=lambda pair: "base" not in pair[0].arg):
            if value is not None and _BASE.search(name.arg) and not re.search("max|cap", name.arg):
                return f"{name.arg}={file.text(value)}"
    for call in pauses:
        for node in (leaf for argument in call.args for leaf in _behind(file, argument)):
            around = file.parents.get(node)
            is_other = isinstance(around, ast.Call) and around is not call  # A cap, the bounds of chance.
            is_factor = isinstance(around, ast.BinOp) and isinstance(around.op, ast.Pow | ast.LShift)
            is_number = isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value
            if is_number and not is_other and not is_factor:
                return f"{ast.unparse(node)} s"
    return None
