"""
Where a file retries: loops that try again, decorators and blocks of retry libraries, an `except` that does it again.

A loop over items that skips the bad ones is no retry: a loop counts only if it has no items (`while`, `range`), goes on
after an exception (or a response to be retried), and ends with the first success.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from onceward._core.key_ingredients import TIME_OR_ATTEMPT, words_of
from onceward.lint.python.names import PythonFile, calls_in, keyword_of, last_name, walk_here
from onceward.lint.python.scopes import FUNCTIONS, FunctionNode, self_attribute

DECORATORS: Final = {
    "tenacity.retry": "tenacity",
    "stamina.retry": "stamina",
    "backoff.on_exception": "backoff",
    "backoff.on_predicate": "backoff",
    "retrying.retry": "retrying",
    "retry.retry": "retry",
    "retry.api.retry": "retry",
    "retry2.retry": "retry2",
}
"""Decorators that call a function again, with their library."""
BLOCKS: Final = {
    "tenacity.Retrying()": "tenacity",
    "tenacity.AsyncRetrying()": "tenacity",
    "stamina.retry_context()": "stamina",
}
"""What is looped over, so that the block within is done again."""
CALLERS: Final = {
    "tenacity.Retrying()": "tenacity",
    "tenacity.AsyncRetrying()": "tenacity",
    "tenacity.retry()": "tenacity",
    "stamina.RetryingCaller()": "stamina",
    "stamina.AsyncRetryingCaller()": "stamina",
    "retry.api.retry_call": "retry",
    "retry.retry_call": "retry",
    "backoff.on_exception()": "backoff",
}
"""What is called with a function, and calls it again."""
_PAUSE: Final = re.compile(r"delay|backoff|pause|sleep|(?:^|_)wait")
TASK_RETRIES: Final = frozenset({"autoretry_for", "retry_backoff"})
"""Arguments of a Celery task that make it run again by itself."""


@dataclass(frozen=True, slots=True)
class RetryPlace:
    """Something that is done again after a failure."""

    node: ast.AST
    """What is marked: the loop, the decorator, the handler."""
    bodies: tuple[ast.AST, ...]
    """What is done again."""
    library: str = ""
    """Empty: written by hand."""
    handlers: tuple[ast.ExceptHandler, ...] = ()
    policy: ast.Call | None = None
    """The call that says how: `retry(stop=...)`."""
    statuses_only: bool = False
    """It goes on after a response that is looked at, and not after an exception."""
    function: FunctionNode | None = None


@lru_cache(maxsize=1)
def retry_places(file: PythonFile) -> list[RetryPlace]:
    """Every retry of a file, in the order of the text; found once for all rules."""
    return [place for node in file.nodes for place in _places_at(file, node)]


@lru_cache(maxsize=1)
def _by_body(file: PythonFile) -> dict[ast.AST, RetryPlace]:
    return {body: place for place in reversed(retry_places(file)) for body in place.bodies}


def retry_around(file: PythonFile, node: ast.AST) -> RetryPlace | None:
    """The retry that does a node again: a loop or block around it, or a decorator of its function."""
    inner = file.function_of(node)
    for one in (node, *file.above(node)):
        place = _by_body(file).get(one)
        if place is not None:
            # What is only defined inside may be called later, once.
            outer = place.function or file.function_of(one)
            return place if inner is outer or isinstance(inner, ast.Lambda) else None
    return None


def _places_at(file: PythonFile, node: ast.AST) -> Iterator[RetryPlace]:
    match node:
        case ast.For() | ast.AsyncFor() if library := _called(file, node.iter, BLOCKS):
            made = [one for one in (node.iter, *file.values_of(node.iter)) if isinstance(one, ast.Call)]
            # Without `with attempt:` an exception ends the loop, and nothing is done again.
            if any(isinstance(one, ast.With | ast.AsyncWith) for one in within_loop(node)):
                yield RetryPlace(node.iter, tuple(node.body), library, policy=made[0] if made else None)
        case ast.For() | ast.While() | ast.AsyncFor():
            yield from _loop(file, node)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            for decorator in node.decorator_list:
                library, policy = _decorator(file, decorator)
                if library:
                    yield RetryPlace(decorator, tuple(node.body), library, policy=policy, function=node)
        case ast.Call() if library := CALLERS.get(file.dotted(node.func), ""):
            for argument in node.args:
                function = file.function_named(argument)
                if function is not None:
                    bodies = function.body if isinstance(function.body, list) else [function.body]
                    yield RetryPlace(node, tuple(bodies), library, function=function)
        case ast.Try():
            yield from _second_try(file, node)


def _decorator(file: PythonFile, decorator: ast.expr) -> tuple[str, ast.Call | None]:
    """The library of a decorator that retries, and the call that says how; `three_times = retry(...)` is followed."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    policy = decorator if isinstance(decorator, ast.Call) else None
    if library := DECORATORS.get(file.dotted(called), ""):
        return library, policy
    if policy and any(one.arg in TASK_RETRIES for one in policy.keywords):
        return "Celery", policy
    for made in file.values_of(called):
        if isinstance(made, ast.Call):
            is_partial = file.dotted(made.func) == "functools.partial" and made.args
            library = DECORATORS.get(file.dotted(made.args[0] if is_partial else made.func), "")
            if library:
                return library, made
    return "", None


def _called(file: PythonFile, node: ast.expr, table: dict[str, str]) -> str:
    return table.get(file.dotted(node), "") if isinstance(node, ast.Call | ast.Name | ast.Attribute) else ""


def _loop(file: PythonFile, loop: ast.For | ast.AsyncFor | ast.While) -> Iterator[RetryPlace]:
    if not _has_no_items(file, loop):
        return
    tries = [one for one in within_loop(loop) if isinstance(one, ast.Try)]
    handlers = tuple(
        handler for one in tries for handler in one.handlers if goes_on(handler.body) and _ends_well(loop, one)
    )
    if handlers:
        yield RetryPlace(loop, tuple(loop.body), handlers=handlers)
    elif any(_goes_on_after_status(one) for one in within_loop(loop)) and _leaves(loop):
        yield RetryPlace(loop, tuple(loop.body), statuses_only=True)


def _has_no_items(file: PythonFile, loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    if isinstance(loop, ast.While):
        return True
    counted = loop.iter
    if isinstance(counted, ast.Call) and file.dotted(counted.func) == "enumerate" and counted.args:
        counted = counted.args[0]
    if isinstance(counted, ast.Call):
        name = file.dotted(counted.func)
        if name in ("range", "itertools.count"):
            # `for page in range(...)` goes through pages; a counter of attempts is called so, or not at all.
            target = words_of(loop.target.id) if isinstance(loop.target, ast.Name) else ""
            return target in TIME_OR_ATTEMPT or set(target) <= {"_"} or target in ("i", "n", "x", "k", "count", "try_")
    names = {words_of(one.id) for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
    return bool(names & TIME_OR_ATTEMPT) or any(_PAUSE.search(name) for name in names)


def within_loop(loop: ast.AST) -> Iterator[ast.AST]:
    """What one round of a loop does, without the loops and functions within it."""
    for part in getattr(loop, "body", []):
        yield from _until_loops(part)


def _until_loops(node: ast.AST) -> Iterator[ast.AST]:
    todo = [node]
    while todo:
        current = todo.pop()
        yield current
        if not isinstance(current, (*FUNCTIONS, ast.ClassDef, ast.For, ast.AsyncFor, ast.While)):
            todo += ast.iter_child_nodes(current)


def goes_on(body: list[ast.stmt]) -> bool:
    """Whether the end of these statements can be reached, or `continue` is."""
    last = body[-1]
    if any(isinstance(one, ast.Continue) for statement in body for one in walk_here(statement)):
        return True
    if isinstance(last, ast.Raise | ast.Return | ast.Break):
        return False
    if isinstance(last, ast.If) and last.orelse:
        return goes_on(last.body) or goes_on(last.orelse)
    return not (isinstance(last, ast.With | ast.AsyncWith) and not goes_on(last.body))


def _ends_well(loop: ast.AST, one: ast.Try) -> bool:
    """Whether the loop is left after a success: a return or break in the try, its else, or behind it."""
    inside = [*one.body, *one.orelse]
    if any(isinstance(leaf, ast.Return | ast.Break) for part in inside for leaf in _until_loops(part)):
        return True
    return any(isinstance(leaf, ast.Return | ast.Break) and _is_after(leaf, one) for leaf in within_loop(loop)) or (
        isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant) and _success_ends(loop, one)
    )


def _is_after(leaf: ast.AST, one: ast.Try) -> bool:
    return getattr(leaf, "lineno", 0) > (one.end_lineno or one.lineno)


def _success_ends(loop: ast.While, one: ast.Try) -> bool:
    """`while not done:` where the try sets `done`, or `while tries < 3` where it is set out of reach."""
    tested = {leaf.id for leaf in ast.walk(loop.test) if isinstance(leaf, ast.Name)}
    set_inside = {
        leaf.id
        for part in (*one.body, *one.orelse)
        for leaf in walk_here(part)
        if isinstance(leaf, ast.Name) and isinstance(leaf.ctx, ast.Store)
    }
    return bool(tested & set_inside)


def _leaves(loop: ast.AST) -> bool:
    return any(isinstance(one, ast.Return | ast.Break) for one in within_loop(loop))


def _goes_on_after_status(node: ast.AST) -> bool:
    """`if response.status_code in (500, 503): ...; continue`."""
    if not isinstance(node, ast.If) or not any(isinstance(one, ast.Continue) for one in node.body):
        return False
    tested = {words_of(one.attr) for one in ast.walk(node.test) if isinstance(one, ast.Attribute)}
    tested |= {words_of(one.id) for one in ast.walk(node.test) if isinstance(one, ast.Name)}
    return bool(tested & {"status", "status_code", "code"})


def _second_try(file: PythonFile, node: ast.Try) -> Iterator[RetryPlace]:
    """An `except` that makes the very same call again, or calls the function that it stands in."""
    function = file.function_of(node)
    tried = {ast.dump(call): call for part in node.body for call in calls_in(part) if call.args or call.keywords}
    for handler in node.handlers:
        if any(_is_task_retry(call) for part in handler.body for call in calls_in(part)):
            yield RetryPlace(handler, tuple(node.body), "Celery", handlers=(handler,), function=function)
            continue
        for call in (one for part in handler.body for one in calls_in(part)):
            if ast.dump(call) in tried:
                first = tried[ast.dump(call)]
                yield RetryPlace(call, (first,), handlers=(handler,))
            elif function is not None and file.function_named(call.func) is function:
                yield RetryPlace(call, tuple(node.body), handlers=(handler,), function=function)


def _is_task_retry(call: ast.Call) -> bool:
    """`self.retry(...)` in a task that is bound: it is put into the queue again."""
    return isinstance(call.func, ast.Attribute) and self_attribute(call.func) == "self.retry"


def ceiling_of(call: ast.Call, *names: str) -> bool:
    """Whether a policy is given one of these arguments, and not None; or arguments that are not shown."""
    if any(one.arg is None for one in call.keywords) or any(isinstance(one, ast.Starred) for one in call.args):
        return True
    given = keyword_of(call, *names)
    return given is not None and not (isinstance(given, ast.Constant) and given.value is None)


def types_of_policy(policy: ast.Call) -> list[ast.expr]:
    """The exceptions that a policy names."""
    given = keyword_of(policy, "on", "exceptions", "exception", "autoretry_for")
    if given is None:
        retry = keyword_of(policy, "retry")
        if isinstance(retry, ast.Call) and last_name(retry.func) == "retry_if_exception_type" and retry.args:
            given = retry.args[0]
    if given is None:
        return []
    return given.elts if isinstance(given, ast.Tuple | ast.List) else [given]
