"""
OW101 to OW107: what a key is made of.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from onceward._core.key_ingredients import MADE_AFRESH, words_of
from onceward._core.key_lint import lint_recipe
from onceward.lint.findings import Finding
from onceward.lint.python.effects import MONEY
from onceward.lint.python.key_parts import ATTEMPT_NAMES, Part, key_parts
from onceward.lint.python.key_places import KeyPlace, is_key_name, key_places
from onceward.lint.python.names import PythonFile, calls_in, last_name
from onceward.lint.python.refusals import proves_nothing_happened
from onceward.lint.python.retry_places import RetryPlace, retry_around, retry_places
from onceward.lint.python.scopes import FUNCTIONS, FunctionNode

_KEEPERS: Final = re.compile(
    r"^(?:save|store|insert|put|persist|set|setex|hset|write|execute|record|remember|add|append|commit|enqueue|send_task|apply_async|delay|publish)"
)


_PLACES_FOR_KEYS: Final = frozenset({"header", "headers", "query", "path", "body", "form", "cookie"})
"""What a table of a generated client says of a parameter: where it goes, and not what it is."""


def check_keys(file: PythonFile) -> Iterator[Finding]:
    """What is wrong with the keys of a file."""
    for place in key_places(file):
        yield from _judge(file, place)
    yield from _defaults(file)


def _judge(file: PythonFile, place: KeyPlace) -> Iterator[Finding]:
    if place.is_template and isinstance(place.value, ast.Constant):
        yield from _judge_template(file, place.value)
        return
    if isinstance(place.value, ast.Constant):
        if _is_shared_constant(file, place.value):
            yield file.finding("OW107", place.value, "is the same for every operation. Add the id of what it is about")
        return
    if isinstance(place.value, ast.Tuple):
        return  # The key of a dictionary of this process: one that is sent or stored is a text.
    seen: set[str] = set()
    for part in key_parts(file, place.value):
        if part.code in seen or (place.is_reference and part.code != "OW101"):
            continue
        finding = _told(file, place, part)
        if finding is not None:
            seen.add(part.code)
            yield finding


def _told(file: PythonFile, place: KeyPlace, part: Part) -> Finding | None:
    text = file.text(part.node)
    retry = retry_around(file, part.node)
    if part.code in ("OW101", "OW102") and retry is not None and _used_inside(file, place, retry):
        if proves_nothing_happened(retry):
            return None
        return file.finding(
            "OW103",
            part.node,
            f"a new key for every attempt: {text} is inside the retry. Make the key once, before the first attempt",
        )
    if part.code == "OW102" and (
        place.is_kept or place.is_fallback or place.is_returned or _is_kept(file, place) or _is_transport(file, place)
    ):
        return None
    if part.code == "OW101" and place.is_fallback:
        return None  # Whoever has a key gives it; this one is for the retries below.
    advice = {
        "OW101": f"{text} differs on every attempt, so a retry is a new operation. Use ids that are stored",
        "OW102": f"{text} is new on every call, so calling again is a new operation. Derive the key "
        "from what the operation is about, or store it before the first attempt",
        "OW104": f"{text} counts attempts, so every retry is a new operation. Leave it out of the key",
        "OW105": f"{text} belongs to this process, so a retry in another is a new operation. Use ids that are stored",
        "OW106": f"{text} is personal data, and keys are logged and sent to providers. Use an opaque id",
    }
    return file.finding(part.code, part.node, advice[part.code])


def _judge_template(file: PythonFile, node: ast.Constant) -> Iterator[Finding]:
    """By the names of the fields: the words of `lint_recipe`, which `onceward key explain --recipe` prints, too."""
    fields = {words_of(one) for one in re.findall(r"\{([^{}]*)\}", str(node.value))}
    warnings = lint_recipe(str(node.value))
    for found in warnings:
        if found.code == "K1":
            code = "OW104" if fields & ATTEMPT_NAMES else "OW101"
        elif found.code == "K3":
            code = "OW102" if fields & MADE_AFRESH else "OW105"
        elif found.code == "K2":
            # `welcome:{user_id}` may well be meant: one for each user. Of a payment it never is.
            literal = re.sub(r"\{[^{}]*\}", "", str(node.value))
            is_meant = any(one.isalpha() for one in literal) and not MONEY.search(words_of(literal))
            if is_meant or len(warnings) > 1:
                continue
            code = "OW107"
        else:
            code = "OW106"
        yield file.finding(code, node, f"{found.message}; {found.advice}")


def _used_inside(file: PythonFile, place: KeyPlace, retry: RetryPlace) -> bool:
    above = {place.value, *file.above(place.value)}
    return any(body in above for body in retry.bodies)


def _is_kept(file: PythonFile, place: KeyPlace) -> bool:
    """
    Whether the key outlives the attempt: its variable is handed to something that stores it, is used by a retry that
    begins after it was made, or is given back to the caller.
    """
    parent = file.parents.get(place.value)
    names = {one.id for one in getattr(parent, "targets", []) if isinstance(one, ast.Name)}
    if isinstance(parent, ast.AnnAssign) and isinstance(parent.target, ast.Name):
        names = {parent.target.id}
    if isinstance(place.value, ast.Name):
        names.add(place.value.id)
    function = file.function_of(place.value)
    if not names or function is None:
        return False
    return bool(names & file.remembered("kept", function, lambda: _kept_names(file, function)))


def _kept_names(file: PythonFile, function: FunctionNode) -> set[str]:
    """The names in a function that are handed to something that stores them, or that its retries only read."""
    kept = {
        one.id
        for call in calls_in(function)
        if _KEEPERS.match(last_name(call.func))
        for one in ast.walk(call)
        if isinstance(one, ast.Name)
    }
    bodies = [body for one in retry_places(file) if file.function_of(one.node) is function for body in one.bodies]
    bodies += [one for one in ast.walk(function) if one is not function and _is_retried_somehow(file, one)]
    inside = [one for body in bodies for one in ast.walk(body) if isinstance(one, ast.Name)]
    set_inside = {one.id for one in inside if isinstance(one.ctx, ast.Store)}
    return kept | {one.id for one in inside if one.id not in set_inside}


def _is_retried_somehow(file: PythonFile, node: ast.AST) -> bool:
    """A function with a decorator that is called retry, whoever wrote it."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []
    return any("retr" in file.dotted(one).lower() for one in decorators)


def _is_transport(file: PythonFile, place: KeyPlace) -> bool:
    """
    Whether it stands in what sends requests for others, makes their headers, or speaks through the client's own inner
    client or messages (`self._client.runs.create`, `runs_pb2.Create`): a key for the retries below it.
    """
    call = next((one for one in file.above(place.value) if isinstance(one, ast.Call)), None)
    if call is not None and re.search(r"\._client\.|_pb2\.|_stub\.", ast.unparse(call.func)):
        return True
    words = words_of(getattr(file.function_of(place.value), "name", "")).split("_")
    return bool({"request", "requests", "headers", "transport"} & {*words})


def _is_shared_constant(file: PythonFile, value: ast.Constant) -> bool:
    """A fixed text as the key of a call, in a function that is called for more than one thing."""
    if (
        not isinstance(value.value, str)
        or not value.value
        or is_key_name(value.value)
        or value.value in _PLACES_FOR_KEYS
        or not isinstance(file.parents.get(value), ast.keyword | ast.Dict)
    ):
        return False
    function = file.function_of(value)
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return bool({*parameters} - {"self", "cls"}) and not function.name.startswith("test")


def _defaults(file: PythonFile) -> Iterator[Finding]:
    """`def pay(idempotency_key=str(uuid4()))`: made once, when the function is defined."""
    for node in file.nodes:
        if isinstance(node, FUNCTIONS):
            arguments = [*node.args.posonlyargs, *node.args.args]
            pairs = [*zip(arguments[len(arguments) - len(node.args.defaults) :], node.args.defaults, strict=True)]
            pairs += [
                (one, value) for one, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value
            ]
            for argument, value in pairs:
                if words_of(argument.arg).endswith(("idempotency_key", "idem_key")):
                    for part in key_parts(file, value):
                        if part.code in ("OW101", "OW102"):
                            message = (
                                f"{file.text(part.node)} is made once, when the function is defined: all calls share it"
                            )
                            yield file.finding("OW107", part.node, message)
                            break
