"""
Buffers a request's body until its handler reads it: in memory, or in a temporary file if it is long.

The whole body is part of what a key stands for, and nothing may run before that is known.
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

    _held: bytes | bytearray = b""
    _file: IO[bytes] | None = None
    _given = False
    on_disk = False
    """Whether reading and writing go to a file."""
    size = 0

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def expect(self, length: int | None) -> None:
        """Refuse a Content-Length above the limit. It is not relied on for anything else."""
        if length is not None and length > self._profile.body_bytes_max:
            raise self._too_large()

    def write(self, piece: bytes) -> None:
        """Add the next piece."""
        size = self.size = self.size + len(piece)
        if size > self._profile.body_bytes_max:
            raise self._too_large()
        if size > self._profile.memory_bytes_max:
            self._write_to_file(piece)
        elif not self._held:
            self._held = bytes(piece)  # The whole of it, most often: bytes are not copied.
        else:
            self._held = self._held if type(self._held) is bytearray else bytearray(self._held)
            self._held += piece

    def _write_to_file(self, piece: bytes) -> None:
        if self._file is None:
            self._file, self.on_disk = tempfile.TemporaryFile(), True  # noqa: SIM115 - closed by `close`
            self._file.write(self._held)
            self._held = b""
        self._file.write(piece)

    def rewind(self) -> None:
        """Go back to the beginning, to read it again."""
        self._given = False

    def read(self) -> bytes:
        """The next piece; empty at the end."""
        given, self._given = self._given, True
        if self._file is None:
            return b"" if given else bytes(self._held)
        if not given:
            self._file.seek(0)
        return self._file.read(CHUNK_BYTES)

    def whole(self) -> IO[bytes] | bytes:
        """The body as bytes or, if it is long, as a file that stands at its beginning."""
        if self._file is None:
            return bytes(self._held)
        self._file.seek(0)
        return self._file

    def close(self) -> None:
        """Close the temporary file."""
        if self._file is not None:
            self._file.close()

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(
            f"the body is longer than the {self._profile.body_bytes_max} bytes allowed here; nothing was run"
        )
