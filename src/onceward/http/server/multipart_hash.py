"""
A hash of multipart/form-data that does not depend on the boundary: clients choose another one for every attempt.

It covers the parts in their order, each with its headers (names in any case) and its bytes, and what follows the last
boundary. The body is fed piece by piece; a part's content is not kept, however long it is.
"""

from __future__ import annotations

from hashlib import sha256

HEAD_BYTES_MAX = 16 * 1024
"""Headers of one part. Frameworks allow about as much."""

PARTS_MAX = 10_000
"""Parts of one body. Frameworks allow a tenth of it."""

SLICE = 64 * 1024
"""How much is looked at in one step, so that the rest of the buffer is seldom moved."""


class MultipartHash:
    """Feed the body; then `finish`."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._buffer = b"\r\n"  # The first delimiter needs no line end before it; this gives it one.
        self._at = 0
        self._state = self._preamble
        self._whole = sha256()
        self._part = sha256()
        self._parts = 0
        self._ended = False
        self._broken = False

    def feed(self, piece: bytes) -> None:
        """Add the next piece."""
        for start in range(0, len(piece), SLICE):
            if self._broken:
                return
            self._buffer = self._buffer[self._at :] + piece[start : start + SLICE]
            self._at = 0
            while not self._broken and self._state():
                pass

    def finish(self) -> bytes | None:
        """32 bytes; None if the body was malformed or broke off."""
        if not self._ended or self._broken:
            return None
        return sha256(self._whole.digest() + self._part.digest()).digest()

    # --- states of the parser: each uses the buffer from `_at` on, and returns True to be called again ---

    def _preamble(self) -> bool:
        if len(self._buffer) < len(self._delimiter):
            self._broken = not self._delimiter.startswith(self._buffer)
            return False
        # Nothing that sends forms has a preamble, and some readers would skip it.
        self._broken = not self._buffer.startswith(self._delimiter)
        self._at = len(self._delimiter)
        self._state = self._after_delimiter
        return True

    def _after_delimiter(self) -> bool:
        if len(self._buffer) - self._at < 2:
            return False
        following = self._buffer[self._at : self._at + 2]
        if following == b"--":
            self._at += 2
            self._ended = True
            self._part = sha256()
            self._state = self._epilogue
            return True
        # The line end stays: a part without headers ends its head with it.
        self._parts += 1
        self._broken = following != b"\r\n" or self._parts > PARTS_MAX
        self._state = self._head
        return True

    def _head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n", self._at)
        if end < 0:
            # The last three bytes may belong to the end.
            self._broken = len(self._buffer) - self._at > HEAD_BYTES_MAX + 3
            return False
        if end - self._at > HEAD_BYTES_MAX:
            self._broken = True
            return False
        lines = [_line(one) for one in self._buffer[self._at : end].split(b"\r\n")]
        head = b"".join(len(line).to_bytes(8, "big") + line for line in lines)
        self._whole.update(len(head).to_bytes(8, "big") + head)
        self._part = sha256()
        self._at = end + 4
        self._state = self._content
        return True

    def _content(self) -> bool:
        end = self._buffer.find(self._delimiter, self._at)
        if end < 0:
            # Take what cannot be the beginning of a delimiter.
            spare = len(self._buffer) - len(self._delimiter) + 1
            if spare > self._at:
                self._part.update(self._buffer[self._at : spare])
                self._at = spare
            return False
        self._part.update(self._buffer[self._at : end])
        self._whole.update(self._part.digest())
        self._at = end + len(self._delimiter)
        self._state = self._after_delimiter
        return True

    def _epilogue(self) -> bool:
        self._part.update(self._buffer[self._at :])
        self._at = len(self._buffer)
        return False


def _line(line: bytes) -> bytes:
    """A header of a part, its name in lower case; anything else, such as a folded line, as it is."""
    name, colon, value = line.partition(b":")
    return name.lower() + colon + value.strip(b" \t") if colon else line
