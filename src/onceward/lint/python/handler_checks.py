"""
OW130 to OW132: handlers and guards that do not hold what they seem to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from onceward._core.key_ingredients import words_of
from onceward.lint.findings import Finding
from onceward.lint.python.effects import effect_of
from onceward.lint.python.names import PythonFile, calls_in, last_name, walk_here, word_set
from onceward.lint.python.scopes import FUNCTIONS, Scope, self_attribute

_ROUTES: Final = frozenset({"route", "post", "api_route", "add_route", "view", "websocket_route"})
_KEEPS: Final = re.compile(
    r"^(?:save|insert|bulk_create|create|get_or_create|update_or_create|add|put|execute|executemany|commit|delay|"
    r"apply_async|enqueue|enqueue_\w+|send_task|add_task|publish|produce|send_message|push|lpush|rpush|xadd|receive|"
    r"store|persist|record|insert_one|send|submit|defer|kiq|schedule|set|setnx|claim|merge|flush|start_workflow)(?:_\w+)?$"
)
_WORKS: Final = re.compile(r"^(?:process|handle|fulfil|fulfill|provision|ship|settle|credit|grant)(?:_\w+)?$")
_GUARD_WORDS: Final = re.compile(
    r"idempot|dedup|processed|seen|already|handled|once|event|message|delivery|webhook|request"
)
_DELIVERED: Final = re.compile(
    r"idempot|dedup|(?:event|message|msg|delivery|request|webhook|order|payment|charge|refund|transfer|notification|"
    r"transaction|operation|update|job|task)\w*(?:_id|_key|_hash|id\b|hash|\.id\b|\[.id.\])"
)
"""Keys of what may come again: ids of events, messages, requests and orders."""
_OF_ONE_RUN: Final = re.compile(
    r"(?:State|Session|Context|Conversation|Stream|Turn|Parser|Visitor|Walker|Reader|Buffer)$"
)
"""Classes whose objects live for one conversation: nobody else looks into what they remember."""
_LOOKS: Final = word_set("get exists has contains sismember hexists hget aget has_key")
_INNER_LOOKS: Final = word_set("sismember hexists hget")
_SETS: Final = word_set("set setex put aset add sadd hset append")
_STORES: Final = re.compile(r"cache|redis|memcache|store|seen|processed|results|kv|db\b|_r\b|dedup|handled")


def check_handlers(file: PythonFile) -> Iterator[Finding]:
    """What is wrong with the handlers and guards of a file."""
    for node in file.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if _is_webhook(node):
                yield from _processes_first(file, node)
            yield from _check_then_set(file, node)
            yield from _derives_per_event(file, node)


def _is_webhook(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A route whose path or name says webhook."""
    for decorator in function.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        named = call.func if call else decorator
        method = last_name(named)
        path = call.args[0].value if call and call.args and isinstance(call.args[0], ast.Constant) else ""
        hooks = "hook" in str(path).lower() or "webhook" in function.name.lower()
        if hooks and (method in _ROUTES or method in ("csrf_exempt", "require_POST", "api_view")):
            return True
    return False


def _processes_first(file: PythonFile, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Finding]:
    for call in calls_in(function):
        method = last_name(call.func)
        effect = effect_of(file, call)
        if not effect and _KEEPS.match(words_of(method)):
            return
        if effect == "INSERT" or re.search(r"inbox|queue|background", file.text(call.func), re.I):
            return
        if effect or (_WORKS.match(words_of(method)) and (call.args or call.keywords)):
            if _only_verifies(method) or (not effect and _is_framework(call)):
                continue
            message = (
                f"{file.text(call.func)} processes the event before it is stored: a slow or failed delivery is "
                "repeated, and processed again. Verify it, store its id, respond with 200, and process it later"
            )
            yield file.finding("OW130", call, message)
            return


def _is_framework(call: ast.Call) -> bool:
    """`bot.process_new_updates(...)`: a framework that has a queue of its own; what it does is not shown here."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    words = words_of(last_name(owner)).split("_")
    return bool({"bot", "dispatcher", "dp", "application", "app", "adapter", "handler"} & {*words})


def _only_verifies(method: str) -> bool:
    return bool(re.search(r"verif|signature|valid|parse|load|auth|exception|error|log|request$", method, re.I))


def _check_then_set(file: PythonFile, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Finding]:
    """Look, do, then remember: two callers who look at once both do it."""
    looks: dict[tuple[str, str], ast.AST] = {}
    ordered = sorted(
        (one for one in walk_here(function) if isinstance(one, ast.Call | ast.Compare | ast.Assign | ast.Expr)),
        key=lambda one: (one.lineno, one.col_offset),
    )
    for node in ordered:
        if look := _look(file, node):
            looks.setdefault(look, node)
        elif (kept := _remember(file, node)) and kept in looks:
            first = looks[kept]
            if _is_guard(file, function, kept, first) and _acts_between(file, function, first, node):
                message = (
                    f"checks {kept[0]} first and records afterwards: two callers that check at once both act, and a "
                    "crash in between loses the record. Claim the key first, in one step (SET NX, a unique insert, "
                    "a gate)"
                )
                yield file.finding("OW131", first, message)
                return


def _look(file: PythonFile, node: ast.AST) -> tuple[str, str] | None:
    """`cache.get(key)`, `redis.exists(key)`, `key in seen`: (where, key)."""
    match node:
        case ast.Call(func=ast.Attribute(value=where, attr=method), args=[first, *_]) if method in _LOOKS:
            return ast.unparse(where), ast.unparse(node.args[-1] if method in _INNER_LOOKS else first)
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[ast.Name() | ast.Attribute() as where]):
            return ast.unparse(where), ast.unparse(key)
    return None


def _remember(file: PythonFile, node: ast.AST) -> tuple[str, str] | None:
    """`cache.set(key, ...)`, `seen.add(key)`, `seen[key] = ...`: (where, key). To set only what is absent is fine."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        return (ast.unparse(target.value), ast.unparse(target.slice))
    match node:
        case ast.Call(func=ast.Attribute(value=where, attr=method), args=[first, *rest]) if method in _SETS:
            if any(one.arg in ("nx", "if_not_exists", "only_if_absent") for one in node.keywords):
                return None
            return ast.unparse(where), ast.unparse(rest[0] if rest and method in ("sadd", "hset") else first)
    return None


def _is_guard(
    file: PythonFile, function: ast.FunctionDef | ast.AsyncFunctionDef, kept: tuple[str, str], node: ast.AST
) -> bool:
    """Whether it is about doing something once, and not about remembering an answer that may be computed again."""
    where, key = kept
    scope: Scope | None = file.scope_of(function.body[0])
    while scope is not None and isinstance(scope.node, FUNCTIONS):
        if where in scope.values:
            return False  # Made in this very call: nobody else looks into it.
        scope = scope.parent
    owner = file.class_of(function)
    if owner is not None and _OF_ONE_RUN.search(owner.name):
        return False
    store: ast.expr | None = (
        node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    )
    if isinstance(node, ast.Compare):
        held = node.comparators[0]
        if isinstance(held, ast.Attribute) and not self_attribute(held):
            return False  # `state.seen`: of whatever was handed in, which may be new for every call.
    is_redis = store is not None and file.dotted(store).startswith(("redis.", "valkey."))
    if not is_redis and not _STORES.search(where.lower()):
        return False
    key_node = node.args[-1] if isinstance(node, ast.Call) else node.left if isinstance(node, ast.Compare) else None
    for value in file.values_of(key_node) if key_node is not None else ():
        key += f" {ast.unparse(value)}"
    named = f"{key} {function.name} {owner.name if owner else ''} {where}".lower()
    return bool(_GUARD_WORDS.search(named) and _DELIVERED.search(words_of(key) + " " + key.lower()))


def _acts_between(
    file: PythonFile, function: ast.FunctionDef | ast.AsyncFunctionDef, first: ast.AST, last: ast.AST
) -> bool:
    """Whether something between the two acts outside."""
    start, end = getattr(first, "end_lineno", 0), getattr(last, "lineno", 0)
    calls = (one for one in calls_in(function) if one is not first and one is not last)
    return any(start <= call.lineno <= end and _acts(file, call) for call in calls)


def _acts(file: PythonFile, call: ast.Call) -> bool:
    """
    An effect, an operation that was handed in, or a processor. What the file shows is judged by what it does, and not
    by its name.
    """
    if effect_of(file, call) or (isinstance(call.func, ast.Name) and file.is_parameter(call.func)):
        return True
    shown = file.function_named(call.func)
    if shown is not None:
        return any(effect_of(file, one) for one in calls_in(shown))
    method = words_of(last_name(call.func))
    return bool(_WORKS.match(method)) or method in ("operation", "handler", "callback", "func", "fn", "send", "publish")


def _derives_per_event(file: PythonFile, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Finding]:
    """A balance that is derived after each emit: the cost grows with every event."""
    for loop in walk_here(function):
        if not isinstance(loop, ast.For | ast.AsyncFor | ast.While):
            continue
        emitters: set[str] = set()
        for part in loop.body:
            for call in calls_in(part):
                if isinstance(call.func, ast.Attribute):
                    owner = ast.unparse(call.func.value)
                    if call.func.attr == "emit":
                        emitters.add(owner)
                    elif call.func.attr in ("derive", "derive_balance") and owner in emitters:
                        message = (
                            "derives the balance after every emit. Derive once, when someone asks or before an invoice"
                        )
                        yield file.finding("OW132", call, message)
                        return
