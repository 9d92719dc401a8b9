"""
The header fields of a request by name (`RequestHead`): looked through once, however many ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from hashlib import sha256
from typing import Any

from onceward._core.keys import DIGEST_CHARACTERS
from onceward.protocol.headers import IDEMPOTENCY_KEY, PLAN_KEY, PLAN_STEP

KEY_FIELDS = tuple(name.lower().encode() for name in (IDEMPOTENCY_KEY, PLAN_KEY, PLAN_STEP))
"""What names a key. Logs and journals show a digest of it."""
_PLACE = "onceward.head"
"""Where a request's is kept, in its ASGI scope."""


class RequestHead:
    """Header fields, names in lower case."""

    __slots__ = ("_digests", "fields", "last", "single")

    def __init__(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        self.fields = list(fields)
        """As they came, one after the other."""
        self.last: Mapping[bytes, bytes] = dict(self.fields)
        """By name: the last value of each."""
        if not b"".join(self.last).islower():  # Servers write them in lower case already, as ASGI has it.
            self.fields = [(name.lower(), value) for name, value in self.fields]
            self.last = dict(self.fields)
        self.single: Mapping[bytes, bytes] | None = self.last if len(self.last) == len(self.fields) else None
        """By name, if none of them occurs twice."""
        self._digests: Mapping[bytes, str] | None = None

    def __contains__(self, name: object) -> bool:
        return name in self.last

    def first(self, name: bytes) -> bytes | None:
        """The first value of a field; None if there is none."""
        if self.single is not None:
            return self.single.get(name)
        return next((value for found, value in self.fields if found == name), None)

    def digests(self) -> Mapping[bytes, str]:
        """What logs and journals show of those fields that name a key, by name."""
        known = self._digests
        if known is None:
            sent = {} if self.last.keys().isdisjoint(KEY_FIELDS) else {name: self.first(name) for name in KEY_FIELDS}
            known = self._digests = {
                name: sha256(value).hexdigest()[:DIGEST_CHARACTERS] for name, value in sent.items() if value is not None
            }
        return known

    def all(self, name: bytes) -> list[bytes]:
        """Every value of a field: one for each time that it was sent."""
        if self.single is not None:
            found = self.single.get(name)
            return [] if found is None else [found]
        return [value for one, value in self.fields if one == name]


def head_of(scope: MutableMapping[str, Any]) -> RequestHead:
    """The head of a request, by its ASGI scope."""
    found: RequestHead | None = scope.get(_PLACE)
    if found is None:
        found = scope[_PLACE] = RequestHead(scope["headers"])
    return found
