"""
Requests with a key in one scope of one tenant's schema, and the records of certain results as PostgreSQL takes them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from onceward._core.codec import Encoded
from onceward._core.record import Write, new_tuple
from onceward.gate import AsyncGate
from onceward.service.sql.keyed_scope import KeyedScope
from onceward.stores._postgres_wire import Value, put_values

RESULTS_MAX: Final = 100
"""Certain results whose records are kept ready in one scope: a program has few."""
_OWN: Final = ("id", "key", "fingerprint", "version", "token")
_ID, _KEY, _FINGERPRINT, _VERSION, _TOKEN = map(Write._fields.index, _OWN)


class KeyedCall(NamedTuple):
    """A request with a key, as its record knows it."""

    scope: SchemaKeyedScope
    key: str
    """As it is stored."""
    id: bytes
    fingerprint: bytes


class SchemaKeyedScope(KeyedScope):
    """The keyed requests of one scope in one schema."""

    def __init__(self, gate: AsyncGate) -> None:
        super().__init__(gate._call_factory)
        self.gate = gate
        self._certain: dict[Encoded, list[Value]] = {}

    def call(self, key: str, fingerprint: bytes) -> KeyedCall:
        """A request: its key, and what a retry has to equal."""
        call: KeyedCall = new_tuple(KeyedCall, (self, *self.named(key), fingerprint))
        return call

    def certain(self, call: KeyedCall, kept: Encoded, chance: bytes) -> list[Value]:
        """The settled record of a request with a certain result, as PostgreSQL takes its values."""
        common = self._certain.get(kept)
        if common is None:
            if len(self._certain) >= RESULTS_MAX:
                self._certain.clear()
            write = self.write_of(kept, bytes(len(chance)))
            common = self._certain[kept] = put_values(write, None, "", relaxed=False)[:-2]
        values = common.copy()
        values[_ID], values[_KEY], values[_FINGERPRINT] = call.id, call.key.encode(), call.fingerprint
        values[_TOKEN], values[_VERSION] = chance[:16], chance[32:]
        return values
