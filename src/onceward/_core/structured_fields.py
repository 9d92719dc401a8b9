"""
A strict reader of structured fields' lists (RFC 9651), as far as headers that a retry cares about use them.

A list's members are bare items with parameters; inner lists are refused. One mistake anywhere and the whole field is
`Malformed`: so says the RFC, and half-understood text is worse than none.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

MEMBERS_MAX = 64
"""Members of a list: nobody has more limits, and a hostile list must end somewhere."""

PARAMETERS_MAX = 64
"""Parameters of one member, for the same reason."""


class Token(str):
    """An unquoted word, kept apart from a string."""

    __slots__ = ()


class Date(NamedTuple):
    """An instant; no number, so that nobody takes it for one."""

    seconds: int
    """Since 1970."""


class DisplayString(NamedTuple):
    """Text for people, in any script; no string, so that nobody takes it for a key."""

    text: str


BareItem: TypeAlias = int | float | str | bytes | bool | Token | Date | DisplayString


class Malformed(ValueError):
    """The text is no list of structured fields."""


class ListMember(NamedTuple):
    """A member of a list."""

    value: BareItem
    parameters: dict[str, BareItem]


_KEY = re.compile(r"[a-z*][a-z0-9_.*-]*")
_DECIMAL = re.compile(r"-?[0-9]{1,12}\.[0-9]{1,3}(?![0-9.])")
_INTEGER = re.compile(r"-?[0-9]{1,15}(?![0-9.])")
_STRING = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_TOKEN = re.compile(r"[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*")
_BYTES = re.compile(r":([A-Za-z0-9+/]*)(={0,2}):")
_DATE = re.compile(r"@(-?[0-9]{1,15})(?![0-9.])")
_DISPLAY = re.compile(r'%"((?:[ !#$&-~]|%[0-9a-f]{2})*)"')
_BOOLEAN = re.compile(r"\?([01])")
_BETWEEN = re.compile(r"[ \t]*,[ \t]*")


def parse_list(text: str) -> list[ListMember]:
    """The members of a list; empty text is an empty list."""
    text = text.strip(" ")
    members: list[ListMember] = []
    at = 0
    while at < len(text):
        if len(members) == MEMBERS_MAX:
            raise Malformed("too many members")
        value, at = _bare_item(text, at)
        parameters, at = _parameters(text, at)
        members.append(ListMember(value, parameters))
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
        return _decoded(match.group(1), match.group(2)), match.end()
    if match := _BOOLEAN.match(text, at):
        return match.group(1) == "1", match.end()
    if match := _TOKEN.match(text, at):
        return Token(match.group()), match.end()
    if match := _DATE.match(text, at):
        return Date(int(match.group(1))), match.end()
    if match := _DISPLAY.match(text, at):
        return _displayed(match.group(1)), match.end()
    raise Malformed("no item")


def _decoded(letters: str, padding: str) -> bytes:
    """Base64: its padding may be left out, and is whole if it is there."""
    if padding and (len(letters) + len(padding)) % 4:
        raise Malformed("base64 with too much or too little padding")
    try:
        return b64decode(letters + "=" * (-len(letters) % 4))
    except binascii.Error:
        raise Malformed("no base64") from None


def _displayed(text: str) -> DisplayString:
    try:
        return DisplayString(unquote_to_bytes(text).decode())
    except UnicodeDecodeError:
        raise Malformed("a display string that is not UTF-8") from None
