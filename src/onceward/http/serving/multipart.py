"""
A digest of multipart/form-data that does not depend on the boundary: clients choose another one for every attempt.

Parts count in their order, each by its headers and its bytes. The body is fed piece by piece; nothing of a part's
content is kept, however long it is.
"""

from __future__ import annotations

from hashlib import sha256

HEAD_BYTES_MAX = 16 * 1024
"""Headers of one part. Frameworks allow about as much."""

_COUNTED = (b"content-disposition", b"content-type", b"content-transfer-encoding")


class MultipartHash:
    """Feed the body; then `finish`."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._buffer = b"\r\n"  # The first delimiter needs no line end before it; this gives it one.
        self._state = self._preamble
        self._whole = sha256()
        self._part = sha256()
        self._ended = False
        self._broken = False

    def feed(self, piece: bytes) -> None:
        """The next piece."""
        self._buffer += piece
        while not (self._broken or self._ended) and self._state():
            pass
        if self._broken or self._ended:
            self._buffer = b""

    def finish(self) -> bytes | None:
        """32 bytes; None if the body was no such thing, or broke off."""
        return self._whole.digest() if self._ended and not self._broken else None

    # --- each state does what it can with the buffer; True: look again ---

    def _preamble(self) -> bool:
        at = self._buffer.find(self._delimiter)
        if at < 0:
            self._keep_tail()
            return False
        if at > 0:
            self._broken = True  # Nothing that sends forms has a preamble, and some readers would skip it.
            return False
        self._buffer = self._buffer[len(self._delimiter) :]
        self._state = self._after_delimiter
        return True

    def _after_delimiter(self) -> bool:
        if len(self._buffer) < 2:
            return False
        if self._buffer[:2] == b"--":
            self._ended = True
            return False
        if self._buffer[:2] != b"\r\n":
            self._broken = True
            return False
        # The line end stays: a part without headers ends its head with it.
        self._state = self._head
        return True

    def _head(self) -> bool:
        at = self._buffer.find(b"\r\n\r\n")
        if at < 0:
            self._broken = len(self._buffer) > HEAD_BYTES_MAX
            return False
        head, self._buffer = self._buffer[:at], self._buffer[at + 4 :]
        counted = []
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() in _COUNTED:
                counted.append(name.lower() + b":" + value.strip(b" \t"))
        self._part = sha256()
        described = b"\0".join(sorted(counted))
        self._whole.update(len(described).to_bytes(8, "big") + described)
        self._state = self._content
        return True

    def _content(self) -> bool:
        at = self._buffer.find(self._delimiter)
        if at < 0:
            self._keep_tail()
            return False
        self._part.update(self._buffer[:at])
        self._whole.update(self._part.digest())
        self._buffer = self._buffer[at + len(self._delimiter) :]
        self._state = self._after_delimiter
        return True

    def _keep_tail(self) -> None:
        """Take what cannot be the beginning of a delimiter."""
        spare = len(self._buffer) - len(self._delimiter) + 1
        if spare > 0:
            if self._state == self._content:
                self._part.update(self._buffer[:spare])
                self._buffer = self._buffer[spare:]
            else:
                self._broken = True
