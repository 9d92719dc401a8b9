"""
Inspects a function when it is declared, so that nothing has to be found out when it is called.

Does it take the operation? Does it mark its effect? Which argument is the connection, which arguments are the
request, and how is its key made? Every mistake that can be seen here is refused here.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from onceward._core.codec import Restorer
from onceward._core.durations import SECOND
from onceward._core.errors import ConfigurationError
from onceward._core.key_recipes import Recipe, recipe
from onceward._core.operation import Operation
from onceward._core.result_restorer import restorer, return_annotation
from onceward._core.terms import Terms
from onceward._core.unrun_results import is_generator

OPERATION = "operation"
"""A function takes the operation by naming a parameter so."""

INSPECTED_MAX = 4096
"""Code objects whose inspection is remembered: more than a program has functions under gates."""

_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling `fn` gives something to await, as far as can be seen without calling it."""
    if type(fn) is FunctionType and not fn.__dict__:  # The usual one: nothing wraps it, nothing marks it.
        return bool(fn.__code__.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR))
    bare = inspect.unwrap(fn)
    while hasattr(bare, "func"):
        bare = bare.func
    called = getattr(type(bare), "__call__", None)  # noqa: B004 - the method itself is looked at, not whether it is there
    kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    return any(kind(bare) or kind(called) for kind in kinds)


def function_name(fn: Callable[..., Any]) -> str:
    """The name an operation goes by unless it is given one."""
    return shown_name(str(getattr(fn, "__qualname__", None) or type(fn).__qualname__))


@lru_cache(maxsize=INSPECTED_MAX)
def shown_name(qualified: str) -> str:
    """The same of a function's qualified name: it does not say what the function was defined in."""
    return qualified.replace("<locals>.", "")


class CallingConvention(NamedTuple):
    """How to call a function given to `run`, `call`, `atomic` or `step`."""

    takes_operation: bool
    by_name: bool
    """Whether it takes the operation as `operation=`, or as its one positional argument."""
    marked: bool
    awaits: bool
    generates: bool = False
    """Whether calling it runs nothing, because it is a generator function."""

    def bind(self, fn: Callable[..., Any]) -> Callable[[Any], Any]:
        """The function as a gate calls it: with the operation, whether it takes it or not."""
        if not self.takes_operation:
            return lambda _: fn()
        return (lambda operation: fn(operation=operation)) if self.by_name else fn


def inspect_function(fn: Callable[..., Any]) -> CallingConvention:
    """Inspect a function that takes nothing or the operation. Remembered per code object: lambdas come and go."""
    if type(fn) is FunctionType:
        if fn.__defaults__ is None and fn.__kwdefaults__ is None:
            known = _simple.get(id(fn.__code__))
            return known[1] if known is not None else _inspect_simple(fn.__code__, 0, _simple)
        return _inspect_code(fn.__code__, 0, len(fn.__defaults__ or ()), frozenset(fn.__kwdefaults__ or ()))
    if type(fn) is MethodType and type(fn.__func__) is FunctionType:
        plain = fn.__func__
        if plain.__defaults__ is None and plain.__kwdefaults__ is None:
            return _inspect_simple(plain.__code__, 1, _simple_methods)
        return _inspect_code(plain.__code__, 1, len(plain.__defaults__ or ()), frozenset(plain.__kwdefaults__ or ()))
    if not callable(fn):
        raise ConfigurationError(f"a gate runs functions, and {type(fn).__name__} cannot be called")
    return _inspect_partial(fn) if type(fn) is partial else _inspect_callable(fn)


def _inspect_callable(fn: Callable[..., Any]) -> CallingConvention:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return CallingConvention(False, False, False, is_async(fn), is_generator(fn))
    required = [p for p in parameters if p.default is inspect.Parameter.empty and p.kind not in _VARIADIC]
    by_name = any(p.name == OPERATION and p.kind is not inspect.Parameter.POSITIONAL_ONLY for p in parameters)
    wanted = [p for p in required if not (by_name and p.name == OPERATION)]
    if len(wanted) > (0 if by_name else 1) or any(p.kind is inspect.Parameter.KEYWORD_ONLY for p in wanted):
        raise ConfigurationError(_too_many(function_name(fn)))
    return CallingConvention(by_name or len(wanted) == 1, by_name, False, is_async(fn), is_generator(fn))


_Inspected: TypeAlias = dict[int, tuple[CodeType, CallingConvention]]
"""By the id of a code object, which is kept with it: its id cannot become another's."""


def _inspect_simple(code: CodeType, bound: int, remembered: _Inspected) -> CallingConvention:
    """Inspect a function without defaults. Known by its code's identity: hashing a code object takes far longer."""
    known = remembered.get(id(code))
    if known is None:
        if len(remembered) >= INSPECTED_MAX:
            remembered.clear()
        known = remembered[id(code)] = (code, _inspect_code(code, bound, 0, frozenset()))
    return known[1]


_simple: _Inspected = {}
_simple_methods: _Inspected = {}


@lru_cache(maxsize=INSPECTED_MAX)
def _inspect_code(code: CodeType, bound: int, defaults: int, named_defaults: frozenset[str]) -> CallingConvention:
    positional = code.co_varnames[bound : code.co_argcount]
    named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    awaits = bool(code.co_flags & _ASYNC)
    generates = bool(code.co_flags & _GENERATOR) and not code.co_flags & inspect.CO_ITERABLE_COROUTINE
    required = [*positional[: len(positional) - defaults], *(name for name in named if name not in named_defaults)]
    if OPERATION in positional[max(code.co_posonlyargcount - bound, 0) :] or OPERATION in named:
        required = [name for name in required if name != OPERATION]
        if required:
            raise ConfigurationError(_too_many(code.co_qualname))
        return CallingConvention(True, True, _marks(code, OPERATION), awaits, generates)
    if len(required) > 1 or any(name in named for name in required):
        raise ConfigurationError(_too_many(code.co_qualname))
    return CallingConvention(bool(required), False, bool(required) and _marks(code, required[0]), awaits, generates)


def _inspect_partial(fn: partial[Any]) -> CallingConvention:
    """Inspect `partial(function, ...)`. A new one is made for each call, so what it is about is remembered instead."""
    function = fn.func.__func__ if type(fn.func) is MethodType else fn.func
    if type(function) is not FunctionType or function.__dict__ or fn.__dict__:  # Something may speak for it.
        return _inspect_callable(fn)
    defaults = (len(function.__defaults__ or ()), *(function.__kwdefaults__ or ()))
    about = (id(function.__code__), type(fn.func) is MethodType, len(fn.args), *fn.keywords, None, *defaults)
    known = _partials.get(about)
    if known is None:
        if len(_partials) >= INSPECTED_MAX:
            _partials.clear()
        known = _partials[about] = (function.__code__, _inspect_callable(fn))
    return known[1]


_partials: dict[tuple[object, ...], tuple[CodeType, CallingConvention]] = {}


def _too_many(name: str) -> str:
    return (
        f"{name} takes several arguments; a gate calls a function with nothing or with the operation. "
        "Wrap it (lambda operation: ...), or declare it with @gate.once"
    )


def _marks(code: CodeType, parameter: str) -> bool:
    """Whether the function's own code says `<operation>.effect`: then what raises before that block is harmless."""
    previous: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        asks = instruction.opname in ("LOAD_METHOD", "LOAD_ATTR") and instruction.argval == "effect"
        if asks and previous is not None and _loads(previous, parameter):
            return True
        if instruction.opname not in ("CACHE", "EXTENDED_ARG"):
            previous = instruction
    # A function inside counts only if it uses this very operation, and not one of its own by the same name.
    inside = (const for const in code.co_consts if isinstance(const, CodeType) and parameter in const.co_freevars)
    return any(_marks(const, parameter) for const in inside)


def _loads(instruction: dis.Instruction, parameter: str) -> bool:
    if not instruction.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")):
        return False
    loaded = instruction.argval
    return bool((loaded[-1] if isinstance(loaded, tuple) else loaded) == parameter)


class OperationContract(NamedTuple):
    """What is agreed with the callers of a declared function: what identifies an operation, and for how long."""

    operation: str
    identified_by: tuple[str, ...]
    """The arguments that make the key: equal ones are the same operation."""
    compared_by: tuple[str, ...]
    """The arguments that a retry must bring again: other values under the same key are refused."""
    guarantee: str
    retain_seconds: float
    """How long the answer replays."""
    tombstone_seconds: float
    """How long after that a late retry is refused; 0: it runs again."""


class FunctionDeclaration(NamedTuple):
    """A function under `@gate.once`, taken apart."""

    fn: Callable[..., Any]
    name: str
    recipe: Recipe
    restore: Restorer | None
    signature: inspect.Signature
    names: tuple[str, ...] | None
    """The parameters a caller gives, in order; None if some are given by name only."""
    request: tuple[str, ...]
    """Those of them that are the request: the fingerprint is over these."""
    connection: str | None
    takes_operation: bool
    place: int | None
    """Where among the positional arguments the operation stands; None: it is given by name."""
    marked: bool

    def invoke(self, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function: with the operation where it wants it."""
        if not self.takes_operation:
            return self.fn(*args, **kwargs)
        if self.place is None or len(args) < self.place:
            return self.fn(*args, **kwargs, operation=operation)
        return self.fn(*args[: self.place], operation, *args[self.place :], **kwargs)

    def contract(self, terms: Terms) -> OperationContract:
        """What callers may rely on."""
        return OperationContract(
            operation=self.name,
            identified_by=self.recipe.fields,
            compared_by=self.request,
            guarantee=terms.guarantee,
            retain_seconds=terms.retain / SECOND,
            tombstone_seconds=0.0 if terms.after_expiry == "run" else terms.tombstone / SECOND,
        )

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The call's arguments by name, defaults filled in."""
        if not kwargs and self.names is not None and len(args) == len(self.names):
            return dict(zip(self.names, args, strict=True))
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def key(self, arguments: Mapping[str, Any]) -> str:
        """The operation's key."""
        return self.recipe.key(arguments)

    def key_of(self, *args: Any, **kwargs: Any) -> str:
        """The key of a call with these arguments."""
        return self.key(self.arguments(args, kwargs))

    def request_of(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What the fingerprint is taken of."""
        return {name: arguments[name] for name in self.request}


def inspect_declaration(
    fn: Callable[..., Any],
    key: str | Callable[..., str],
    *,
    name: str | None,
    exclude: tuple[str, ...],
    connection: str | None,
    marked: bool | None,
) -> FunctionDeclaration:
    """Take a function apart, refusing what cannot work."""
    signature = inspect.signature(fn)
    parameters = signature.parameters
    if any(p.kind in _VARIADIC for p in parameters.values()):
        raise ConfigurationError(
            f"{function_name(fn)} takes *args or **kwargs; name its arguments, so that a retry can be told from "
            "another call"
        )
    takes_operation = OPERATION in parameters
    outer = signature.replace(parameters=[p for n, p in parameters.items() if n != OPERATION])
    names = tuple(outer.parameters)
    positional = tuple(n for n, p in outer.parameters.items() if p.kind is not inspect.Parameter.KEYWORD_ONLY)
    for wanted in (*exclude, *((connection,) if connection else ())):
        if wanted not in names:
            raise ConfigurationError(
                f"{function_name(fn)} has no parameter {wanted!r}; it has {', '.join(names) or 'none'}"
            )
    made = recipe(key)
    missing = [field for field in made.fields if field not in names]
    if missing:
        raise ConfigurationError(
            f"the key of {function_name(fn)} names {', '.join(missing)}, which is not among its parameters: "
            f"{', '.join(names) or 'none'}"
        )
    left_out = {*exclude, connection, *(n for n in names[:1] if n in ("self", "cls"))}
    return FunctionDeclaration(
        fn=fn,
        name=name or function_name(fn),
        recipe=made,
        restore=restorer(return_annotation(fn)),
        signature=outer,
        names=positional if len(positional) == len(names) else None,
        request=tuple(n for n in names if n not in left_out),
        connection=connection,
        takes_operation=takes_operation,
        place=_place(signature),
        marked=marked if marked is not None else (takes_operation and marks_effect(fn)),
    )


def _place(signature: inspect.Signature) -> int | None:
    """Where the operation stands among the positional parameters."""
    for place, parameter in enumerate(signature.parameters.values()):
        if parameter.name == OPERATION and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            return place
    return None


class PublishedFunction(NamedTuple):
    """What a declared function lets a retry policy around it know."""

    key_of: Callable[..., str]
    guarantee: str


_published: WeakKeyDictionary[Any, PublishedFunction] = WeakKeyDictionary()


def publish_function(wrapper: Callable[..., Any], taken: FunctionDeclaration, terms: Terms) -> None:
    """Let policies know this function. By identity: a decorator around it copies its attributes, and may do more."""
    _published[wrapper] = PublishedFunction(taken.key_of, terms.guarantee)


def find_published(fn: Callable[..., Any]) -> PublishedFunction | None:
    """What a declared function, or a method that is one, has published; None for any other function."""
    if isinstance(fn, MethodType):
        known = find_published(fn.__func__)
        return None if known is None else known._replace(key_of=partial(known.key_of, fn.__self__))
    try:
        return _published.get(fn)
    except TypeError:  # It cannot be a key, so it is not one of ours.
        return None


def marks_effect(fn: Callable[..., Any]) -> bool:
    """Whether a function that takes `operation` marks its effect."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return isinstance(code, CodeType) and _marks(code, OPERATION)
