"""
Requests with a key in one scope of one database: their ids, and the settled records of those that ran.

What such requests have in common (terms, scope, the settled record but for its key) is made once by the gate and the
core, and only the rest is made for each of them.
"""

from __future__ import annotations

from typing import Any, Final

from onceward._core.atomic_flow import foretold_write, keep_result
from onceward._core.codec import JSON, Encoded
from onceward._core.keys import record_id
from onceward._core.record import Write, new_tuple
from onceward.gate.call_factory import KEY, CallFactory, CallSpec, unreachable

NAME: Final = "sql"
"""The operation's, in its record."""
CLAIM: Final = "last"
"""The record is put with the settled result: the effect is in the same database."""
CHANCE_BYTES: Final = 48
"""What a record takes of chance: its token, and its version at the end."""
_OWN: Final = ("id", "key", "fingerprint", "version", "token", "result")
_ID, _KEY, _FINGERPRINT, _VERSION, _TOKEN, _RESULT = map(Write._fields.index, _OWN)


class KeyedScope:
    """The keyed requests of one scope in one database."""

    def __init__(self, factory: CallFactory) -> None:
        self._factory = factory
        # Of whatever key: what is the same for all of them.
        spec = CallSpec(unreachable, None, NAME)
        self._common = factory.joined_request(("-",), spec, {"claim": CLAIM}, given="-")
        self._settled = list(self.write_of(Encoded(JSON, b""), bytes(CHANCE_BYTES)))

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens to what becomes of its keys."""
        return self._factory.is_heard

    def named(self, key: str) -> tuple[str, bytes]:
        """A key as it is stored, and the id of its record."""
        stored = self._factory.stored_key(key)
        return stored, record_id(KEY, self._factory.scope, stored)

    def write_of(self, kept: Encoded, chance: bytes) -> Write:
        """The settled record of a result, but for its key."""
        return foretold_write(self._common, kept, chance)

    def kept(self, document: dict[str, Any]) -> bytes:
        """The JSON text of a statement's result, as it is stored and sent; `ResultInvalid` if it is too long."""
        kept = keep_result(self._common, document, plain=True).data
        return b"" if kept is None else kept

    def settled(self, named: tuple[str, bytes], fingerprint: bytes, result: bytes, chance: bytes) -> Write:
        """The settled record of a request that ran now, where no record stands under its key."""
        values = self._settled.copy()
        values[_KEY], values[_ID] = named
        values[_FINGERPRINT], values[_RESULT] = fingerprint, result
        values[_TOKEN], values[_VERSION] = chance[:16], chance[32:]
        write: Write = new_tuple(Write, values)
        return write
