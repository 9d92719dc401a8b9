"""Somebody between a client and its service: notes what passes, and spoils it on purpose."""

from __future__ import annotations

import http.client
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit


class Passed(NamedTuple):
    """A request that came by."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Middleman:
    """
    Passes requests on to a service. `spoil` is what it does instead, one word for each request to come:

        "lose answer"    pass it on, and cut the line in place of the answer
        "half answer"    pass it on, and cut the line in the middle of the answer
        "cut"            cut the line at once
        (status, headers, body)   answer that
        a function       pass it on and call that at the same time; then cut the line
        ""               nothing
    """

    def __init__(self, address: str = "http://127.0.0.1:9") -> None:
        self._target = urlsplit(address).netloc
        self.passed: list[Passed] = []
        self.spoil: list[Any] = []
        middleman = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                middleman.passed.append(Passed(self.command, self.path, headers, body))
                spoiled = middleman.spoil.pop(0) if middleman.spoil else ""
                if isinstance(spoiled, tuple):
                    self._say(*spoiled)
                elif spoiled == "cut" or callable(spoiled):
                    if callable(spoiled):
                        passing = threading.Thread(target=middleman._forward, args=(middleman.passed[-1],))
                        passing.start()
                        spoiled()
                        passing.join()
                    self._hang_up()
                else:
                    answer = middleman._forward(middleman.passed[-1])
                    if answer is None or spoiled == "lose answer":
                        self._hang_up()
                    else:
                        self._say(*answer, cut=spoiled == "half answer")

            def _say(self, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False) -> None:
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if cut else body)
                if cut:
                    self._hang_up()

            def _hang_up(self) -> None:
                self.close_connection = True
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)

            do_GET = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def _forward(self, passed: Passed) -> tuple[int, dict[str, str], bytes] | None:
        connection = http.client.HTTPConnection(self._target, timeout=30)
        kept = {name: value for name, value in passed.headers.items() if name not in ("host", "connection")}
        try:
            connection.request(passed.method, passed.path, passed.body or None, kept)
            response = connection.getresponse()
            told = {n: v for n, v in response.getheaders() if n.lower() not in ("content-length", "connection", "date")}
            return response.status, told, response.read()
        except (OSError, http.client.HTTPException):
            return None  # The service is away.
        finally:
            connection.close()

    @property
    def sent(self) -> list[tuple[str, str, str | None, bytes]]:
        """Method, path, key and body of what came by."""
        return [(one.method, one.path, one.headers.get("idempotency-key"), one.body) for one in self.passed]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
