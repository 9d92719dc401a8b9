"""
Requests with a key in one scope of one database: their ids and fingerprints, and the records of certain results.

What such requests have in common (terms, scope, the settled record but for its key) is made once by the gate and the
core, and only the rest is made for each of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from onceward._core.atomic_flow import foretold_write
from onceward._core.codec import Encoded
from onceward._core.keys import record_id
from onceward._core.record import Write, new_tuple
from onceward.gate import AsyncGate
from onceward.gate.call_factory import KEY, CallSpec, unreachable
from onceward.stores._postgres_wire import Value, put_values

NAME: Final = "sql"
"""The operation's, in its record."""
CLAIM: Final = "last"
"""The record is put with the settled result: the effect is in the same database."""
RESULTS_MAX: Final = 100
"""Certain results whose records are kept ready in one scope: a program has few."""
_OWN: Final = ("id", "key", "fingerprint", "version", "token")
_ID, _KEY, _FINGERPRINT, _VERSION, _TOKEN = map(Write._fields.index, _OWN)


class KeyedCall(NamedTuple):
    """A request with a key, as its record knows it."""

    scope: KeyedScope
    key: str
    """As it is stored."""
    id: bytes
    fingerprint: bytes


class KeyedScope:
    """The keyed requests of one scope in one database."""

    def __init__(self, gate: AsyncGate) -> None:
        self.gate = gate
        self._factory = gate._call_factory
        # Of whatever key: what is the same for all of them.
        spec = CallSpec(unreachable, None, NAME)
        self._common = self._factory.joined_request(("-",), spec, {"claim": CLAIM}, given="-")
        self._settled: dict[Encoded, list[Value]] = {}

    def call(self, key: str, fingerprint: bytes) -> KeyedCall:
        """A request: its key, and what a retry has to equal."""
        factory = self._factory
        stored = factory.stored_key(key)
        id = record_id(KEY, factory.scope, stored)
        call: KeyedCall = new_tuple(KeyedCall, (self, stored, id, fingerprint))
        return call

    def settled(self, call: KeyedCall, kept: Encoded, chance: bytes) -> list[Value]:
        """The settled record of a request with a certain result, as PostgreSQL takes its values."""
        common = self._settled.get(kept)
        if common is None:
            if len(self._settled) >= RESULTS_MAX:
                self._settled.clear()
            write = foretold_write(self._common, kept, bytes(len(chance)))
            common = self._settled[kept] = put_values(write, None, "", relaxed=False)[:-2]
        values = common.copy()
        values[_ID], values[_KEY], values[_FINGERPRINT] = call.id, call.key.encode(), call.fingerprint
        values[_TOKEN], values[_VERSION] = chance[:16], chance[32:]
        return values
