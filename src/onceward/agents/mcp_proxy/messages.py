"""
What a line of JSON-RPC means, and where in it each member stands, so that it is passed on as it came.

Two readers may read one line differently, and a call that we do not see would slip past the gate. A line is *clear* if
every reader sees the same messages in it; other lines may pass only if no reader can see a `tools/call` in them:

    not JSON, or not UTF-8              lenient servers read comments, trailing commas, UTF-16
    a member twice, or Method           the first or the last counts; some readers ignore upper and lower case
    a carriage return inside            some readers end a line there
    two values in a line                some readers read values, not lines

What is nested in the members is not looked at here: arguments that can be read in two ways are refused when claimed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple, TypeAlias

Id: TypeAlias = int | float | str

CALL = "tools/call"

_BLANK = re.compile(r"[ \t\n\r]*")
_ENVELOPE = {name: name for name in ("jsonrpc", "id", "method", "params", "result", "error")}
_PARAMS = {name.casefold(): name for name in ("name", "arguments", "_meta", "task", "inputResponses", "requestState")}
_ESCAPED = re.compile(rb"\\(?:u00|x)([0-9a-fA-F]{2})|\\/")
_decode = json.JSONDecoder().raw_decode


class Unclear(ValueError):
    """A line that two readers may read differently, or that cannot be read at all."""


class Member(NamedTuple):
    """One member of an object: its value, and where that stands in the text."""

    name: str
    value: Any
    start: int
    end: int


class RpcMessage(NamedTuple):
    """One JSON-RPC message in a line."""

    text: str
    """As it came, without blanks around it."""
    members: dict[str, Member]

    def get(self, name: str) -> Any:
        """The value of a member; None if there is none."""
        found = self.members.get(name)
        return None if found is None else found.value

    def raw(self, name: str) -> str:
        """A member as it was written."""
        found = self.members[name]
        return self.text[found.start : found.end]

    @property
    def bytes(self) -> bytes:
        """As it came. JSON in UTF-8 can always be written again."""
        return self.text.encode()

    @property
    def method(self) -> str | None:
        """What is asked for; None for an answer."""
        found = self.get("method")
        return found if isinstance(found, str) else None

    @property
    def id(self) -> Id | None:
        """Its id, if it is one that JSON-RPC knows."""
        found = self.get("id")
        return found if isinstance(found, int | float | str) and not isinstance(found, bool) else None

    @property
    def is_request(self) -> bool:
        """Whether it wants an answer."""
        return "method" in self.members and "id" in self.members

    @property
    def is_answer(self) -> bool:
        """Whether it is an answer: only these have no method."""
        return "method" not in self.members and "id" in self.members


class RpcLine(NamedTuple):
    """The messages of a line: several if it is a batch."""

    messages: tuple[RpcMessage, ...]
    is_batch: bool


def read_line(line: bytes) -> RpcLine:
    """The messages of a clear line. Raises `Unclear` for any other."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise Unclear("it is not UTF-8") from None
    text = text.strip(" \t\r\n")
    if "\r" in text:
        raise Unclear("it has a carriage return inside")
    try:
        return _read(text)
    except RecursionError:
        raise Unclear("it is nested too deeply") from None
    except (ValueError, StopIteration) as error:
        raise error if isinstance(error, Unclear) else Unclear("it is not JSON") from None


def _read(text: str) -> RpcLine:
    if text[:1] == "{":
        message, end = _message(text, 0)
        messages, is_batch = [message], False
    elif text[:1] == "[":
        messages, end, is_batch = *_batch(text), True
    else:
        raise Unclear("it is neither a message nor a batch")
    if end != len(text):
        raise Unclear("it has more than one value")
    return RpcLine(tuple(messages), is_batch)


def _batch(text: str) -> tuple[list[RpcMessage], int]:
    messages: list[RpcMessage] = []
    at = _after_blanks(text, 1)
    if text[at : at + 1] == "]":
        return messages, at + 1
    while True:
        if text[at : at + 1] != "{":
            raise Unclear("a batch contains something other than messages")
        message, at = _message(text, at)
        messages.append(message)
        at = _after_blanks(text, at)
        if text[at : at + 1] == "]":
            return messages, at + 1
        if text[at : at + 1] != ",":
            raise Unclear("it is not JSON")
        at = _after_blanks(text, at + 1)


def _message(text: str, start: int) -> tuple[RpcMessage, int]:
    found, end = members_at(text, start)
    if not _is_clear((one.name for one in found), _ENVELOPE):
        raise Unclear("a member of the message occurs twice, or with different capitals")
    moved = (one._replace(start=one.start - start, end=one.end - start) for one in found)
    return RpcMessage(text[start:end], {one.name: one for one in moved}), end


def members_at(text: str, start: int) -> tuple[list[Member], int]:
    """The members of the object that starts here, in order, doubles included; and where it ends."""
    found: list[Member] = []
    at = _after_blanks(text, start + 1)
    if text[at : at + 1] == "}":
        return found, at + 1
    while True:
        if text[at : at + 1] != '"':
            raise Unclear("it is not JSON")
        name, at = scanstring(text, at + 1, True)
        at = _after_blanks(text, at)
        if text[at : at + 1] != ":":
            raise Unclear("it is not JSON")
        begin = _after_blanks(text, at + 1)
        value, at = _decode(text, begin)
        found.append(Member(name, value, begin, at))
        at = _after_blanks(text, at)
        if text[at : at + 1] == "}":
            return found, at + 1
        if text[at : at + 1] != ",":
            raise Unclear("it is not JSON")
        at = _after_blanks(text, at + 1)


def _after_blanks(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def _is_clear(names: Iterable[str], known: dict[str, str]) -> bool:
    """Whether the names that matter are there once each, and in their own letters."""
    seen: set[str] = set()
    for name in names:
        folded = name.casefold()
        if folded in known and (name != known[folded] or folded in seen):
            return False
        seen.add(folded)
    return True


def call_params(message: RpcMessage) -> dict[str, Any] | None:
    """The parameters of a `tools/call`; None unless every reader sees the same."""
    params = message.get("params")
    if not isinstance(params, dict):
        return None
    try:
        found, _ = members_at(message.raw("params"), 0)
    except RecursionError:  # It was read once, from a place with more room left.
        return None
    if not _is_clear((one.name for one in found), _PARAMS) or not isinstance(params.get("name"), str):
        return None
    return params


def may_hold_a_call(line: bytes) -> bool:
    """Whether any reader could see a `tools/call` in this line, however it is written."""
    plain = line.replace(b"\0", b"")
    return CALL.encode() in (_ESCAPED.sub(_unescaped, plain) if b"\\" in plain else plain)


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes.fromhex(found[1].decode()) if found[1] else b"/"


def ids_of(messages: Iterable[RpcMessage]) -> Iterator[Id]:
    """The ids of the requests among these."""
    for message in messages:
        if message.is_request and (id := message.id) is not None:
            yield id


def some_id(line: bytes) -> str:
    """The id of the request in a line that is not clear, as JSON, for its refusal; `null` if there is none to see."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return "null"
    id = found.get("id") if isinstance(found, dict) else None
    return json.dumps(id) if isinstance(id, int | str) and not isinstance(id, bool) else "null"
