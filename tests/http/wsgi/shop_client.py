"""A shop in a process of its own, and what is sent to it over real sockets."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

FRAMEWORKS = Path(__file__).with_name("shop_frameworks.py")
JSON = {"Content-Type": "application/json"}
_keys = count(1)


def new_key() -> str:
    return f"k-{next(_keys)}"


class Got(NamedTuple):
    """An answer."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for found, value in self.headers if found.lower() == name.lower()), None)

    @property
    def problem(self) -> Any:
        """The refusal. One that is not in the agreed form fails here."""
        assert self.header("content-type") == "application/problem+json", self
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.problem["code"])

    @property
    def replayed(self) -> str | None:
        return self.header("Idempotency-Replayed")


class Client:
    """Sends to a shop."""

    def __init__(self, name: str, folder: Path, port: int, process: subprocess.Popen[bytes]) -> None:
        self.name, self.folder, self.port = name, folder, port
        self.process = process

    def send(
        self,
        path: str,
        key: str | None = None,
        body: bytes | Any = b"",
        headers: dict[str, str] | None = None,
        *,
        method: str = "POST",
        tenant: str | None = "acme",
    ) -> Got:
        """One request on a connection of its own."""
        said = {} if tenant is None else {"Authorization": f"Bearer {tenant}"}
        if key is not None:
            said["Idempotency-Key"] = key
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as line:
            line.request(method, path, body, said | (headers or {}))
            answer = line.getresponse()
            return Got(answer.status, answer.getheaders(), answer.read())

    def together(self, times: int, *arguments: Any, **options: Any) -> list[Got]:
        """The same request, many times at once."""
        found: list[Got] = []
        threads = [
            threading.Thread(target=lambda: found.append(self.send(*arguments, **options))) for _ in range(times)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    @contextmanager
    def line(self) -> Iterator[socket.socket]:
        """A bare connection."""
        with closing(socket.create_connection(("127.0.0.1", self.port), timeout=20)) as line:
            yield line

    def head(self, path: str, key: str, *more: str, method: str = "POST") -> bytes:
        """The beginning of a request, as it is written on the line."""
        lines = [f"{method} {path} HTTP/1.1", "Host: shop", "Authorization: Bearer acme", f"Idempotency-Key: {key}"]
        return "\r\n".join([*lines, *more, "", ""]).encode()

    # --- what happened ---

    def effects(self, path: str, word: str = "ran") -> int:
        """How often that was run."""
        file = self.folder / "effects"
        return file.read_text().split("\n").count(f"{path} {word}") if file.exists() else 0

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @contextmanager
    def holding(self, path: str, key: str, **options: Any) -> Iterator[None]:
        """A request that is running while the block is."""
        (self.folder / "go").unlink(missing_ok=True)
        before = self.effects(path)
        thread = threading.Thread(target=self.send, args=(path, key), kwargs=options)
        thread.start()
        try:
            self.until(lambda: self.effects(path) > before)
            yield
        finally:
            (self.folder / "go").touch()
            thread.join()

    def until(self, true: Any) -> None:
        """Wait for something that happens in the other process."""
        for _ in range(2_000):
            if true():
                return
            threading.Event().wait(0.005)
        raise AssertionError("it did not happen within ten seconds")


@contextmanager
def shop(name: str, folder: Path, *failpoints: str) -> Iterator[Client]:
    """A server in a process of its own."""
    command = [sys.executable, str(FRAMEWORKS), name, str(folder), *failpoints]
    with (
        (folder / "stderr").open("ab") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (folder / "stderr").read_text()
            yield Client(name, folder, int(line), process)
        finally:
            process.kill()
