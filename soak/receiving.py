"""
A receiver of webhooks that is killed: `python -m soak.receiving --folder FOLDER --port PORT`.

What a user of the library writes: the signature is checked on the raw bytes, and the event's effect happens once under
its id, in the transaction that the record of it commits in. It answers afterwards.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from onceward import Gate, SignatureInvalid
from onceward.webhooks import Secret, StandardWebhooks
from soak.relaying import SECRET

FILE = "receiver.db"
CREATE = "CREATE TABLE IF NOT EXISTS effects (operation TEXT NOT NULL)"


def handler_of(gate: Gate, file: Path) -> type[BaseHTTPRequestHandler]:
    """The handler for one file."""
    scheme, secrets = StandardWebhooks(), [Secret.parse(SECRET)]

    class Receiver(BaseHTTPRequestHandler):
        """Takes events."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """One event."""
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            try:
                event = scheme.verify(headers, body, secrets, now=time.time())
                self._take(str(event.id), json.loads(body)["operation"])
                status = 200
            except SignatureInvalid:
                status = 401
            except (sqlite3.Error, OSError):
                status = 503
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def _take(self, id: str, operation: str) -> None:
            connection = sqlite3.connect(file, timeout=30)
            try:
                gate.atomic(connection, id, lambda: self._effect(connection, operation))
            finally:
                connection.close()

        @staticmethod
        def _effect(connection: sqlite3.Connection, operation: str) -> None:
            connection.execute("INSERT INTO effects VALUES (?)", (operation,))

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    return Receiver


def main() -> None:
    """Receive until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--port", required=True, type=int)
    asked = parser.parse_args()
    file = asked.folder / FILE
    gate = Gate(f"sqlite:///{file}", scope="soak")
    gate.records.get("ready")
    connection = sqlite3.connect(file)
    connection.execute(CREATE)
    connection.close()
    server = ThreadingHTTPServer(("127.0.0.1", asked.port), handler_of(gate, file))
    server.daemon_threads = True
    print(json.dumps({"address": f"http://127.0.0.1:{server.server_port}"}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
