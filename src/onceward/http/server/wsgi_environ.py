"""
Converts a WSGI environ to an `IncomingRequest`.

An environ has lost two things. Headers of one name are joined with a comma: so a key with a comma in it must be quoted.
And the path is decoded: where the server keeps it as it was sent (REQUEST_URI, RAW_URI), that is used; where it does
not, `%2F` and `/` are the same path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from onceward.http.server.request_admission import IncomingRequest


def request_from_environ(environ: Mapping[str, Any], single: frozenset[bytes]) -> IncomingRequest:
    """The request. `single` are the headers that may occur once."""
    path = str(environ.get("SCRIPT_NAME", "")) + str(environ.get("PATH_INFO", ""))
    sent = path.encode("latin-1")
    query = str(environ.get("QUERY_STRING", "")).encode("latin-1")
    return IncomingRequest(
        environ["REQUEST_METHOD"].upper(),  # As most frameworks read it: to them a "post" is a POST.
        sent.decode("utf-8", "replace"),
        raw_path(environ, sent),
        query,
        headers_from_environ(environ, single),
        environ,
    )


def headers_from_environ(environ: Mapping[str, Any], single: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    """The headers, names in lower case; a joined one that may occur only once is split again."""
    found = []
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            name = name[5:]
        elif name not in ("CONTENT_TYPE", "CONTENT_LENGTH") or not value:
            continue
        header, raw = name.replace("_", "-").lower().encode("latin-1"), value.encode("latin-1")
        if header in single and b"," in raw and not raw.lstrip().startswith(b'"'):
            found += [(header, part) for part in raw.split(b",")]
        else:
            found.append((header, raw))
    return found


def raw_path(environ: Mapping[str, Any], path: bytes) -> bytes:
    """The path as it was sent, if the server keeps it; otherwise this path, percent-encoded."""
    for name in ("RAW_URI", "REQUEST_URI"):
        uri = environ.get(name)
        if isinstance(uri, str) and uri.startswith("/"):
            sent = uri.partition("?")[0].encode("latin-1", "replace")
            if unquote_to_bytes(sent) == path:
                return sent
    return quote(path).encode("ascii")
