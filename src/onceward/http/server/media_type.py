"""
Parses Content-Type strictly, so that two can be compared: the type in lower case, and its parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_TYPE = re.compile(rf"\s*({_WORD}/{_WORD})\s*")
_PARAMETER = re.compile(rf';\s*({_WORD})=(?:({_WORD})|"((?:[^"\\]|\\.)*)")\s*')


def parse_media_type(raw: bytes) -> tuple[str, dict[str, str]]:
    """The type and its parameters; `("", {})` if it is malformed."""
    text = raw.decode("latin-1")
    kind = _TYPE.match(text)
    if kind is None:
        return "", {}
    parameters: dict[str, str] = {}
    at = kind.end()
    while at < len(text):
        found = _PARAMETER.match(text, at)
        if found is None or found.group(1).lower() in parameters:
            return "", {}
        name, token, quoted = found.groups()
        parameters[name.lower()] = token if token is not None else re.sub(r"\\(.)", r"\1", quoted)
        at = found.end()
    return kind.group(1).lower(), parameters


def is_json(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a body with these headers (names in lower case) is JSON, and not compressed."""
    kinds = [value for name, value in headers if name == b"content-type"]
    if len(kinds) != 1 or any(name == b"content-encoding" and value != b"identity" for name, value in headers):
        return False
    kind, _ = parse_media_type(kinds[0])
    return kind == "application/json" or kind.endswith("+json")
