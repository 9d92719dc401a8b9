"""
OW110 to OW112: writes that are done again without a key.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from onceward.lint.findings import Finding
from onceward.lint.python.effects import is_key_field, is_unkeyed_effect, names_asker
from onceward.lint.python.names import PythonFile, calls_in, keyword_of
from onceward.lint.python.refusals import proves_nothing_happened
from onceward.lint.python.retry_places import CALLERS, RetryPlace, retry_places

_RETRY_COUNTS: Final = ("max_retries", "retries", "num_retries", "max_network_retries", "retry_count", "max_retry")
_KEYS_BY_ITSELF: Final = ("stripe", "onceward", "openai", "anthropic", "botocore", "boto3", "httpx", "httpx2")
"""Libraries whose own retries send a key, or come before anything was sent."""
_POLICY_MODULES: Final = ("urllib3.Retry", "urllib3.util.Retry", "urllib3.util.retry.Retry")


def check_unkeyed_retries(file: PythonFile) -> Iterator[Finding]:
    """What is retried in a file and must not be."""
    told: set[int] = set()
    for place in retry_places(file):
        if proves_nothing_happened(place):
            continue
        for body in place.bodies:
            for call in calls_in(body):
                effect = is_unkeyed_effect(file, call)
                if effect and id(call) not in told and not _is_outside_try(file, place, call):
                    told.add(id(call))
                    yield _finding(file, place, call, effect)
    for node in file.nodes:
        if isinstance(node, ast.Call):
            yield from _retried_argument(file, node)
            yield from _transport(file, node)
            yield from _client(file, node)


def _finding(file: PythonFile, place: RetryPlace, call: ast.Call, effect: str) -> Finding:
    what = f"{file.text(call.func)} ({effect})"
    if place.library:
        message = (
            f"{what} is retried by {place.library} without a key: if its response is lost, it is done twice. Send a key"
        )
        return file.finding("OW111", call, message)
    message = f"{what} is retried without a key: if its response is lost, it is done twice. Send a key"
    return file.finding("OW110", call, message)


def _is_outside_try(file: PythonFile, place: RetryPlace, call: ast.Call) -> bool:
    """In a loop: whether the call stands in a handler or behind the try, so that its failure ends the loop."""
    if not place.handlers or not isinstance(place.node, ast.For | ast.While | ast.AsyncFor):
        return False
    tries = [file.parents.get(handler) for handler in place.handlers]
    above = {*file.above(call)}
    return not any(isinstance(one, ast.Try) and any(part in above for part in one.body) for one in tries)


def _retried_argument(file: PythonFile, call: ast.Call) -> Iterator[Finding]:
    """`retry_call(requests.post, ...)`: the write itself is handed over."""
    if file.dotted(call.func) in CALLERS:
        for argument in call.args:
            name = file.dotted(argument) if isinstance(argument, ast.Attribute | ast.Name) else ""
            if name in ("requests.post", "httpx.post", "requests.Session().post", "httpx.Client().post"):
                library = CALLERS[file.dotted(call.func)]
                yield file.finding("OW111", argument, f"{name} is retried by {library} without a key. Send a key")


def _transport(file: PythonFile, call: ast.Call) -> Iterator[Finding]:
    """`urllib3.Retry(allowed_methods=None)`: the transport sends a POST again by itself."""
    if not file.dotted(call.func).endswith(_POLICY_MODULES):
        return
    methods = keyword_of(call, "allowed_methods", "method_whitelist")
    if methods is None:
        return
    for one in (methods, *file.values_of(methods)):
        repeats_all = isinstance(one, ast.Constant) and one.value in (None, False)
        names = {leaf.value for leaf in ast.walk(one) if isinstance(leaf, ast.Constant)}
        if (repeats_all or "POST" in names) and _posts(file) and not _keyed_nearby(file, call):
            what = "every method" if repeats_all else "POST"
            message = f"the transport retries {what} by itself, without a key. Retry where the key is known"
            yield file.finding("OW112", methods, message)
            return


def _posts(file: PythonFile) -> bool:
    """Whether the file sends a POST that is more than a question: many allow the method and never use it."""
    return file.remembered("posts", file.tree, lambda: any(_is_post(file, one) for one in file.nodes))


def _is_post(file: PythonFile, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and is_unkeyed_effect(file, node) == "POST"


def _keyed_nearby(file: PythonFile, node: ast.AST) -> bool:
    """Whether the file sends something by which a request is known again, or the client only asks for tokens."""
    owner, function = file.class_of(node), file.function_of(node)
    if names_asker(getattr(owner, "name", "")) or names_asker(getattr(function, "name", "")):
        return True
    return file.remembered("fields", file.tree, lambda: _sends_key(file))


def _sends_key(file: PythonFile) -> bool:
    if "idempot" in file.source.text.lower():
        return True
    for one in file.nodes:
        text = one.value if isinstance(one, ast.Constant) else getattr(one, "id", "")
        if isinstance(text, str) and len(text) < 60 and is_key_field(text.upper().removesuffix("_HEADER")):
            return True
    return False


def _client(file: PythonFile, call: ast.Call) -> Iterator[Finding]:
    """A client that was made with `max_retries=3`, and writes without a key."""
    effect = is_unkeyed_effect(file, call) if isinstance(call.func, ast.Attribute) else ""
    if not effect or effect == "INSERT":
        return
    root: ast.expr = call.func
    while isinstance(root, ast.Attribute | ast.Call):
        values = file.values_of(root) if isinstance(root, ast.Attribute) else []
        if values:
            root = values[0]
            break
        root = root.func if isinstance(root, ast.Call) else root.value
    values = file.values_of(root) if isinstance(root, ast.Name) else [root]
    for made in values:
        count = keyword_of(made, *_RETRY_COUNTS) if isinstance(made, ast.Call) else None
        if count is None or (isinstance(count, ast.Constant) and count.value in (0, None, False)):
            continue
        name = file.dotted(made)
        if name.split(".")[0] not in _KEYS_BY_ITSELF:
            message = f"the client retries by itself ({file.text(count)} times), and this {effect} has no key. Send one"
            yield file.finding("OW112", call, message)
