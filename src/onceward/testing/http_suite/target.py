"""
The description of a target: its address, the requests to send, and how to see that one ran.

A description is a mapping, from a TOML file, from flags or from both. Whatever it gets wrong is a `ConfigurationError`
that says which name is meant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Template
from typing import Any

from onceward._core.errors import ConfigurationError
from onceward.testing.http_suite.expectations import PROFILES, Expectations
from onceward.testing.http_suite.raw_http import Origin, read_url

SECONDS = 10.0
"""For one exchange, from connecting to the last byte: what a person waits at most."""

SECONDS_MAX = 300.0

CROWD = 8
"""Duplicates sent at once: enough to meet, and few enough for an API with a small pool."""

CROWD_MAX = 64

BODY = '{"n": {n}}'
"""The default body. `{n}` is a fresh number in every case."""

WELL_KNOWN = "/.well-known/idempotency"


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """One kind of request; `{n}` in path and body stands for a number that is fresh in every case."""

    method: str
    path: str
    body: str | None


@dataclass(frozen=True, slots=True)
class ExecutionCounter:
    """Where the number of executions can be read: a server, a path, and a pointer into its JSON."""

    origin: Origin
    path: str
    pointer: str


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """An API, and what may be sent to it."""

    origin: Origin
    request: RequestTemplate
    expected: Expectations
    changed_body: str | None = None
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    other_headers: tuple[tuple[str, str], ...] | None = field(default=None, repr=False)
    other_path: str | None = None
    slow: RequestTemplate | None = None
    fail_4xx: RequestTemplate | None = None
    repair: RequestTemplate | None = None
    fail_5xx: RequestTemplate | None = None
    stream: RequestTemplate | None = None
    no_content: RequestTemplate | None = None
    well_known: str = WELL_KNOWN
    unique: str | None = None
    counter: ExecutionCounter | None = None
    timeout: float = SECONDS
    crowd: int = CROWD
    follow_links: bool = False

    def tenant_headers(self, *, other: bool) -> tuple[tuple[str, str], ...]:
        """The headers of a request. The other tenant's take the place of those of the same name."""
        if not other or self.other_headers is None:
            return self.headers
        replaced = {name.lower() for name, _ in self.other_headers}
        return (*(one for one in self.headers if one[0].lower() not in replaced), *self.other_headers)


_TEXTS = ("url", "profile", "method", "body", "changed_body", "content_type", "other_path", "well_known", "unique")
_SHAPES = ("slow", "fail_4xx", "repair", "fail_5xx", "stream", "no_content")
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys((*_TEXTS, "count_url", "count_pointer"), (str,)),
    **dict.fromkeys((*_SHAPES, "headers", "other_headers", "expect"), (dict,)),
    "timeout": (int, float),
    "crowd": (int,),
    "follow_links": (bool,),
}


def describe(description: Mapping[str, Any], environment: Mapping[str, str]) -> HttpTarget:
    """A target from its description. `$NAME` in a header is taken from the environment."""
    for name, value in description.items():
        if name not in _KINDS:
            raise ConfigurationError(f"a target has no {name!r}; the names are {', '.join(_KINDS)}")
        if not isinstance(value, _KINDS[name]) or (isinstance(value, bool) and bool not in _KINDS[name]):
            raise ConfigurationError(f"{name} of the target must be {_KINDS[name][-1].__name__}")
    if "url" not in description:
        raise ConfigurationError(
            "no address is given. Give the address of the API: onceward conformance http://host:port/path"
        )
    origin, path = read_url(description["url"])
    method = _method(description.get("method", "POST"))
    request = RequestTemplate(method, path, None if method == "DELETE" else description.get("body", BODY))
    other = description.get("other_headers")
    shapes: dict[str, Any] = {name: _shape(name, description[name], request) for name in _SHAPES if name in description}
    return HttpTarget(
        origin,
        request,
        _expected(description),
        **{name: description[name] for name in ("changed_body", "content_type", "follow_links") if name in description},
        headers=_headers(description.get("headers", {}), environment),
        other_headers=None if other is None else _headers(other, environment),
        other_path=None if "other_path" not in description else _path("other_path", description["other_path"]),
        **shapes,
        well_known=_path("well_known", description.get("well_known", WELL_KNOWN)),
        unique=None if "unique" not in description else _pointer("unique", description["unique"]),
        counter=_counter(description, origin),
        timeout=_within("timeout", description.get("timeout", SECONDS), 0.1, SECONDS_MAX),
        crowd=int(_within("crowd", description.get("crowd", CROWD), 2, CROWD_MAX)),
    )


def resolve_pointer(document: Any, pointer: str) -> Any:
    """What a JSON pointer (RFC 6901) points at. KeyError if there is nothing."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict) and name in document:
            document = document[name]
        elif isinstance(document, list) and name.isdecimal() and int(name) < len(document):
            document = document[int(name)]
        else:
            raise KeyError(pointer)
    return document


def body_members(body: bytes | None) -> dict[str, Any] | None:
    """The members of a JSON object; None if the body is no such thing, or has none."""
    try:
        value = json.loads(body or b"")
    except ValueError:
        return None
    return value if isinstance(value, dict) and value else None


def _expected(description: Mapping[str, Any]) -> Expectations:
    name = description.get("profile", "default")
    if name not in PROFILES:
        raise ConfigurationError(f"there is no profile {name!r}; the profiles are {', '.join(PROFILES)}")
    return PROFILES[name].with_changes(description.get("expect", {}))


def _method(name: str) -> str:
    if not (name.isascii() and name.isalpha()):
        raise ConfigurationError(f"{name!r} is not an HTTP method")
    return name.upper()


def _path(name: str, path: str) -> str:
    if not path.startswith("/") or not (path.isascii() and path.isprintable()) or " " in path:
        raise ConfigurationError(f"{name} must be a path that begins with / and has no spaces: {path!r}")
    return path


def _pointer(name: str, pointer: str) -> str:
    if pointer and not pointer.startswith("/"):
        raise ConfigurationError(f"{name} must be a JSON pointer such as /id, not {pointer!r}")
    return pointer


def _shape(name: str, parts: Mapping[str, Any], usual: RequestTemplate) -> RequestTemplate:
    if unknown := [part for part in parts if part not in ("method", "path", "body")]:
        raise ConfigurationError(f"{name} has no {unknown[0]!r}; it has method, path and body")
    if wrong := [part for part, value in parts.items() if not isinstance(value, str)]:
        raise ConfigurationError(f"{wrong[0]} of {name} must be text")
    path = _path(f"path of {name}", parts.get("path", usual.path))
    return RequestTemplate(_method(parts.get("method", usual.method)), path, parts.get("body", usual.body))


def _headers(headers: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, _header_value(name, value, environment)) for name, value in headers.items())


def _header_value(name: str, value: Any, environment: Mapping[str, str]) -> str:
    if not isinstance(value, str) or not name or not all("!" <= one <= "~" and one != ":" for one in name):
        raise ConfigurationError(f"{name!r} is not a header; write NAME: VALUE")
    try:
        full = Template(value).substitute(environment)
    except KeyError as missing:
        raise ConfigurationError(f"header {name}: the environment variable {missing.args[0]} is not set") from None
    except ValueError:
        raise ConfigurationError(f"header {name}: write $NAME for a variable, and $$ for a dollar sign") from None
    if not all(" " <= one <= "ÿ" and one != "\x7f" for one in full):
        raise ConfigurationError(f"header {name}: its value has characters that a header cannot have")
    return full


def _counter(description: Mapping[str, Any], origin: Origin) -> ExecutionCounter | None:
    if "count_url" not in description:
        if "count_pointer" in description:
            raise ConfigurationError("count_pointer points into the response of count_url; give both")
        return None
    url = description["count_url"]
    where, path = (origin, _path("count_url", url)) if url.startswith("/") else read_url(url)
    return ExecutionCounter(where, path, _pointer("count_pointer", description.get("count_pointer", "")))


def _within(name: str, number: float, least: float, most: float) -> float:
    if not least <= number <= most:
        raise ConfigurationError(f"{name} must be from {least:g} to {most:g}")
    return number
