"""A POST is carried out, and its response is lost."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from compare.peers import RETRY
from compare.questions import Data, Question, effects
from compare.stage import Stage


class Losing(BaseHTTPRequestHandler):
    """Carries out each POST, and closes without a word."""

    charges: list[str]

    def do_POST(self) -> None:
        """The effect, and no response."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.charges.append(self.path)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def inside(adapter: Any, folder: Path, url: str) -> Data:
    """A real server and a real client; the library retries errors of the connection, three attempts."""
    charges: list[str] = []
    handler = type("Handler", (Losing,), {"charges": charges})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def work() -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        connection.request("POST", "/charges", body=b"{}")
        return connection.getresponse().read()

    try:
        adapter.retrying(work, attempts=3)()
    except Exception as error:
        raised = type(error).__name__
    return {"effects": len(charges), "raised": raised}


def ask(stage: Stage) -> Data:
    """In the peer's interpreter."""
    return stage.inside("lost-response")


QUESTION = Question(
    name="lost-response",
    title="A POST without a key is carried out, and the connection breaks before the response.",
    how=(
        "A real server that charges and hangs up; three attempts on connection errors, as the documentation of "
        "each shows them. One charge is right. Each library can be told to leave such errors alone."
    ),
    ask=ask,
    say=lambda data: f"{effects(data['effects'])}; the caller got `{data['raised']}`",
    cell=lambda data: effects(data["effects"]),
    right=lambda data: data["effects"] == 1,
    kind=RETRY,
    order=61,
)
