"""
Keeping an answer while it is given: what is held back until it is stored, and what may pass.

A client that has the whole answer will not ask again. So the end of an answer leaves only after the answer is stored:

    short, of known length or in one piece,    held back whole
    or to be put into an envelope
    a stream (no Content-Length)               passes piece by piece; its end is held back
    server-sent events                         the same, and the head at once: clients wait for it
    longer than can be kept                    passes; what completes its Content-Length is held back
    of a transactional route                   held back whole: what its handler settled is sent in its place

A stream is kept up to the limit, and replayed. Beyond it nothing is kept, and the record will say that it ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from onceward._core.reply import Reply
from onceward.http.server.handler_outcomes import UnstoredResponse, remembers
from onceward.http.server.media_type import is_json, parse_media_type
from onceward.http.server.profile import Profile

NOT_STORED_HEADER = ("Idempotency-Stored", "false")
"""The header of an answer that will not be replayed, because it is too large to be kept. A stream has begun before
that is known, and does not have it."""

_LENGTH = re.compile(rb"[0-9]{1,18}")


class ResponseRecorder:
    """One answer, while it is given. Header names are in lower case."""

    def __init__(self, profile: Profile, limit: int) -> None:
        self._profile = profile
        self._allowed = profile.stored_headers
        self._envelopes = profile.marker == "envelope"
        self._whole = False
        self._limit = limit
        self._may_pass = not profile.transactional
        self._status: int | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._kept: list[bytes] | None = []
        self._size = 0
        self._held: list[bytes] = []
        self._length: int | None = None
        self.passing = False
        """Whether pieces pass as they come: then the head of the answer has to go first."""
        self.complete = False

    @property
    def keeps(self) -> bool:
        """Whether it can still be stored."""
        return self._kept is not None

    @property
    def begun(self) -> bool:
        """Whether there is a status yet."""
        return self._status is not None

    def begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """The status and the headers. If there is a second one before any body, it counts (PEP 3333 says so)."""
        self._status, self._headers = status, list(headers)
        declared = [value for name, value in self._headers if name == b"content-length"]
        self._length = int(declared[0]) if len(declared) == 1 and _LENGTH.fullmatch(declared[0]) else None
        if self._length is not None and self._length > self._limit:
            self._kept = None  # It will not fit: let it pass from the beginning.
        self._whole = self._envelopes and is_json(self._headers)
        self.passing = self._may_pass and self._length is None and _is_events(self._headers)

    def feed(self, piece: bytes, *, more: bool) -> bytes:
        """The next piece of the body; what may be sent on now."""
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
        # What completes the answer, as its length has it, waits for the record.
        if not self.passing or (self._length is not None and self._size >= self._length):
            return b""
        return self.rest()

    @property
    def notice(self) -> tuple[tuple[str, str], ...]:
        """What the head of the answer says besides: that there will be no replay of it."""
        is_lost = self._kept is None and self._status is not None and remembers(self._profile, self._status)
        return (NOT_STORED_HEADER,) if is_lost else ()

    def rest(self) -> bytes:
        """What was held back."""
        held = b"".join(self._held)
        self._held.clear()
        return held

    def result(self) -> Reply | UnstoredResponse:
        """The answer as it is stored: status, the headers that may be, and the body."""
        status = 500 if self._status is None else self._status
        if self._kept is None:
            return UnstoredResponse(status, self)
        headers = tuple(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in self._headers
            if name.decode("latin-1") in self._allowed
        )
        return Reply(status, headers, b"".join(self._kept))


def _is_events(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name == b"content-type" and parse_media_type(value)[0] == "text/event-stream" for name, value in headers)
