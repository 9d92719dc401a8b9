"""
An HTTP answer as a result: status, headers and body, kept together and given back byte for byte.

Stored form (codec `http/1`): one line of JSON with the status and the headers, then the body as it is.

    [201,[["content-type","application/json"]]]\\n{"id":7}

What is read back is checked as if a stranger had written it: a planted line end in a header would let whoever can
write to the store forge answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from json import JSONEncoder, dumps
from typing import Any, NamedTuple, TypeAlias

from onceward._core.errors import ResultInvalid
from onceward._core.record_types import new_tuple
from onceward._core.strict_json import parse_json

HEADS_REMEMBERED = 256
HEAD_BYTES_REMEMBERED = 1_024
"""Most answers of an application begin alike; a head that was read (and checked) before is known by its bytes."""

_ENCODER = JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


Headers: TypeAlias = tuple[tuple[str, str], ...]


class Reply(NamedTuple):
    """An HTTP answer: what a keyed request is remembered by."""

    status: int
    headers: Headers = ()
    """Names in lower case, values as text in Latin-1, in the order in which they are sent."""
    body: bytes = b""

    @classmethod
    def json(cls, value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
        """An answer with a JSON body: `Reply.json({"id": 7}, status=201)`."""
        try:
            body = dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise ResultInvalid(
                f"this result is not JSON ({error}); give it plain data, or Reply(status, ...)"
            ) from error
        others = ((name.lower(), text) for name, text in (headers or {}).items())
        return cls(status, (("content-type", "application/json"), *others), body)

    def header(self, name: str) -> str | None:
        """The first value of a header, by its name in lower case."""
        return next((value for found, value in self.headers if found == name), None)


def pack_reply(reply: Reply) -> bytes:
    """The stored form; `ResultInvalid` unless it is a status, headers that are headers, and bytes."""
    return pack_and_keep(reply)[0]


def pack_and_keep(reply: Reply) -> tuple[bytes, Reply | None]:
    """The stored form, and what `unpack_reply` makes of it, if that is known: a head that was packed before."""
    status, headers, body = reply
    if type(status) is not int or type(body) is not bytes:
        raise ResultInvalid(_UNSOUND)
    try:
        known = _packed_heads.get((status, headers))
    except TypeError:
        known = None  # Headers in lists are headers, too.
    if known is None:
        return _pack_head(status, headers) + body, None
    # The headers that are known, and not those that are equal to them: these may be of other types.
    return known[0] + body, new_tuple(Reply, (status, known[1], body))


def _pack_head(status: int, headers: Headers) -> bytes:
    try:
        if not (
            100 <= status <= 999 and all(_NAME.fullmatch(name) and _VALUE.fullmatch(value) for name, value in headers)
        ):
            raise ResultInvalid(_UNSOUND)
    except (TypeError, ValueError):
        raise ResultInvalid(_UNSOUND) from None
    head = _ENCODER.encode((status, headers)).encode() + b"\n"
    if len(head) <= HEAD_BYTES_REMEMBERED and type(headers) is tuple and all(type(one) is tuple for one in headers):
        if len(_packed_heads) >= HEADS_REMEMBERED:
            _packed_heads.clear()
        _packed_heads[status, headers] = head, _read_head(head)[1]
    return head


_packed_heads: dict[tuple[int, Headers], tuple[bytes, Headers]] = {}
_UNSOUND = "this HTTP response has an invalid status, header or body"


def unpack_reply(data: bytes) -> Reply:
    """The answer that was stored; `ResultInvalid` if this is none."""
    end = data.find(b"\n") + 1
    # A long head is seldom a common one, and would only be memory held.
    status, headers = _known_head(data[:end]) if end <= HEAD_BYTES_REMEMBERED else _read_head(data[:end])
    return new_tuple(Reply, (status, headers, data[end:]))  # type: ignore[no-any-return]


def _read_head(head: bytes) -> tuple[int, Headers]:
    try:
        found = parse_json(head)
    except Exception as error:
        raise ResultInvalid(
            "this stored HTTP response does not begin with a status and headers: look at the record"
        ) from error
    match found:
        case [int(status), [*headers]] if type(status) is int and 100 <= status <= 999:
            return status, tuple(map(_header, headers))
    raise ResultInvalid("this stored HTTP response does not begin with a status and headers: look at the record")


_known_head = lru_cache(maxsize=HEADS_REMEMBERED)(_read_head)


def _header(found: object) -> tuple[str, str]:
    match found:
        case [str(name), str(value)] if _NAME.fullmatch(name) and _VALUE.fullmatch(value):
            return name, value
    raise ResultInvalid("this stored HTTP response has an invalid header: look at the record")
