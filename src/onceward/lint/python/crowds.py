"""
Who comes back: many callers of one service, one person at a keyboard, a process that talks to its own neighbour, or a
listener that is meant to go on for ever.
"""

from __future__ import annotations

import ast
import re
from pathlib import PurePath
from typing import Final

from onceward._core.key_ingredients import words_of
from onceward.lint.python.names import PythonFile, calls_in, last_name, walk_here, word_set
from onceward.lint.python.retry_places import RetryPlace
from onceward.lint.python.waiting import NAME_MAX

_BY_HAND: Final = word_set("cli commands scripts examples benchmarks bin samples demos")
"""Folders of what one person starts."""
_COMMANDS: Final = frozenset({"command", "callback", "group", "argument", "option"})
_NEIGHBOUR: Final = re.compile(
    r"localhost|127\.0\.0\.1|0\.0\.0\.0|sidecar|(?:^|_)daemon(?:_|$)|unix:|dev_?server|emulator", re.IGNORECASE
)
_LISTENS: Final = re.compile(
    r"(?:^|_)(?:listen\w*|consum\w*|subscri\w*|stream\w*|watch\w*|recv|receive\w*|websockets?|ws|connect\w*|reconnect\w*|"
    r"serve\w*|forever|poll\w*|worker|daemon|tail|follow|keep_?alive|heartbeat|iter_\w+|aiter_\w+)(?:_|$)"
)
_NETWORK: Final = word_set(
    "requests httpx aiohttp urllib urllib3 boto3 botocore smtplib grpc redis psycopg2 psycopg pymongo kafka "
    " pika stripe socket websockets websocket http"
)
_CHANCE: Final = re.compile(
    r"random|jitter|uniform|retry_?after|retry_?in(?:_|$)|(?:limit|quota|window)_?reset|reset_?(?:at|in|time|after|seconds)",
    re.IGNORECASE,
)
_SAID: Final = re.compile(r"retry-after|ratelimit-reset|rate-limit-reset|retry_after", re.IGNORECASE)


def touches_network(file: PythonFile, place: RetryPlace) -> bool:
    """Whether what is done again asks something outside, and not a server of its own next to it."""
    texts = (one.value for body in place.bodies for one in ast.walk(body) if isinstance(one, ast.Constant))
    names = (getattr(one, "attr", "") or getattr(one, "id", "") for body in place.bodies for one in ast.walk(body))
    if any(isinstance(one, str) and _NEIGHBOUR.search(one[:1000]) for part in (texts, names) for one in part):
        return False
    if any(_NEIGHBOUR.search(file.text(call)) for call in _callers(file, place)):
        return False
    for body in place.bodies:
        for call in calls_in(body):
            name = file.dotted(call.func)
            if name.split(".")[0].removesuffix("()") in _NETWORK:
                return True
            if (
                isinstance(call.func, ast.Attribute)
                and call.func.attr in ("get", "post", "put", "patch", "delete", "request", "fetch", "send")
                and re.search(r"(?:^|_)(?:session|client|http|api)$", words_of(last_name(call.func.value)))
            ):
                return True
    return False


def _callers(file: PythonFile, place: RetryPlace) -> list[ast.Call]:
    """Where this file calls the function that retries: the address often stands there."""
    name = getattr(place.function or file.function_of(place.node), "name", "")
    calls = (one for one in file.nodes if isinstance(one, ast.Call))
    return [one for one in calls if name and last_name(one.func) == name]


def is_started_by_hand(file: PythonFile, node: ast.AST) -> bool:
    """
    Whether one person starts it: a command, a script, an example, or a file that nothing can import, because its name
    is no name (`client.backup.py`).
    """
    path = PurePath(file.source.path.replace("\\", "/"))
    stem = path.name.partition(".")[0]
    is_module = path.suffix != ".py" or path.name == f"{stem}.py"
    if not is_module or stem in ("cli", "__main__") or _BY_HAND & {*path.parts[-4:-1]}:
        return True
    functions = (one for one in file.above(node) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    for one in functions:
        called = (each.func if isinstance(each, ast.Call) else each for each in one.decorator_list)
        if one.name == "main" or any(last_name(each) in _COMMANDS for each in called):
            return True
    return False


def goes_on_for_ever(file: PythonFile, place: RetryPlace) -> bool:
    """
    Whether it is a listener, a consumer or a connection that is to be kept, which is right never to give up: it says
    so, or what is done again goes through things as they come.
    """
    name = getattr(place.function or file.function_of(place.node), "name", "")
    if _LISTENS.search(words_of(name[:NAME_MAX])):
        return True
    for body in place.bodies:
        if any(
            isinstance(one, ast.For | ast.AsyncFor | ast.While | ast.Yield | ast.YieldFrom) for one in walk_here(body)
        ):
            return True
        if any(_LISTENS.search(words_of(last_name(call.func)[:NAME_MAX])) for call in calls_in(body)):
            return True
    return False


def names_chance(place: RetryPlace) -> bool:
    """Whether a retry rolls dice somewhere, or waits as long as the other side says."""
    for body in place.bodies:
        for one in ast.walk(body):
            text = getattr(one, "attr", "") or getattr(one, "id", "")
            if isinstance(text, str) and _CHANCE.search(text):
                return True
            if isinstance(one, ast.Constant) and isinstance(one.value, str) and _SAID.search(one.value[:1000]):
                return True
    return False
