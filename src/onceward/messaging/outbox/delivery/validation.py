"""
Checks that endpoints share: of numbers, and of headers that somebody else chose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from onceward._core.errors import ConfigurationError

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_VALUE = re.compile(r"(?:[!-~](?:[ -~\t]{0,4094}[!-~])?)?", re.ASCII)
_RESERVED_HEADERS = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection", "keep-alive", "te", "trailer",
     "upgrade", "expect", "proxy-authorization", "proxy-connection", "accept-encoding", "x-event-id",
     "x-webhook-event"}
)  # fmt: skip
_RESERVED_PREFIXES = ("webhook-", "x-pacspace-")


class UnsendableMessage(Exception):
    """A message that this endpoint cannot send, however often it is tried. The text says what is wrong with it."""


def header_problem(headers: Mapping[str, str]) -> str | None:
    """What is wrong with headers that somebody gave, if something is. Values are not repeated."""
    for name in headers:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return "the name of a header has characters that are not allowed"
        if name.lower() in _RESERVED_HEADERS or name.lower().startswith(_RESERVED_PREFIXES):
            return f"the header {name} is written by the endpoint itself"
    return header_value_problem(headers)


def header_value_problem(headers: Mapping[str, str]) -> str | None:
    """The same for the values alone."""
    for name, value in headers.items():
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            return f"the value of {name} is not one line of at most 4096 visible ASCII characters"
    return None


def check_positive(name: str, value: float, most: float) -> float:
    """A number that a deadline or a limit can be."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise ConfigurationError(f"{name} must be a number above 0, and at most {most:g}")
    return value
