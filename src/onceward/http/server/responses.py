"""
Makes responses from stored results, and marks replays.

The stored bytes are never changed: a marker in the body is added when it is sent, if the profile asks for one.
"""

from __future__ import annotations

from json import loads
from typing import Any

from onceward._core.codec import BYTES, encode
from onceward._core.operation import Outcome
from onceward._core.record_types import new_tuple
from onceward._core.reply import HEAD_BYTES_REMEMBERED, HEADS_REMEMBERED, Headers, Reply
from onceward.http.server.handler_outcomes import UnstoredResponse
from onceward.http.server.media_type import is_json
from onceward.http.server.profile import NEVER_STORED, Profile

BODY_HEADERS = frozenset({"content-length", "etag"})
"""Headers of a response that are not true of its envelope."""

BODILESS_STATUSES = frozenset({204, 205, 304})
"""Statuses of responses without a body."""

REPLAY_MEMBER = "idempotencyReplayed"
"""The member that marker="member" adds to a replayed JSON object."""


def as_reply(value: Any) -> Reply:
    """A stored result as a response. A record that a person reconciled may hold plain JSON: status 200."""
    if isinstance(value, Reply):
        return value
    kept = encode(value)
    kind = "application/octet-stream" if kept.codec == BYTES else "application/json"
    return Reply(200, (("content-type", kind),), kept.data or b"")


def headers_and_body(reply: Reply) -> tuple[list[tuple[str, str]], bytes]:
    """
    The headers and the body of a response that is not a handler's own.

    Secrets, and headers that belong to one connection, are left out, whoever stored them.
    """
    headers = _allowed(reply.headers)
    if reply.status in BODILESS_STATUSES:
        return headers, b""
    headers.append(("content-length", str(len(reply.body))))
    return headers, reply.body


def raw_headers_and_body(reply: Reply) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """The same, with the headers as bytes. The list is the caller's own."""
    status, given, body = reply
    known = _raw_headers.get(given)
    headers = _encode_headers(given) if known is None else [*known]
    if status in BODILESS_STATUSES:
        return headers, b""
    headers.append((b"content-length", b"%d" % len(body)))
    return headers, body


_raw_headers: dict[Headers, tuple[tuple[bytes, bytes], ...]] = {}
"""Most responses of an application have one of a few heads. Long ones are not worth the memory."""


def _encode_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in _allowed(headers)]
    if sum([len(name) + len(value) for name, value in headers]) <= HEAD_BYTES_REMEMBERED:
        if len(_raw_headers) >= HEADS_REMEMBERED:
            _raw_headers.clear()
        _raw_headers[headers] = tuple(raw)
    return raw


def _allowed(headers: Headers) -> list[tuple[str, str]]:
    return [pair for pair in headers if pair[0] not in NEVER_STORED]


def settled_response(
    outcome: Outcome[Any], profile: Profile, result: Reply | UnstoredResponse | None = None
) -> Reply | None:
    """
    The first response of a transactional route: what its handler settled, whatever it returned (`result`). None: both
    are the same, and the handler's own is sent, with all its headers.
    """
    if outcome.value == result and profile.marker != "envelope":
        return None
    return with_body_marker(as_reply(outcome.value), profile, replayed=False, first_at=outcome.first_at.isoformat())


def enveloped_body(result: Reply | UnstoredResponse, profile: Profile, outcome: Outcome[Any] | None) -> bytes | None:
    """
    The body of a first response in its envelope, so that it has the shape of its replays; None: no envelope.

    The handler's BODY_HEADERS are not sent with it.
    """
    if profile.marker != "envelope" or not isinstance(result, Reply):
        return None
    first_at = None if outcome is None else outcome.first_at.isoformat()
    wrapped = with_body_marker(result, profile, replayed=False, first_at=first_at)
    return None if wrapped is result else wrapped.body


def replay_marks(profile: Profile) -> tuple[Headers, Headers]:
    """The headers that mark a replay: of a key, and of a step."""
    return ((profile.replay_header.lower(), "true"),), ((profile.plan_replay_header.lower(), "true"),)


def marked_replay(reply: Reply, profile: Profile, mark: Headers, outcome: Outcome[Any]) -> Reply:
    """A replay, marked as one: by these headers, and in its body if the profile asks for that."""
    status, headers, body = reply
    marked: Reply = new_tuple(Reply, (status, headers + mark, body))
    if profile.marker == "header":
        return marked
    return with_body_marker(marked, profile, replayed=True, first_at=outcome.first_at.isoformat())


def with_body_marker(reply: Reply, profile: Profile, *, replayed: bool, first_at: str | None = None) -> Reply:
    """The response with a marker in its body, if the profile asks for one and the body is JSON."""
    if profile.marker == "header" or (profile.marker == "member" and not replayed) or not _is_json(reply):
        return reply
    try:
        found = loads(reply.body.decode())  # UTF-8 only: ASCII bytes are inserted between its bytes.
    except (ValueError, RecursionError):
        return reply
    if profile.marker == "member":
        if not isinstance(found, dict) or REPLAY_MEMBER in found:
            return reply
        # Before the closing brace, so that everything else stays as it is, byte for byte.
        body = reply.body.rstrip()[:-1].rstrip()
        comma = b"," if found else b""
        return _with_body(reply, body + comma + b'"' + REPLAY_MEMBER.encode() + b'":true}')
    head = [b'{"replayed":', b"true" if replayed else b"false", b',"status":', str(reply.status).encode()]
    if first_at is not None:
        head += [b',"firstAt":"', first_at.encode(), b'"']
    return _with_body(reply, b"".join([*head, b',"body":', reply.body.strip(), b"}"]))


def _with_body(reply: Reply, body: bytes) -> Reply:
    headers = tuple((name, value) for name, value in reply.headers if name not in BODY_HEADERS)
    return reply._replace(headers=headers, body=body)


def _is_json(reply: Reply) -> bool:
    return is_json([(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers])
