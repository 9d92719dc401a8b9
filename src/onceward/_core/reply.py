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
from typing import Any, NamedTuple

from onceward._core.errors import ResultInvalid
from onceward._core.strict_json import parse_json

HEADS_REMEMBERED = 256
HEAD_BYTES_REMEMBERED = 1_024
"""Most answers of an application begin alike; a head that was read (and checked) before is known by its bytes."""

_ENCODER = JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class Reply(NamedTuple):
    """An HTTP answer: what a keyed request is remembered by."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
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


def is_valid_reply(reply: Reply) -> bool:
    """Whether this can be stored and sent: a status, headers that are headers, and bytes."""
    try:
        return (
            type(reply.status) is int
            and 100 <= reply.status <= 999
            and type(reply.body) is bytes
            and all(_NAME.fullmatch(name) and _VALUE.fullmatch(value) for name, value in reply.headers)
        )
    except (TypeError, ValueError):
        return False


def pack_reply(reply: Reply) -> bytes:
    """The stored form of a sound one."""
    return _ENCODER.encode((reply.status, reply.headers)).encode() + b"\n" + reply.body


def unpack_reply(data: bytes) -> Reply:
    """The answer that was stored; `ResultInvalid` if this is none."""
    end = data.find(b"\n") + 1
    head = data[:end]
    # A long head is seldom a common one, and would only be memory held.
    status, headers = _known_head(head) if end <= HEAD_BYTES_REMEMBERED else _read_head(head)
    return Reply(status, headers, data[end:])


def _read_head(head: bytes) -> tuple[int, tuple[tuple[str, str], ...]]:
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
