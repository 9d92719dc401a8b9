"""
Records a response while it is sent: which part is held back until the whole is stored, and which is sent at once.

A client that has the whole response will not retry. So the end of a response is sent only after the response is stored:

    short, of known length or in one piece,    held back whole
    or to be put into an envelope
    a stream (no Content-Length)               passes piece by piece; its end is held back
    server-sent events                         the same, and the headers at once: clients wait for them
    too long to be stored                      passes; what completes its Content-Length is held back
    of a transactional route                   held back whole: what its handler settled is sent in its place

A stream up to the limit is stored and replayed. Beyond it nothing is stored, and the record will say that it ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from onceward._core.errors import ConfigurationError, ResultInvalid
from onceward._core.record_types import new_tuple
from onceward._core.reply import Reply
from onceward.http.server.handler_outcomes import UnstoredResponse, remembers
from onceward.http.server.media_type import is_json, parse_media_type
from onceward.http.server.profile import Profile

NOT_STORED_HEADER = ("Idempotency-Stored", "false")
"""The header of a response that will not be replayed, because it is too long to be stored. A stream begins before that
is known, and does not have it."""

LENGTH_DIGITS_MAX = 18
"""Of a Content-Length that is believed."""


class ResponseRecorder:
    """One response, while it is sent. Header names are in lower case."""

    _whole = False
    _status: int | None = None
    _headers: Sequence[tuple[bytes, bytes]] = ()
    _size = 0
    _length: int | None = None
    passing = False
    """Whether pieces are sent as they come: then the headers have to be sent first."""
    complete = False

    def __init__(self, profile: Profile, limit: int) -> None:
        self._profile, self._limit = profile, limit
        self._may_pass = not profile.transactional
        self._kept: list[bytes] | None = []
        self._held: list[bytes] = []

    @property
    def keeps(self) -> bool:
        """Whether it is still short enough to be stored."""
        return self._kept is not None

    @property
    def begun(self) -> bool:
        """Whether there is a status yet."""
        return self._status is not None

    def begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Take the status and the headers. A second call before any body replaces the first (PEP 3333)."""
        found = self._headers = [*headers]
        self._status, length = status, None
        declared = [value for name, value in found if name == b"content-length"]
        if len(declared) == 1 and declared[0].isdigit() and len(declared[0]) <= LENGTH_DIGITS_MAX:
            length = int(declared[0])
            if length > self._limit:
                self._kept = None  # It will not fit: let it pass from the beginning.
        self._length = length
        self._whole = self._profile.marker == "envelope" and is_json(found)
        self.passing = length is None and self._may_pass and _is_events(found)

    def feed(self, piece: bytes, *, more: bool) -> bytes:
        """Take the next piece of the body; returns what may be sent now."""
        self._size += len(piece)
        if self._kept is not None:
            self._kept.append(piece)
            if self._size > self._limit:
                self._kept = None
        self._held.append(piece)
        if not more:
            self.complete = True
            return b""
        if self._may_pass and (self._kept is None or (self._length is None and not self._whole)):
            self.passing = True
        # What completes the response, by its Content-Length, waits until it is stored.
        if not self.passing or (self._length is not None and self._size >= self._length):
            return b""
        return self.rest()

    @property
    def notice(self) -> tuple[tuple[str, str], ...]:
        """Headers to add: `Idempotency-Stored: false`, if there will be no replay of it."""
        is_lost = self._kept is None and self._status is not None and remembers(self._profile, self._status)
        return (NOT_STORED_HEADER,) if is_lost else ()

    def rest(self) -> bytes:
        """What was held back."""
        held = b"".join(self._held)
        self._held.clear()
        return held

    def result(self) -> Reply | UnstoredResponse:
        """The response as it is stored: status, allowed headers, and body."""
        status = 500 if self._status is None else self._status
        if self._kept is None:
            return UnstoredResponse(status, self)
        allowed = _as_bytes(self._profile.stored_headers)
        headers = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in self._headers if name in allowed
        ]
        return new_tuple(Reply, (status, tuple(headers), b"".join(self._kept)))  # type: ignore[no-any-return]

    def rendered(self) -> Reply:
        """The handler's whole response, to settle with inside a transaction; refused while it is incomplete."""
        if not self.complete:
            raise ConfigurationError(
                "the response is not rendered yet. Call rendered(request) where it is: for example after the `yield` "
                "of a dependency, in FastAPI 0.118 or later"
            )
        result = self.result()
        if isinstance(result, UnstoredResponse):
            raise ResultInvalid("this response is too large to be stored, so the operation cannot be settled with it")
        return result


@lru_cache(maxsize=64)
def _as_bytes(names: tuple[str, ...]) -> frozenset[bytes]:
    return frozenset(name.encode("latin-1") for name in names)


def _is_events(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    return any(name == b"content-type" and parse_media_type(value)[0] == "text/event-stream" for name, value in headers)
