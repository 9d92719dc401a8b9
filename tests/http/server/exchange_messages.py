"""
What is asked and answered behind every wire (`wires.py`), and what is kept of it, in a form that can be compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple


class Said(NamedTuple):
    """A handler's answer."""

    status: int = 201
    body: bytes = b'{"charge":1}'
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"), ("etag", '"one"'))
    pieces: tuple[bytes, ...] | None = None
    """A stream of these, without a length, in place of the body."""
    breaks: bool = False
    """Whether the stream breaks off after these pieces."""

    @property
    def head(self) -> list[tuple[str, str]]:
        return [*self.headers, *([] if self.pieces is not None else [("content-length", str(len(self.body)))])]


class Asked(NamedTuple):
    """A request."""

    key: str | None = "k"
    body: bytes = b"{}"
    method: str = "POST"
    path: str = "/a"
    headers: tuple[tuple[str, str], ...] = ()
    query: str = ""
    slow: bool = False
    """Whether the body takes longer than is allowed."""
    leaves: bool = False
    """Whether the client is gone when the first piece of its answer has come; how the rest broke off, nobody sees."""

    @property
    def head(self) -> list[tuple[str, str]]:
        own = [("content-type", "application/json"), ("content-length", str(len(self.body)))]
        return own + ([] if self.key is None else [("idempotency-key", self.key)]) + list(self.headers)


class Heard(NamedTuple):
    """What a client was answered."""

    status: int
    headers: dict[str, str]
    body: bytes
    broke: str = ""
    """What its end was lost by."""
    pieces: tuple[bytes, ...] = ()
    """The body, as it left."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Kept(NamedTuple):
    """What a record says, but for its times."""

    kind: str
    key: str
    operation: str
    state: str
    guarantee: str
    doubt: bool
    attempt: int
    codec: str | None
    result: Any
    failure: str | None


OWN_500 = Heard(500, {}, b"", "the server's own 500")
"""What a server, or Django, makes of an exception that nobody has caught."""

_FIRST_AT = re.compile(rb'("firstAt":")([^"]+)"')

Handler = Callable[[bytes], Said]


class StreamBroke(Exception):
    """A handler's stream ended in the middle."""


def _then(found: re.Match[bytes]) -> bytes:
    return found[1] + b"-" * len(found[2]) + b'"'


def heard(status: int, headers: list[tuple[str, str]], pieces: list[bytes], broke: BaseException | None) -> Heard:
    """An answer, its headers in lower case, without `connection` (no WSGI application may say that)."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name.lower() != "connection":
            found[name.lower()] = f"{found[name.lower()]}, {value}" if name.lower() in found else value
    pieces = [_FIRST_AT.sub(_then, piece) for piece in pieces]  # Some stores have clocks of their own.
    body = b"".join(pieces)
    if b"<h1>Server Error (500)</h1>" in body:
        return OWN_500
    ending = "" if broke is None else type(broke).__name__
    return Heard(status, found, body, ending, tuple(piece for piece in pieces if piece))
