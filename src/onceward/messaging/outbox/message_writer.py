"""
Checks a message, and writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from onceward._core.canonical import canonical
from onceward._core.errors import ConfigurationError, KeyInvalid, KeyMissing, KeyReused
from onceward._core.keys import check_key
from onceward.runtime import failpoints
from onceward.runtime.environment import Environment
from onceward.stores.tables.sql_steps import Sql, SqlSteps

PAYLOAD_BYTES_MAX = 1024 * 1024
"""Of one message: as much as a stored result may have. Receivers of webhooks often take less."""
HEADERS_MAX = 20
HEADER_BYTES_MAX = 1000
NAME_CHARACTERS_MAX = 100
JSON_TYPE = "application/json"
BYTES_TYPE = "application/octet-stream"

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_DELIVERY_HEADERS = re.compile(
    r"webhook-|x-event-|x-signature|content-|host$|connection$|transfer-|authorization$", re.IGNORECASE
)
"""Headers that a delivery writes by itself."""

failpoints.declare("outbox.add.before", "just before a message is written in the caller's transaction")
failpoints.declare("outbox.add.after", "just after a message was written in the caller's transaction")


class NewMessage(NamedTuple):
    """A checked message, to be written."""

    id: str
    endpoint: str
    topic: str
    aggregate: str | None
    payload: bytes
    content_type: str
    headers: str


def check_message(
    environment: Environment,
    *,
    to: str,
    payload: Any,
    topic: str,
    aggregate: str | None,
    id: str | None,
    headers: Mapping[str, str] | None,
    content_type: str | None,
) -> NewMessage:
    """The message to write; `ConfigurationError` or `RequestInvalid` if something is wrong with it."""
    body = bytes(payload) if isinstance(payload, bytes | bytearray | memoryview) else canonical(payload)
    if len(body) > PAYLOAD_BYTES_MAX:
        raise ConfigurationError(
            f"a message has at most {PAYLOAD_BYTES_MAX:,} bytes, and this one has {len(body):,}; send a reference "
            "instead, and let the receiver fetch the data"
        )
    kind = content_type or (BYTES_TYPE if isinstance(payload, bytes | bytearray | memoryview) else JSON_TYPE)
    if not isinstance(kind, str) or not _HEADER_VALUE.fullmatch(kind) or len(kind) > NAME_CHARACTERS_MAX:
        raise ConfigurationError("content_type must be the type of the payload, such as 'application/json'")
    if id is not None and "." in _text("id", id, 255):
        raise ConfigurationError(f"id must have no full stop, because webhooks sign `id.time.body`: {id[:40]!r}")
    return NewMessage(
        f"msg_{environment.random(16).hex()}" if id is None else id,
        _text("to", to, NAME_CHARACTERS_MAX),
        _text("topic", topic, 255),
        None if aggregate is None else _text("aggregate", aggregate, 255),
        body,
        kind,
        json.dumps(_headers(headers or {}), sort_keys=True, separators=(",", ":")),
    )


def _text(what: str, value: str, limit: int) -> str:
    try:
        return check_key(value, limit)
    except (KeyInvalid, KeyMissing):
        raise ConfigurationError(
            f"{what} must be 1 to {limit} visible ASCII characters without spaces, not {str(value)[:40]!r}"
        ) from None


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(headers, Mapping) or len(headers) > HEADERS_MAX:
        raise ConfigurationError(f"headers must be a mapping of at most {HEADERS_MAX} names to texts")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ConfigurationError(f"not the name of a header: {str(name)[:40]!r}")
        if _DELIVERY_HEADERS.match(name):
            raise ConfigurationError(f"the header {name} is added when the message is delivered; leave it out")
        if not isinstance(value, str) or len(value) > HEADER_BYTES_MAX or not _HEADER_VALUE.fullmatch(value):
            raise ConfigurationError(
                f"the header {name} needs visible ASCII, without line breaks, of at most {HEADER_BYTES_MAX} characters"
            )
    return dict(headers)


# Each table's name after one blank: so it is found whatever the caller's search path is.

_TAKE_TURN = "SELECT {turn} AS taken"
_INSERT = """INSERT INTO onceward_outbox_messages
    (id, endpoint, topic, aggregate, payload, content_type, headers, created_at, due_at)
    VALUES (:id, :endpoint, :topic, :aggregate, :payload, :content_type, :headers, :now, :now)
    ON CONFLICT (id) DO NOTHING RETURNING seq"""
_SAME = """SELECT count(*) FROM onceward_outbox_messages WHERE id = :id AND endpoint = :endpoint AND topic = :topic
    AND coalesce(aggregate, '') = coalesce(CAST(:aggregate AS text), '') AND payload = :payload
    AND content_type = :content_type AND headers = :headers"""


def write_message(message: NewMessage) -> SqlSteps[bool]:
    """Write a message; False if the same is there already. `KeyReused` if its id was used for another one."""
    if message.aggregate is not None:
        yield Sql(_TAKE_TURN, {"turn": f"{message.endpoint} {message.aggregate}"})
    values = message._asdict()
    if (yield Sql(_INSERT, values)):
        return True
    [(same,)] = yield Sql(_SAME, values)
    if not same:
        raise KeyReused(
            f"a message with the id {message.id} was added before, with other content or to another endpoint; a "
            "different message needs an id of its own"
        )
    return False
