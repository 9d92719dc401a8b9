"""
A strict reader of structured fields' lists (RFC 9651), as far as headers that a retry cares about use them.

A list's members are bare items with parameters; inner lists are refused. One mistake anywhere and the whole field is
`Malformed`: so says the RFC, and half-understood text is worse than none.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

MEMBERS_MAX = 64
"""Members of a list: nobody has more limits, and a hostile list must end somewhere."""

PARAMETERS_MAX = 64
"""Parameters of one member, for the same reason."""


class Token(str):
    """An unquoted word, kept apart from a string."""

    __slots__ = ()


BareItem: TypeAlias = int | float | str | bytes | bool | Token


class Malformed(ValueError):
    """The text is no list of structured fields."""


class Item(NamedTuple):
    """A member of a list."""

    value: BareItem
    parameters: dict[str, BareItem]


_KEY = re.compile(r"[a-z*][a-z0-9_.*-]*")
_DECIMAL = re.compile(r"-?[0-9]{1,12}\.[0-9]{1,3}(?![0-9.])")
_INTEGER = re.compile(r"-?[0-9]{1,15}(?![0-9.])")
_STRING = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_TOKEN = re.compile(r"[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*")
_BYTES = re.compile(r":([A-Za-z0-9+/=]*):")
_BOOLEAN = re.compile(r"\?([01])")
_BETWEEN = re.compile(r"[ \t]*,[ \t]*")


def parse_list(text: str) -> list[Item]:
    """The members of a list; empty text is an empty list."""
    text = text.strip(" ")
    members: list[Item] = []
    at = 0
    while at < len(text):
        if len(members) == MEMBERS_MAX:
            raise Malformed("too many members")
        value, at = _bare_item(text, at)
        parameters, at = _parameters(text, at)
        members.append(Item(value, parameters))
        if at == len(text):
            break
        between = _BETWEEN.match(text, at)
        if between is None or between.end() == len(text):
            raise Malformed("members are divided by single commas")
        at = between.end()
    return members


def _parameters(text: str, at: int) -> tuple[dict[str, BareItem], int]:
    found: dict[str, BareItem] = {}
    for _ in range(PARAMETERS_MAX):
        if text[at : at + 1] != ";":
            return found, at
        at += 1
        while text[at : at + 1] == " ":
            at += 1
        key = _KEY.match(text, at)
        if key is None:
            raise Malformed("a parameter needs a key")
        at = key.end()
        value: BareItem = True
        if text[at : at + 1] == "=":
            value, at = _bare_item(text, at + 1)
        found[key.group()] = value  # The last of several counts, says the RFC.
    raise Malformed("too many parameters")


def _bare_item(text: str, at: int) -> tuple[BareItem, int]:
    if match := _DECIMAL.match(text, at):
        return float(match.group()), match.end()
    if match := _INTEGER.match(text, at):
        return int(match.group()), match.end()
    if match := _STRING.match(text, at):
        return re.sub(r"\\(.)", r"\1", match.group(1)), match.end()
    if match := _BYTES.match(text, at):
        return match.group(1).encode("ascii"), match.end()
    if match := _BOOLEAN.match(text, at):
        return match.group(1) == "1", match.end()
    if match := _TOKEN.match(text, at):
        return Token(match.group()), match.end()
    raise Malformed("no item")
