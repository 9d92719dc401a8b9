"""
The header fields of a request by name (`RequestHead`): looked through once, however many ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

_PLACE = "onceward.head"
"""Where a request's is kept, in its ASGI scope."""


class RequestHead:
    """Header fields, names in lower case."""

    __slots__ = ("_by_name", "fields", "single")

    def __init__(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        self.fields = list(fields)
        """As they came, one after the other."""
        self._by_name = dict(self.fields)
        if not b"".join(self._by_name).islower():  # Servers write them in lower case already, as ASGI has it.
            self.fields = [(name.lower(), value) for name, value in self.fields]
            self._by_name = dict(self.fields)
        self.single: Mapping[bytes, bytes] | None = self._by_name if len(self._by_name) == len(self.fields) else None
        """By name, if none of them occurs twice."""

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def last(self, name: bytes) -> bytes | None:
        """The last value of a field; None if there is none."""
        return self._by_name.get(name)

    def first(self, name: bytes) -> bytes | None:
        """The first value of a field; None if there is none."""
        if self.single is not None:
            return self.single.get(name)
        return next((value for found, value in self.fields if found == name), None)

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
