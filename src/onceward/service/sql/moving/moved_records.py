"""
The record of a key on its way from one store to another.

A record's id is a hash of its kind, its scope and its key, and on PostgreSQL the scope has the database's schema in it.
So an id is made anew where a record arrives, and its family with it; everything else stays as it is: the fingerprint,
which is of the request alone, the fence, the instants, and the stored result, byte for byte. A value that is sealed is
bound to its id and its scope and would not open anywhere else: it is not moved.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from onceward._core.errors import ConfigurationError
from onceward._core.keys import KEY_PARTS, digest_of, plan_family, record_id
from onceward._core.sealing import is_sealed
from onceward.gate.call_factory import KEY, STEP
from onceward.stores._postgres_rows import COLUMNS as COLUMNS

_BYTES: Final = frozenset(("fingerprint", "version", "token", "result", "error", "holder"))
MARGIN_US: Final = 600_000_000
"""A record that is due within so long is not held to be what it was: a store may forget it at any moment."""


class MovedRecord(NamedTuple):
    """A record without what depends on where it is."""

    kind: str
    scope: str
    """Of the caller; without what names the database's schema."""
    key: str
    operation: str
    state: str
    guarantee: str
    doubt: int
    fingerprint: bytes
    version: bytes
    token: bytes
    fence: int
    attempt: int
    first_at: int
    settled_at: int | None
    lease_until: int | None
    replay_until: int | None
    forget_at: int | None
    codec: str | None
    result: bytes | None
    error: bytes | None
    holder: bytes | None

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: _plain(value) if name in _BYTES else value for name, value in self._asdict().items()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The record that `document` made data of."""
        values: dict[str, Any] = {name: _bytes(one) if name in _BYTES else one for name, one in document.items()}
        return cls(**values)

    def comparable(self, now: int) -> list[Any] | None:
        """What is compared of it after a move; None if a store may have forgotten it by now, less if it has expired."""
        if _due(self.forget_at, now):
            return None
        kept = self
        if _due(self.replay_until, now):
            kept = self._replace(version=b"", codec=None, result=None, error=None)
        return list(kept.document().values())


def portable(row: Sequence[Any], suffix: str) -> MovedRecord:
    """The record in a row of a store's; `suffix` is what the store adds to scopes. What cannot be moved is refused."""
    found = dict(zip(COLUMNS, row, strict=True))
    id, family, scope = bytes(found.pop("id")), found.pop("family"), found["scope"]
    family = None if family is None else bytes(family)
    digest = digest_of(id)
    if (id, family) != _names(found["kind"], scope, found["key"]) or not scope.endswith(suffix):
        raise ConfigurationError(
            f"the record {digest} is not one of a key or of a plan's step that this database holds, and its id cannot "
            "be computed again. Nothing was exported; look at it with `onceward records show`"
        )
    for name in _BYTES:
        found[name] = None if found[name] is None else bytes(found[name])
    made = MovedRecord(**found)
    if is_sealed(made.codec, made.result) or is_sealed(None, made.error):
        raise ConfigurationError(
            f"the result of record {digest} is sealed: it is tied to this database, and a copy could not be "
            "opened anywhere else. Nothing was exported. A database can be moved when its sealed results have expired"
        )
    return made._replace(scope=scope.removesuffix(suffix))


def stored_row(record: MovedRecord, suffix: str) -> list[Any]:
    """The row of a store whose scopes end so."""
    scope = record.scope + suffix
    names = _names(record.kind, scope, record.key)
    if names is None:
        raise ConfigurationError("the file has a record of a kind that this version does not know; upgrade onceward")
    found = {**record._asdict(), "id": names[0], "family": names[1], "scope": scope}
    return [found[name] for name in COLUMNS]


def _names(kind: str, scope: str, key: str) -> tuple[bytes, bytes | None] | None:
    """The id and the family that follow from scope and key; None for a kind that is not of a tenant's database."""
    parts = key.split(KEY_PARTS)
    if kind == KEY and len(parts) == 1:
        return record_id(KEY, scope, key), None
    if kind == STEP and len(parts) == 2:
        return record_id(STEP, scope, *parts), plan_family(scope, parts[0])
    return None


def _due(instant: int | None, now: int) -> bool:
    return instant is not None and instant <= now + MARGIN_US


def _plain(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else b64decode(value, validate=True)
