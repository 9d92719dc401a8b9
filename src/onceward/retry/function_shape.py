"""
What a policy needs to know about a function: whether it awaits, whether it takes the attempt, and how its key is made.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

from onceward._core.errors import ConfigurationError
from onceward._core.key_recipes import Recipe
from onceward.gate.function_inspection import function_name, is_async
from onceward.runtime.environment import Environment

ATTEMPT, TIMEOUT = "attempt", "timeout"
"""Parameters by which a function asks for the attempt itself, or for the seconds it may take."""

_log = logging.getLogger("onceward")
_ASYNC = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE
_STREAMS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


@dataclass(frozen=True, slots=True)
class FunctionShape:
    """What a policy needs to know about a function."""

    awaits: bool = False
    attempt: bool = False
    timeout: bool = False
    stream: bool = False
    names: tuple[str, ...] = ()
    """What its positional arguments are called, in order."""
    wants: bool = False
    """Whether it takes anything from us: the attempt, or its timeout."""


def shape_of(fn: Callable[..., Any]) -> FunctionShape:
    """Inspect a function. Remembered per code object: lambdas come and go."""
    if type(fn) is FunctionType:
        return _shape_of_code(fn.__code__, 0)
    if type(fn) is MethodType and type(fn.__func__) is FunctionType:
        return _shape_of_code(fn.__func__.__code__, 1)
    method = getattr(type(fn), "__call__", None)  # noqa: B004 - the method itself is looked at
    if type(method) is FunctionType and not isinstance(fn, type):
        return _shape_of_code(method.__code__, 1)
    if not callable(fn):
        raise ConfigurationError(f"a {type(fn).__name__} cannot be called. Give the policy a function")
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return FunctionShape(is_async(fn))
    named = {name for name, one in parameters.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    positional = tuple(
        n for n, one in parameters.items() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    )
    stream = inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn)
    return _shape(is_async(fn) and not stream, stream, named, positional)


def _shape(awaits: bool, stream: bool, named: Container[str], positional: tuple[str, ...]) -> FunctionShape:
    attempt, timeout = ATTEMPT in named, TIMEOUT in named
    return FunctionShape(awaits, attempt, timeout, stream, positional, attempt or timeout)


@lru_cache(maxsize=4096)
def _shape_of_code(code: CodeType, bound: int) -> FunctionShape:
    count = code.co_argcount
    named = code.co_varnames[max(code.co_posonlyargcount, bound) : count + code.co_kwonlyargcount]
    awaits, stream = bool(code.co_flags & _ASYNC), bool(code.co_flags & _STREAMS)
    return _shape(awaits, stream, named, code.co_varnames[bound:count])


def awaits(fn: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    return shape_of(fn).awaits


async def maybe_await(value: Any) -> Any:
    """Await the value if it is awaitable, and return the result; return any other value as it is."""
    return await value if inspect.isawaitable(value) else value


def check_function(fn: Callable[..., Any]) -> FunctionShape:
    """Refuse what cannot be called again, such as a generator. Returns the function's shape."""
    if isinstance(fn, staticmethod | classmethod | property):
        kind = type(fn).__name__
        raise ConfigurationError(f"the policy decorates a function, not a {kind}. Write @{kind} above the decorator")
    shape = shape_of(fn)
    if shape.stream:
        raise stream_error(fn)
    return shape


def stream_error(fn: Callable[..., Any]) -> ConfigurationError:
    """Why a generator cannot be tried again."""
    return ConfigurationError(
        f"{function_name(fn)} is a generator, and cannot be retried: what it has already yielded cannot be "
        "undone. Put the policy around what it calls"
    )


def key_of(
    recipe: Recipe, fn: Callable[..., Any], shape: FunctionShape, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> str:
    """The key of one call, from its arguments."""
    values = {**dict(zip(shape.names, args, strict=False)), **kwargs}
    if any(field not in values for field in recipe.fields):
        # Defaults, or a decorator that takes any arguments: the signature of the wrapped function has their names.
        signature = inspect.signature(fn)
        missing = [field for field in recipe.fields if field not in signature.parameters]
        if missing:
            raise ConfigurationError(f"the key names {', '.join(missing)}, which {function_name(fn)} does not take")
        bound = signature.bind_partial(*args, **kwargs)
        bound.apply_defaults()
        values = {**bound.arguments, **kwargs}
    return recipe.key(values)


def is_replayable(body: Any) -> bool:
    """
    Whether a request's body can be sent again. Ask before it is sent for the first time.

    Bytes, text and plain data can be. An iterator cannot. A file can be, if it is seekable.
    """
    if body is None or isinstance(body, bytes | bytearray | memoryview | str | dict | list | tuple):
        return True
    seekable = getattr(body, "seekable", None)
    if callable(seekable):
        try:
            return bool(seekable())
        except Exception:
            return False
    return not (hasattr(body, "__next__") or hasattr(body, "__anext__") or hasattr(body, "__aiter__"))


def warn_hook_failed(what: str, error: BaseException) -> None:
    """Log that a hook failed. A hook never changes an outcome."""
    _log.warning("onceward: %s raised %s; the call is not affected", what, type(error).__name__, exc_info=error)


LINES_EVERY = 10.0
"""Seconds between two log lines about calls that were given up for the same reason: an outage is one event."""

_KINDS_MAX = 1_000


_logged: WeakKeyDictionary[Environment, dict[tuple[str, str], tuple[float, int]]] = WeakKeyDictionary()
_logged_lock = threading.Lock()


def log_stop(name: str, reason: str, text: str, environment: Environment) -> None:
    """
    Log that a call was given up: the first of its name and reason at once, the others as a number on a later line.
    """
    now = environment.monotonic()
    with _logged_lock:
        logged = _logged.setdefault(environment, {})
        at, held_back = logged.get((name, reason), (float("-inf"), 0))
        if now < at + LINES_EVERY:
            logged[name, reason] = (at, held_back + 1)
            return
        if len(logged) >= _KINDS_MAX:
            logged.clear()
        logged[name, reason] = (now, 0)
    more = f" (and {held_back} more like it since the last such line)" if held_back else ""
    _log.warning("%s%s", text, more)
