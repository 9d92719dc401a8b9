"""
How a key is made from a call: `"charge:{order_id}"`, or a function.

A recipe is declared once and judged then: ingredients that change between attempts are refused by name
(`key_ingredients.py` has the list). Making a key from a template never lets two different calls meet. Characters
of a value that also occur between two fields are percent-escaped, and so is `%` itself; reading a key from
the left, the first separator found is therefore the real one, and the values can be read back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from string import Formatter
from typing import Protocol
from uuid import UUID

from onceward._core.display_text import python_kind
from onceward._core.errors import ConfigurationError, KeyInvalid
from onceward._core.key_ingredients import why_unstable
from onceward._core.keys import KEY_CHARACTERS_MAX, check_key, key_digest
from onceward._core.plain_values import NoCanonicalForm, to_plain

_VISIBLE = frozenset(map(chr, range(0x21, 0x7F)))


class Recipe(Protocol):
    """Makes keys. `fields` names what it takes from a call; the rest of the call is left alone."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names it takes from a call."""

    def key(self, values: Mapping[str, object]) -> str:
        """The key for these values."""


def recipe(source: str | Callable[..., str]) -> Recipe:
    """
    Declare how a key is made: from a template such as "charge:{order_id}", or by calling a function.

    Raises `ConfigurationError` for a template or function that could not make good keys.
    """
    return _template(source) if isinstance(source, str) else _function(source)


@dataclass(frozen=True, slots=True)
class _Template:
    source: str
    fields: tuple[str, ...]
    # Pairs of the literal in front of a field and the field's name; then what follows the last one.
    steps: tuple[tuple[str, str], ...]
    end: str
    plain_characters: frozenset[str] = field(repr=False)

    def key(self, values: Mapping[str, object]) -> str:
        parts: list[str] = []
        for literal, name in self.steps:
            text = _text(name, values)
            if not self.plain_characters.issuperset(text):
                text = self._escaped(name, text)
            parts += literal, text
        parts.append(self.end)
        key = "".join(parts)
        if len(key) > KEY_CHARACTERS_MAX:
            raise KeyInvalid(
                f"the recipe {self.source} gives a key of {len(key)} characters (digest {key_digest(key)}), and "
                f"{KEY_CHARACTERS_MAX} is the limit; keys are never shortened: use shorter ids, or derive(...)"
            )
        return key

    def _escaped(self, name: str, text: str) -> str:
        try:
            return "".join(
                character if character in self.plain_characters else _percent(character) for character in text
            )
        except UnicodeEncodeError:
            raise KeyInvalid(f"{name} contains half a character (a lone surrogate); decode it again") from None


@dataclass(frozen=True, slots=True)
class _Function:
    call: Callable[..., str]
    fields: tuple[str, ...]
    required: frozenset[str]
    takes_all: bool

    def key(self, values: Mapping[str, object]) -> str:
        for name in self.required:
            if name not in values:
                raise KeyInvalid(f"the recipe needs {name}, and the call has no such value; pass it")
        taken = values if self.takes_all else {name: values[name] for name in self.fields if name in values}
        return check_key(self.call(**taken))


def _template(source: str) -> _Template:
    try:
        parsed = list(Formatter().parse(source))
    except ValueError as error:
        raise ConfigurationError(f"the recipe {source!r} cannot be read: {error}; write {{{{ for a brace") from None
    steps: list[tuple[str, str]] = []
    literal = ""
    for text, name, form, conversion in parsed:
        literal += text
        if name is None:
            continue
        _check_field(source, name, form, conversion)
        steps.append((literal, name))
        literal = ""
    between = [separator for separator, _ in steps[1:]]
    _check_literals(source, steps, literal, between)
    return _Template(
        source,
        tuple(dict.fromkeys(name for _, name in steps)),
        tuple(steps),
        literal,
        _VISIBLE - {"%"} - {*"".join(between)},
    )


def _check_field(source: str, name: str, form: str | None, conversion: str | None) -> None:
    if not name.isidentifier() or form or conversion:
        raise ConfigurationError(
            f"the recipe {source!r} has a field that is not a plain name. "
            "Name an argument; to read a part of an argument or to format it, use a function"
        )
    _check_stable(name)


def _check_stable(name: str) -> None:
    reason = why_unstable(name)
    if reason:
        raise ConfigurationError(
            f"{name} cannot be part of a key: it {reason}; use what the operation is about, such as an order's id, "
            "or rename it if it is stored with the operation and stays the same"
        )


def _check_literals(source: str, steps: list[tuple[str, str]], end: str, between: list[str]) -> None:
    if not steps:
        raise ConfigurationError(
            f"the recipe {source!r} has no field, so every call would be one operation; "
            "name what tells operations apart, as in charge:{order_id}"
        )
    if not all(between):
        raise ConfigurationError(f"the recipe {source!r} has two fields side by side; put a separator between, as in :")
    if any("%" in literal for literal in between):
        raise ConfigurationError(
            f"the recipe {source!r} has % between two fields, and % is used to escape values; use : instead"
        )
    literals = "".join(literal for literal, _ in steps) + end
    if not _VISIBLE.issuperset(literals):
        raise ConfigurationError(
            f"the recipe {source!r} has characters that are not allowed in a key; use visible ASCII"
        )
    if len(literals) + len(steps) > KEY_CHARACTERS_MAX:
        raise ConfigurationError(
            f"the recipe's own text leaves no room for values within {KEY_CHARACTERS_MAX}; shorten it"
        )


def _function(source: Callable[..., str]) -> _Function:
    if not callable(source):
        raise ConfigurationError(f"a recipe is a template or a function, not {python_kind(source)}")
    fields: list[str] = []
    required: set[str] = set()
    takes_all = False
    for name, parameter in inspect.signature(source).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_all = True
            continue
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise ConfigurationError(
                f"a recipe is called with keyword arguments, and {name} takes none; use a plain name"
            )
        _check_stable(name)
        fields.append(name)
        if parameter.default is parameter.empty:
            required.add(name)
    return _Function(source, tuple(fields), frozenset(required), takes_all)


def _text(name: str, values: Mapping[str, object]) -> str:
    try:
        value = values[name]
    except KeyError:
        raise KeyInvalid(f"the recipe needs {name}, and the call has no such value; pass it") from None
    if type(value) is not str:
        value = _spelled(name, value)
    if not value:
        raise KeyInvalid(f"{name} is empty; a key needs something to tell this operation from others")
    return value


def _spelled(name: str, value: object) -> str:
    while isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool) or not isinstance(value, str | int | UUID | Decimal | date):
        raise KeyInvalid(f"{name} is {python_kind(value)}, {_ADVICE.get(type(value), _ADVICE[object])}")
    if isinstance(value, datetime):
        raise KeyInvalid(f"{name} is a datetime, {_ADVICE[datetime]}")
    try:
        return str(to_plain(value))
    except NoCanonicalForm as refusal:
        raise KeyInvalid(f"{name} {refusal.reason}") from None
    except ValueError:  # Python's own limit on the digits of an int.
        raise KeyInvalid(f"{name} is a number too long for a key; hash it with derive(...)") from None


_ADVICE: Mapping[type, str] = {
    float: "whose text depends on how it was computed; pass a Decimal, or whole cents as an int",
    bool: "which says too little; pass a word",
    type(None): "which says nothing; pass the id it stands for",
    datetime: "and the time of a call differs on every attempt; pass a date, or stored text",
    object: "which can be written in several ways; pass its id",
}


def _percent(character: str) -> str:
    return "".join(f"%{octet:02X}" for octet in character.encode("utf-8"))
