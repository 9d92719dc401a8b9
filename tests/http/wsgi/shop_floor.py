"""
A small shop whose every request has an effect: a line in a file. What each framework's handler does, written once.

    /charges            201, with a body that differs from run to run, a Location and a cookie
    /status/402         that status; /status/204 and /status/304 without a body
    /raise              raises; /raise/own raises one of Onceward's own errors
    /stream/3           three pieces, without a length; /stream/3/held waits before the last one
    /flood              more than lines and records hold
    /echo               the body as it came
    /held               waits until a file `go` is there
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from onceward import InFlight
from onceward.errors import NothingHappened
from onceward.http import IncomingRequest, Route

ROUTES = [
    Route("/atomic/{rest:path}", guarantee="atomic"),
    Route("/remembered/{rest:path}", remember="all", replay_header="Idempotent-Replayed"),
    Route("/short/{rest:path}", result_bytes_max=200),
    Route("/small/{rest:path}", body_bytes_max=1_000, memory_bytes_max=100),
    Route("/quick/{rest:path}", lease=0.4, upload_seconds_max=0.3),
    Route("/needed/{rest:path}", require_key=True),
    Route("/enveloped/{rest:path}", marker="envelope"),
    Route("/skipped/{rest:path}", skip=True),
]
PREFIXES = tuple(route.path.split("/")[1] for route in ROUTES)
COOKIE = "session=secret; Path=/"


class Said(NamedTuple):
    """A handler's answer."""

    status: int
    headers: dict[str, str]
    body: bytes | Iterator[bytes]


def scope_of(request: IncomingRequest) -> str | None:
    """Who is calling, by the token."""
    token = request.header("authorization")
    return None if token is None else "test:" + token.removeprefix("Bearer ")


class Shop:
    """What happens, happens in a folder: each effect is a line of `effects`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def effect(self, path: str, word: str = "ran") -> int:
        """Do it; which one it is."""
        line = f"{path} {word}\n".encode()
        file = os.open(self.folder / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            return os.write(file, line) and os.lseek(file, 0, os.SEEK_CUR)
        finally:
            os.close(file)

    def wait(self) -> None:
        """Until a test lets it go on."""
        until = time.monotonic() + 20
        while not (self.folder / "go").exists() and time.monotonic() < until:
            time.sleep(0.005)

    def handle(self, path: str, body: bytes, operation: Any) -> Said:
        """One request."""
        number = self.effect(path)
        _, *words = [word for word in path.split("/") if word not in PREFIXES]
        match words:
            case ["charges"]:
                attempt = None if operation is None else operation.attempt
                found = {"id": number, "bytes": len(body), "attempt": attempt}
                headers = {"Location": f"/charges/{number}", "X-Secret": "yes"}
                return Said(201, headers, json.dumps(found).encode())
            case ["status", status]:
                return Said(int(status), {}, b"" if status in ("204", "304") else f"no {number}".encode())
            case ["raise"]:
                raise ValueError("the till is stuck")
            case ["raise", "own"]:
                raise InFlight("the handler's own", retry_after_seconds=7)
            case ["raise", "nothing"]:
                raise NothingHappened("the drawer was closed")
            case ["stream", count, *held]:
                return Said(200, {"Content-Type": "text/event-stream"}, self._stream(path, int(count), bool(held)))
            case ["flood"]:
                return Said(200, {}, (b"x" * 65_536 for _ in range(400)))
            case ["echo"]:
                return Said(200, {"Content-Type": "application/octet-stream"}, body)
            case ["held"]:
                self.wait()
                return Said(200, {}, f"held {number}".encode())
            case ["slow"]:
                time.sleep(1.2)
                return Said(200, {}, f"slow {number}".encode())
        return Said(404, {}, b"no such thing")

    def _stream(self, path: str, count: int, held: bool) -> Iterator[bytes]:
        for number in range(count):
            if held and number == count - 1:
                self.wait()
            yield f"data: {number} {os.urandom(8).hex()}\n\n".encode()
        self.effect(path, "streamed")
