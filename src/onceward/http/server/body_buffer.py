"""
A request's body, kept until its handler reads it: the beginning in memory, what is longer in a temporary file.

It has to be kept, because what a key stands for is known only when the whole body has been seen, and nothing may run
before that.
"""

from __future__ import annotations

import tempfile
from typing import IO

from onceward._core.errors import BodyTooLarge
from onceward.http.server.profile import Profile

CHUNK_BYTES = 64 * 1024
"""Bytes that are read from the file at once."""


class BodyBuffer:
    """Write the body into it; then read it from the start."""

    def __init__(self, profile: Profile) -> None:
        self._memory_max = profile.memory_bytes_max
        self._max = profile.body_bytes_max
        self._held = bytearray()
        self._file: IO[bytes] | None = None
        self._given = False
        self.size = 0

    def expect(self, length: int | None) -> None:
        """What the client says; it may not say more than is allowed. It is not believed otherwise."""
        if length is not None and length > self._max:
            raise self._too_large()

    def write(self, piece: bytes) -> None:
        """The next piece."""
        self.size += len(piece)
        if self.size > self._max:
            raise self._too_large()
        if self._file is None and self.size > self._memory_max:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
            self._file.write(self._held)
            self._held = bytearray()
        if self._file is None:
            self._held += piece
        else:
            self._file.write(piece)

    @property
    def on_disk(self) -> bool:
        """Whether reading and writing go to a file."""
        return self._file is not None

    def rewind(self) -> None:
        """Begin to read, for the first time or again."""
        self._given = False
        if self._file is not None:
            self._file.seek(0)

    def read(self) -> bytes:
        """The next piece; empty at the end."""
        if self._file is not None:
            return self._file.read(CHUNK_BYTES)
        given, self._given = self._given, True
        return b"" if given else bytes(self._held)

    def whole(self) -> IO[bytes] | bytes:
        """The body as bytes or, if it is long, as a file."""
        return bytes(self._held) if self._file is None else self._file

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body of a keyed request has at most {self._max} bytes here; nothing was run")
