"""
HTTP requests as dead letters keep them: enough to send one again, and no credentials.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError

REQUEST = "request"
"""The name under which a letter's payload holds its request."""

_PORTS = {"http": 80, "https": 443}


class SentRequest(NamedTuple):
    """An HTTP request, as far as it may be kept: enough to send it again, and no credentials."""

    method: str
    url: str
    headers: dict[str, str]
    """What it cannot do without: the key's header, the kind of its body. Never a credential or a cookie."""
    body: bytes | None
    """None: a stream, which cannot be sent again."""
    safe: bool = False
    """Whether sending it again is harmless whenever that is: by its method, or because its body names what it does."""
    name: str | None = None
    """What it is known by, where it has no key: a delta's reference, a plan's step."""


def origin_of(url: str) -> str:
    """Scheme, host and port: whom a request goes to."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigurationError(
            f"an address begins with http:// or https:// and names a host, and {url[:100]!r} does not"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or _PORTS[parts.scheme]}"


def request_line_of(sent: SentRequest) -> str:
    """What a letter says about its request whatever is kept of it: no query and no user, which may be secrets."""
    parts = urlsplit(sent.url)
    return f"{sent.method} {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def request_document_of(sent: SentRequest) -> dict[str, Any]:
    """A request as it is kept."""
    body = sent.body or b""
    try:
        kept = {"text": body.decode("utf-8")}
    except UnicodeDecodeError:
        kept = {"base64": b64encode(body).decode("ascii")}
    return {**sent._asdict(), "body": kept}


def sent_request_of(kept: Mapping[str, Any]) -> SentRequest:
    """The request that a letter's payload holds."""
    match kept.get(REQUEST):
        case {"method": str(method), "url": str(url), "headers": dict(headers), "body": dict(body), "safe": bool(safe)}:
            content = body["text"].encode() if "text" in body else b64decode(body["base64"], validate=True)
            return SentRequest(method, url, headers, content, safe, kept[REQUEST].get("name"))
    raise ConfigurationError("this dead letter holds no request that could be sent")
