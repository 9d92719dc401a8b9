"""
One step from a Python value towards JSON: the table behind `canonical.py`.

`to_plain` takes a value that JSON has no word for and gives one that is closer: a Decimal becomes a
string, a dataclass a dict, an Enum its value. It goes one step only; whoever called it goes on with
what came back. A set stays a set: whoever called puts it in the order of its elements' forms.

Pydantic and msgspec are recognised by the marks they leave on a class, so that neither is imported.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

# A Decimal is written in plain digits, so its exponent decides how long it gets. 1E+999 is more than
# any amount of anything; without a limit, Decimal("1E+999999999") is a gigabyte of zeros.
DECIMAL_EXPONENT_MAX = 999


class NoCanonicalForm(Exception):
    """A value without a canonical form. `path` is filled on the way out, innermost step first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str | int] = []


def to_plain(value: object) -> object:
    """Give the value that stands for `value` in its canonical form, or raise `NoCanonicalForm`."""
    try:
        for kinds, convert in _RULES:
            if isinstance(value, kinds):
                return convert(value)
        for is_one, convert in _MARKS:
            if is_one(value):
                return convert(value)
    except NoCanonicalForm:
        raise
    except Exception as error:  # Code of the value's own class ran: a property, `model_dump`, `__class__`.
        raise NoCanonicalForm(
            f"is a {_type_name(value)} that could not be read: it raised {_type_name(error)}; "
            "pass plain values instead of the object"
        ) from error
    raise NoCanonicalForm(f"is a {_type_name(value)}, which has no canonical form; {_advice(value)}")


def _type_name(value: object) -> str:
    return type(value).__name__


def _advice(value: object) -> str:
    if isinstance(value, type) or callable(value):
        return "pass the data it stands for, not code"
    if hasattr(type(value), "__next__") or hasattr(type(value), "__iter__"):
        return "pass a list of its items"
    return "pass its identifying fields as a dict, a str or an int"


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise NoCanonicalForm("is not a finite number; leave the member out or pass None")
    if value.is_zero():
        return "0"
    if abs(value.adjusted()) > DECIMAL_EXPONENT_MAX:
        raise NoCanonicalForm(f"has a decimal exponent beyond {DECIMAL_EXPONENT_MAX}; pass it as a str")
    # Not `normalize()`: that rounds to the thread's context, and a form must depend on the value alone.
    digits = format(value, "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _datetime(value: datetime) -> str:
    if value.utcoffset() is None:
        raise NoCanonicalForm(
            "is a datetime without a time zone, so nobody can say when it is; pass it with tzinfo=UTC"
        )
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _time(value: time) -> str:
    if value.tzinfo is not None:
        raise NoCanonicalForm("is a time with a time zone but no date; pass a datetime, or a time without one")
    return value.isoformat()


def _base64url(value: bytes | bytearray | memoryview) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def _dataclass(value: Any) -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _struct(value: Any) -> dict[str, object]:
    return {name: getattr(value, name) for name in type(value).__struct_fields__}


def _model(value: Any) -> object:
    # Field names whatever the model says about aliases; no warnings, since our rules judge the values next.
    return value.model_dump(mode="python", by_alias=False, warnings=False)


def _is_dataclass(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _is_struct(value: object) -> bool:
    return isinstance(getattr(type(value), "__struct_fields__", None), tuple)


def _is_model(value: object) -> bool:
    kind = type(value)
    return hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_dump")


# In order: an Enum may also be a str, and a datetime is always a date.
_RULES: tuple[tuple[type | tuple[type, ...], Callable[[Any], object]], ...] = (
    (Enum, lambda value: value.value),
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (Decimal, _decimal),
    (UUID, UUID.__str__),
    (datetime, _datetime),
    (date, date.isoformat),
    (time, _time),
    (timedelta, lambda value: value // timedelta(microseconds=1)),
    ((bytes, bytearray, memoryview), _base64url),
    (Mapping, dict),
    ((list, tuple), list),
    ((set, frozenset), frozenset),
)
_MARKS: tuple[tuple[Callable[[object], bool], Callable[[Any], object]], ...] = (
    (_is_dataclass, _dataclass),
    (_is_struct, _struct),
    (_is_model, _model),
)
