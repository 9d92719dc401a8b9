"""
The certificate and key that the service shows, read again when the files change.

    certificates = Certificates("/etc/onceward/tls.crt", "/etc/onceward/tls.key")
    certificates.context      # for the next handshake; connections that are there keep theirs

A new pair that cannot be used is told in the log, and the one before stays: also between the two writes of somebody who
replaces first one file and then the other.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import stat
from pathlib import Path
from typing import TypeAlias

from onceward._core.errors import ConfigurationError
from onceward.runtime.environment import REAL

log = logging.getLogger("onceward.service")

LOOK_SECONDS = 5.0
"""Between two looks at the files; SIGHUP looks at once."""

_State: TypeAlias = tuple[tuple[int, int, int, int], ...]
"""Of both files: inode, size, time of change in nanoseconds, mode."""


class Certificates:
    """A pair of files, and what was read from them last. `ConfigurationError` if they cannot be used at the start."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = Path(certificate)
        self._key = Path(key)
        self._seen = self._state()
        self.context = self._read()
        self.reloads = 0
        self.failures = 0

    def look(self) -> bool:
        """Read the files if they have changed; whether there is a new certificate."""
        try:
            state = self._state()
            if state == self._seen:
                return False
            self._seen = state  # Before they are read: what is written meanwhile is seen at the next look.
            self.context = self._read()
        except ConfigurationError as error:
            self.failures += 1
            words = "the certificate was not replaced, and the old one is still in use: %s"
            log.error(words, error)  # noqa: TRY400 - it is no fault of the code
            return False
        self.reloads += 1
        log.info("the certificate was replaced")
        return True

    async def watch(self, hurry: asyncio.Event) -> None:
        """Look now and then, and whenever the event is set. It ends when it is cancelled."""
        while True:
            await REAL.await_event(hurry, LOOK_SECONDS)
            hurry.clear()
            await asyncio.to_thread(self.look)

    def _state(self) -> _State:
        found = []
        for path in (self._certificate, self._key):
            try:
                status = path.stat()
            except OSError as error:
                raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
            found.append((status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode))
        return tuple(found)

    def _read(self) -> ssl.SSLContext:
        if self._seen[1][3] & (stat.S_IROTH | stat.S_IWOTH):
            raise ConfigurationError(f"{self._key} can be read by every user of this machine: chmod o-rwx {self._key}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        try:
            # A password would be asked for on the terminal, and a service has none.
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            raise ConfigurationError(
                f"{self._certificate} and {self._key} cannot be used as certificate and key, both PEM: {reason}"
            ) from None
        return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; the service needs one without a password, readable by nobody else")
