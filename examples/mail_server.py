"""
A small real mail server: what examples and tests send mail to.

    with MailServer() as server:                       python examples/mail_server.py --file mails.jsonl
        ... send to 127.0.0.1, server.port ...             prints its port; each mail is a line of that file, on disk
        server.mails[0].recipients                         before the sender is told that it was taken

It takes everything, unless `rule` says otherwise: a function from a command ("RCPT TO:<a@b>") to an answer ("550 no"),
to "" (hang up), or to None (as usual). "DATA" is asked before the mail, "." after it. With a TLS context it offers
STARTTLS, or speaks TLS from the first byte (`implicit`); with `users` it wants a login.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import ssl
import sys
import threading
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from email import message_from_bytes
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

LINE_BYTES_MAX = 65_536
SECONDS_MAX = 60.0


class Taken(NamedTuple):
    """A mail that was taken."""

    sender: str
    recipients: list[str]
    content: bytes

    @property
    def message_id(self) -> str:
        """What its `Message-ID` says."""
        return str(message_from_bytes(self.content)["Message-ID"])


def _as_usual(_command: str) -> str | None:
    return None


class MailServer:
    """Listens on 127.0.0.1, on a free port unless one is given, until it is closed."""

    def __init__(
        self,
        *,
        port: int = 0,
        file: Path | None = None,
        rule: Callable[[str], str | None] = _as_usual,
        tls: ssl.SSLContext | None = None,
        implicit: bool = False,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self.mails: list[Taken] = []
        self.commands: list[str] = []
        """Every command of every session. Logins are not repeated."""
        self.rule = rule
        self._file, self._tls, self._implicit, self._users = file, tls, implicit, users
        self._guard = threading.Lock()
        self._lines: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self.serve)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._guard:
            lines = list(self._lines)
        for line in lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def serve(self) -> None:
        """Take connections until the end."""
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            line.settimeout(SECONDS_MAX)
            with self._guard:
                self._lines.add(line)
            self._start(lambda line=line: self._hold(line))

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _hold(self, line: socket.socket) -> None:
        session = _Session(self, line)
        try:
            with suppress(OSError, ValueError):
                if self._tls is not None and self._implicit:
                    session.secure(self._tls)
                session.speak()
        finally:
            session.close()
            with self._guard:
                self._lines.discard(line)

    def offers(self, *, secured: bool) -> list[str]:
        """What EHLO is answered with."""
        starttls = ["STARTTLS"] if self._tls is not None and not secured else []
        login = ["AUTH PLAIN"] if self._users is not None and (secured or self._tls is None) else []
        return ["mail.example", "SIZE 10000000", *starttls, *login]

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What STARTTLS is answered with."""
        return self._tls

    def knows(self, encoded: str) -> bool:
        """Whether a login is right."""
        with suppress(ValueError):
            _, user, password = b64decode(encoded).decode().split("\0")
            return (self._users or {}).get(user) == password
        return False

    @property
    def wants_login(self) -> bool:
        """Whether mail is taken from known users only."""
        return self._users is not None

    def keep(self, mail: Taken) -> None:
        """Have a mail, for good: only then is its sender told so."""
        with self._guard:
            if self._file is not None:
                row = {"from": mail.sender, "to": mail.recipients, "message_id": mail.message_id}
                with self._file.open("ab") as file:
                    file.write(json.dumps({**row, "content": mail.content.decode("latin-1")}).encode() + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
            self.mails.append(mail)


class _Session:
    """One client."""

    def __init__(self, server: MailServer, line: socket.socket) -> None:
        self._server, self._line = server, line
        self._file: BinaryIO = line.makefile("rb")
        self._secured = self._known = False
        self._sender: str | None = None
        self._recipients: list[str] = []

    def secure(self, context: ssl.SSLContext) -> None:
        self._file.close()
        self._line = context.wrap_socket(self._line, server_side=True)
        self._file, self._secured = self._line.makefile("rb"), True

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()
        self._line.close()

    def speak(self) -> None:
        if not self._say(self._server.rule("connect") or "220 mail.example ESMTP"):
            return
        while (raw := self._file.readline(LINE_BYTES_MAX)).endswith(b"\n"):
            command = raw.decode("utf-8", "replace").rstrip("\r\n")
            verb, blank, rest = command.partition(" ")
            verb = verb.upper()
            command = verb + blank + rest
            self._server.commands.append("AUTH" if verb == "AUTH" else command)
            ruled = self._server.rule(command)
            if not self._say(self._answer(verb, command) if ruled is None else ruled) or verb == "QUIT":
                return

    def _say(self, answer: str) -> bool:
        if answer:
            self._line.sendall(answer.encode() + b"\r\n")
        return bool(answer)

    def _answer(self, verb: str, command: str) -> str:
        if verb == "EHLO":
            offers = self._server.offers(secured=self._secured)
            return "\r\n".join([*(f"250-{one}" for one in offers[:-1]), f"250 {offers[-1]}"])
        if verb == "STARTTLS" and self._server.tls is not None and not self._secured:
            self._say("220 go ahead")
            self.secure(self._server.tls)
            return self._next()
        if verb == "AUTH":
            self._known = self._server.knows(command.rpartition(" ")[2])
            return "235 2.7.0 welcome" if self._known else "535 5.7.8 wrong user or password"
        if verb in ("HELO", "RSET", "NOOP", "QUIT"):
            return "221 bye" if verb == "QUIT" else "250 yes"
        if self._server.wants_login and not self._known:
            return "530 5.7.0 who are you?"
        return self._mail(verb, command)

    def _next(self) -> str:
        """After STARTTLS nothing is said; the next command is answered in its place."""
        command = self._file.readline(LINE_BYTES_MAX).decode("utf-8", "replace").rstrip("\r\n")
        self._server.commands.append(command)
        return self._answer(command.split(" ")[0].upper(), command)

    def _mail(self, verb: str, command: str) -> str:
        address = command.partition("<")[2].partition(">")[0]
        if verb == "MAIL":
            self._sender, self._recipients = address, []
            return "250 2.1.0 yes"
        if verb == "RCPT" and self._sender is not None:
            self._recipients.append(address)
            return "250 2.1.5 yes"
        if verb == "DATA" and self._sender is not None and self._recipients:
            self._say("354 go on, end with a dot")
            return self._take()
        return "503 5.5.1 not now"

    def _take(self) -> str:
        lines: list[bytes] = []
        while (line := self._file.readline(LINE_BYTES_MAX)) != b".\r\n":
            if not line.endswith(b"\n"):
                return ""  # The sender is gone in the middle of it: nothing was taken.
            lines.append(line[1:] if line.startswith(b".") else line)
        ruled = self._server.rule(".")
        if ruled is None or ruled == "":
            self._server.keep(Taken(self._sender or "", self._recipients, b"".join(lines)))
        self._sender = None
        return "250 2.0.0 taken" if ruled is None else ruled


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description="A small mail server that keeps every mail as a line of a file.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--file", type=Path, required=True)
    arguments = parser.parse_args()
    server = MailServer(port=arguments.port, file=arguments.file)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.serve()


if __name__ == "__main__":
    main()
