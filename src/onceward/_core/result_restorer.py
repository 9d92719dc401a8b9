"""
Types back onto plain data: what a return annotation says about a stored result.

`restorer` looks at an annotation once, when a function is declared, and returns what `decode` applies to every
result, or None where plain JSON is already right and replaying should cost nothing. Stored data never
chooses a type: it is poured into the type that the caller's own annotation names, or refused.

How a value is told to fit:

    texts (Decimal, datetime, UUID ...)   writing the parsed value again gives the same text
    dataclass, NamedTuple                 every field without a default is there, and no unknown one
    pydantic model, msgspec.Struct        pydantic or msgspec says so
    X | None                              None stays None, anything else is an X
    any other union                       the leftmost member that fits; put the narrower type first
    int, str, list, TypedDict ...         not checked: JSON kept them as they were

What no rule knows is refused at declaration, before any effect, with advice.
"""

from __future__ import annotations

import collections.abc as abc
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum, Flag
from functools import partial
from inspect import Signature, signature, unwrap
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    LiteralString,
    NamedTuple,
    Never,
    NewType,
    NoReturn,
    NotRequired,
    Required,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from onceward._core.codec import (
    TEXT_FORMS,
    NotEncodable,
    Restorer,
    decode,
    encode,
    is_msgspec_struct,
    is_pydantic_model,
    json_text,
)
from onceward._core.display_text import JSON_NAMES
from onceward._core.errors import ConfigurationError, ResultInvalid


def restorer(annotation: object) -> Restorer | None:
    """Return what turns plain data into the annotated type, or None if plain data is already that."""
    if annotation is Signature.empty:
        return None
    restore = _Planner().plan(annotation).restore
    if restore is None:
        return None

    def restore_whole(value: object) -> object:
        try:
            return restore(value)
        except _Misfit as misfit:
            raise ResultInvalid(misfit.advice(annotation)) from misfit

    return restore_whole


def return_annotation(fn: Callable[..., object]) -> object:
    """Return the type that a function says it returns; `Signature.empty` if it says nothing that can be resolved."""
    while isinstance(fn, partial):
        fn = fn.func
    if not hasattr(fn, "__annotations__"):
        fn = type(fn).__call__  # An object that can be called.
    fn = unwrap(fn)
    try:
        # The return annotation alone: a parameter's unresolvable name must not lose it.
        alone = SimpleNamespace(__annotations__={"return": fn.__annotations__["return"]})
        return get_type_hints(alone, getattr(fn, "__globals__", {}), _enclosed_names(fn))["return"]
    except Exception:  # Resolving evaluates the caller's text, which may raise anything.
        return Signature.empty


def _enclosed_names(fn: Any) -> dict[str, object]:
    names: dict[str, object] = {parameter.__name__: parameter for parameter in getattr(fn, "__type_params__", ())}
    code = getattr(fn, "__code__", None)
    for name, cell in zip(code.co_freevars if code else (), getattr(fn, "__closure__", None) or (), strict=False):
        with suppress(ValueError):  # Still empty: the function's own name, while it is being decorated.
            names[name] = cell.cell_contents
    return names


class _Misfit(Exception):
    """A value does not fit its annotation. The trail is collected on the way out, innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.trail: list[str | int] = []

    def advice(self, annotation: object) -> str:
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in reversed(self.trail))
        place = "".join(("result", *steps))
        return (
            f"{place}: {self.reason}, so the result does not fit {_named(annotation)}: "
            "correct the return annotation, or give changed fields a default"
        )


class _Plan(NamedTuple):
    """How one annotation is restored. `may_fit` is a cheap look, asked only to choose within a union."""

    may_fit: Callable[[Any], bool]
    restore: Restorer | None = None


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in kinds


_ANYTHING = _Plan(lambda value: True)
_PLAIN: dict[object, _Plan] = {
    Any: _ANYTHING,
    object: _ANYTHING,
    Never: _ANYTHING,
    NoReturn: _ANYTHING,
    None: _Plan(_is(NoneType)),
    NoneType: _Plan(_is(NoneType)),
    bool: _Plan(_is(bool)),
    int: _Plan(_is(int)),
    float: _Plan(_is(float, int)),
    str: _Plan(_is(str)),
    LiteralString: _Plan(_is(str)),
}
_ARRAYS: dict[object, Callable[[list[object]], object]] = {
    list: list,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Collection: list,
    abc.Iterable: list,
    set: set,
    abc.Set: set,
    abc.MutableSet: set,
    frozenset: frozenset,
    tuple: tuple,
}
_OBJECTS = frozenset({dict, abc.Mapping, abc.MutableMapping})


class _Planner:
    """Plans one annotation and whatever it contains; a class that contains itself meets its own plan again."""

    def __init__(self) -> None:
        self._known: dict[object, _Plan] = {}

    def plan(self, annotation: Any) -> _Plan:
        origin, args = get_origin(annotation) or annotation, get_args(annotation)
        if origin is Annotated or origin is Required or origin is NotRequired:
            return self.plan(args[0])
        if not isinstance(origin, Hashable):
            raise _cannot_restore(annotation, "it is not a type")
        if origin in _PLAIN:
            return _PLAIN[origin]
        if origin is Union or origin is UnionType:
            return self._union(args)
        if origin is Literal:
            return _choice(annotation, args)
        if origin in _OBJECTS:
            return self._mapping(*args) if args else _Plan(_is(dict))
        if origin is tuple and args and args[-1] is not Ellipsis:
            return _positions(tuple, [self.plan(arg).restore for arg in args], len(args))
        if origin in _ARRAYS:
            return _array(_ARRAYS[origin], self.plan(args[0]).restore if args else None)
        if isinstance(annotation, TypeVar):
            return self._type_variable(annotation)
        return self._named_type(annotation, origin)

    def _type_variable(self, variable: TypeVar) -> _Plan:
        if self._known:
            raise _cannot_restore(variable, "its class needs its parameter, as in Page[Item]")
        return _ANYTHING  # A generic function: its caller knows the type, its declaration does not.

    def _named_type(self, annotation: Any, origin: Any) -> _Plan:
        if annotation in self._known:
            return self._known[annotation]

        # Whoever meets this type inside itself gets a stand-in, which looks the plan up when it is used.
        def may_fit(value: object) -> bool:
            return self._known[annotation].may_fit(value)

        def restore(value: object) -> object:
            return _applied(self._known[annotation].restore, value)

        self._known[annotation] = _Plan(may_fit, restore)
        self._known[annotation] = self._planned(annotation, origin)
        return self._known[annotation]

    def _planned(self, annotation: Any, origin: Any) -> _Plan:
        if isinstance(origin, NewType):
            return self.plan(origin.__supertype__)
        if hasattr(origin, "__value__"):  # A `type` alias.
            args = get_args(annotation)
            return self.plan(origin.__value__[args] if args else origin.__value__)
        if not isinstance(origin, type):
            raise _cannot_restore(annotation, "it is not a type")
        if origin in TEXT_FORMS:
            return _text(origin)
        if issubclass(origin, Enum):
            return _choice(annotation, tuple(origin.__members__.values()), origin)
        if is_pydantic_model(origin):
            return _pydantic(origin)
        if is_msgspec_struct(origin):
            return _msgspec(annotation, origin)
        if is_dataclass(origin):
            return _dataclass(origin, self._fields(annotation, origin, [field.name for field in fields(origin)]))
        if is_typeddict(origin):
            return _typed_dict(origin, self._fields(annotation, origin))
        if issubclass(origin, tuple) and hasattr(origin, "_fields") and hasattr(origin, "_field_defaults"):
            items = self._fields(annotation, origin, origin._fields)
            return _positions(origin, list(items.values()), len(items) - len(origin._field_defaults))
        raise _cannot_restore(annotation, "no rule is known for it")

    def _fields(self, annotation: Any, origin: Any, names: Iterable[str] = ()) -> dict[str, Restorer | None]:
        try:
            hints = get_type_hints(origin)
        except Exception as exc:
            raise _cannot_restore(annotation, f"a field's type cannot be resolved ({exc})") from exc
        values = dict(zip(getattr(origin, "__parameters__", ()), get_args(annotation), strict=False))
        return {name: self.plan(_substituted(hints.get(name, Any), values)).restore for name in names or hints}

    def _union(self, members: tuple[Any, ...]) -> _Plan:
        plans = [self.plan(member) for member in members if member is not NoneType]
        optional = len(plans) < len(members)

        def may_fit(value: object) -> bool:
            return (optional and value is None) or any(plan.may_fit(value) for plan in plans)

        if all(plan.restore is None for plan in plans):
            return _Plan(may_fit)
        # X | None needs no choosing, so its X may be as lenient as an X alone.
        candidates = plans if len(plans) > 1 else [_Plan(_ANYTHING.may_fit, plans[0].restore)]

        def restore(value: object) -> object:
            if optional and value is None:
                return None
            misfits = []
            for plan in candidates:
                if plan.may_fit(value):
                    try:
                        return _applied(plan.restore, value)
                    except _Misfit as misfit:
                        misfits.append(misfit)
            raise misfits[0] if len(misfits) == 1 else _Misfit(f"{_found(value)} fits no member of the union")

        return _Plan(may_fit, restore)

    def _mapping(self, key: Any, item: Any) -> _Plan:
        restore_key, restore_item = self.plan(key).restore, self.plan(item).restore
        is_text_enum = isinstance(key, type) and issubclass(key, str) and issubclass(key, Enum)
        if key in (int, float, bool, NoneType) or (restore_key is not None and not is_text_enum):
            raise _cannot_restore(key, "a key of a stored object is a str")
        if restore_key is None and restore_item is None:
            return _Plan(_is(dict))

        def restore(value: object) -> object:
            mapping = _expect(dict, value)
            return {
                _placed(name, restore_key, name): _placed(name, restore_item, each) for name, each in mapping.items()
            }

        return _Plan(_is(dict), restore)


def _substituted(hint: Any, values: Mapping[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return values.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ()) if get_origin(hint) is not None else ()
    return hint[tuple(values.get(parameter, parameter) for parameter in parameters)] if parameters else hint


# --- Restoring, one kind at a time. ---


def _applied(restore: Restorer | None, value: object) -> object:
    return value if restore is None else restore(value)


def _placed(place: str | int, restore: Restorer | None, value: object) -> object:
    if restore is None:
        return value
    try:
        return restore(value)
    except _Misfit as misfit:
        misfit.trail.append(place)
        raise


def _expect(kind: type[Any], value: object) -> Any:
    if type(value) is not kind:
        raise _Misfit(f"{_found(value)} was found where {JSON_NAMES[kind]} was expected")
    return value


def _made(kind: Any, make: Callable[..., object], *args: object, **named: object) -> Any:
    try:
        return make(*args, **named)
    except Exception as exc:  # A constructor or a validator: it may raise anything.
        raise _Misfit(f"{_named(kind)} refused it ({type(exc).__name__})") from exc


def _array(make: Callable[[list[object]], object], item: Restorer | None) -> _Plan:
    if make is list and item is None:
        return _Plan(_is(list))

    def restore(value: object) -> object:
        array = _expect(list, value)
        if item is not None:
            array = [_placed(index, item, each) for index, each in enumerate(array)]
        return _made(make, make, array)

    return _Plan(_is(list), restore)


def _positions(make: type, items: list[Restorer | None], required: int) -> _Plan:
    def restore(value: object) -> object:
        array = _expect(list, value)
        if not required <= len(array) <= len(items):
            raise _Misfit(f"an array of {len(array)} stands where one of {len(items)} should")
        restored = [_placed(index, items[index], each) for index, each in enumerate(array)]
        return tuple(restored) if make is tuple else _made(make, make, *restored)

    return _Plan(lambda value: type(value) is list and required <= len(value) <= len(items), restore)


def _dataclass(cls: Any, restores: Mapping[str, Restorer | None]) -> _Plan:
    stored = {field.name: field for field in fields(cls)}
    try:
        signature(cls).bind(**{name: None for name, field in stored.items() if field.init})
    except (TypeError, ValueError) as exc:
        raise _cannot_restore(cls, f"its constructor does not take its fields ({exc})") from exc
    # What __post_init__ makes of a field must not be made of it a second time: stored values are put back after it.
    late = {name for name, field in stored.items() if not field.init or hasattr(cls, "__post_init__")}

    def restore(value: object) -> object:
        mapping = _expect(dict, value)
        if not mapping.keys() <= stored.keys():
            raise _Misfit(f"{_named(cls)} has no field {min(mapping.keys() - stored.keys())!r}")
        items = {name: _placed(name, restores[name], each) for name, each in mapping.items()}
        made = _made(cls, cls, **{name: item for name, item in items.items() if stored[name].init})
        for name in late & items.keys():
            object.__setattr__(made, name, items[name])  # Past a frozen class's own refusal.
        return made

    return _Plan(_is(dict), restore)


def _typed_dict(cls: Any, restores: Mapping[str, Restorer | None]) -> _Plan:
    # Asked again of the evaluated hints: __required_keys__ cannot see through annotations that are still text.
    marks = {name: get_origin(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}
    required = {name for name in cls.__required_keys__ if marks[name] is not NotRequired}
    required |= {name for name, mark in marks.items() if mark is Required}

    def may_fit(value: object) -> bool:
        return type(value) is dict and required <= value.keys() <= restores.keys()

    def restore(value: object) -> object:
        mapping = _expect(dict, value)
        return {name: _placed(name, restores.get(name), each) for name, each in mapping.items()}

    return _Plan(may_fit, restore if any(restores.values()) else None)


def _choice(annotation: Any, members: Iterable[Any], enum: type[Enum] | None = None) -> _Plan:
    """Plan for an Enum or a Literal: a stored form stands for the one member that has it."""
    distinct = {id(member): member for member in members}.values()  # An Enum lists its aliases too.
    try:
        by_form = {_form(_stored(member)): member for member in distinct}
    except NotEncodable as exc:
        raise _cannot_restore(annotation, f"one of its values cannot be stored ({exc})") from exc
    if len(by_form) < len(distinct):
        raise _cannot_restore(annotation, "two of its values look the same in JSON")
    by_form |= {_form(member): member for member in distinct if type(member) is bytes}  # As a whole result: no text.
    is_flag = enum is not None and issubclass(enum, Flag)

    def restore(value: object) -> object:
        form = _form(value)
        if form in by_form:
            return by_form[form]
        if enum is not None and is_flag:
            return _made(enum, enum, value)  # A combination of flags is no member.
        raise _Misfit(f"{_found(value)} is none of the values of {_named(annotation)}")

    is_plain = all(_form(member) == form for form, member in by_form.items())
    return _Plan(_is(int) if is_flag else lambda value: _form(value) in by_form, None if is_plain else restore)


def _stored(value: object) -> object:
    (form,) = cast("list[object]", decode(encode([value])))  # In a list: bytes alone have a codec of their own.
    return form


def _form(value: object) -> Hashable:
    # With its type, because 1, 1.0 and True are equal in Python and not in JSON.
    return json_text(value) if type(value) is list or type(value) is dict else (type(value), value)


def _pydantic(cls: Any) -> _Plan:
    # By JSON text, since a strict model takes a date-time's text from JSON and not from Python. Fields are
    # stored under their own names; before 2.11 pydantic reads those only from a model without aliases.
    by_name = {"by_name": True} if "by_name" in signature(cls.model_validate_json).parameters else {}
    is_open = cls.model_config.get("extra") == "allow"
    is_root = getattr(cls, "__pydantic_root_model__", False)

    def may_fit(value: object) -> bool:
        return is_root or (type(value) is dict and (is_open or value.keys() <= cls.model_fields.keys()))

    def restore(value: object) -> object:
        return _made(cls, lambda: cls.model_validate_json(json_text(value), **by_name))

    return _Plan(may_fit, restore)


def _msgspec(annotation: Any, cls: Any) -> _Plan:
    from msgspec import convert  # Only here: whoever declares a Struct has msgspec.

    known = {*cls.__struct_encode_fields__, cls.__struct_config__.tag_field}

    def may_fit(value: object) -> bool:
        return type(value) is list or (type(value) is dict and value.keys() <= known)

    return _Plan(may_fit, lambda value: _made(cls, convert, value, annotation))


# A sum of no Decimals is the int 0, and a result that is bytes as a whole was never text.
_ALSO: dict[type, type] = {Decimal: int, bytes: bytes, bytearray: bytes}


def _text(cls: type) -> _Plan:
    (write, parse), also = TEXT_FORMS[cls], _ALSO.get(cls)

    def restore(value: object) -> object:
        if type(value) is str:
            parsed = _made(cls, parse, value)
            # Parsers are kinder than writers: "2024-01-01" parses as a date-time, and none was stored so.
            if write(parsed) == value:
                return parsed
        elif type(value) is also:
            return _made(cls, cls, value)
        raise _Misfit(f"{_found(value)} stands where {_named(cls)} should")

    return _Plan(_is(str, bytes) if also is bytes else _is(str), restore)


# --- Words for messages. They name types and places, never stored values. ---


def _found(value: object) -> str:
    return JSON_NAMES.get(type(value), type(value).__name__)


def _named(annotation: object) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else repr(annotation)


def _cannot_restore(annotation: object, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"a result annotated {_named(annotation)} cannot be restored: {why}. Return a dataclass, a TypedDict, "
        "a pydantic model or plain data, or annotate the function with Any to get the plain JSON form back"
    )
