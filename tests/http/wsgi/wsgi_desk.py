"""A middleware, and a server around it that does as PEP 3333 says, in one process, with a clock that can be moved."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any
from wsgiref.util import setup_testing_defaults

from onceward import Gate
from onceward.http.wsgi import IdempotencyMiddleware
from onceward.stores import open_store
from onceward.testing.clock import StillEnvironment

App = Callable[[dict[str, Any], Any], Any]


class Answered:
    """What a server would have sent."""

    def __init__(self) -> None:
        self.status = ""
        self.headers: dict[str, str] = {}
        self.sent: list[bytes] = []
        self.left = False
        """Whether the client is gone."""

    def start_response(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        self.status, self.headers = status, {name.lower(): value for name, value in headers}
        return self.write

    def write(self, piece: bytes) -> None:
        if self.left:
            raise BrokenPipeError("nobody is there")
        self.sent.append(piece)

    @property
    def body(self) -> bytes:
        return b"".join(self.sent)

    @property
    def code(self) -> Any:
        document = json.loads(self.body)
        return document.get("error", document)["code"]


class Desk:
    """A middleware around an application, and a server in front of it that does as PEP 3333 says."""

    def __init__(self, app: App, **options: Any) -> None:
        self.clock = StillEnvironment()
        self.gate = Gate(open_store("memory://", environment=self.clock), scope="test:a", environment=self.clock)
        self.app = IdempotencyMiddleware(app, **{"gate": self.gate, "scope": "test:a", **options})

    def send(self, key: str | None = "k", body: bytes = b"", **environ: Any) -> Answered:
        got = Answered()
        iterable = self.app(self.environ(key, body, **environ), got.start_response)
        try:
            for piece in iterable:
                got.write(piece)
        finally:
            if hasattr(iterable, "close"):
                iterable.close()
        return got

    def environ(self, key: str | None, body: bytes, **changes: Any) -> dict[str, Any]:
        found: dict[str, Any] = {
            "REQUEST_METHOD": "POST",
            "SCRIPT_NAME": "",
            "PATH_INFO": "/charges",
            "QUERY_STRING": "",
            "CONTENT_TYPE": "text/plain",
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
        }
        setup_testing_defaults(found)
        if key is not None:
            found["HTTP_IDEMPOTENCY_KEY"] = key
        return {name: value for name, value in (found | changes).items() if value is not None}


class Handler:
    """An application that does what a test says, and counts."""

    def __init__(self, act: Callable[[dict[str, Any], Any], Any] | None = None) -> None:
        self.act = act or ok
        self.runs = 0
        self.environ: dict[str, Any] = {}
        self.closed = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.runs += 1
        self.environ = environ
        return self.act(environ, start_response)

    def pieces(self, *pieces: bytes, then: BaseException | None = None) -> Any:
        handler = self

        class Closing:
            def __iter__(self) -> Iterator[bytes]:
                yield from pieces
                if then is not None:
                    raise then

            def close(self) -> None:
                handler.closed += 1

        return Closing()


def ok(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ["wsgi.input"].read()]


def boom(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    raise ValueError("boom")
