"""
A receiver of webhooks that is killed: `python -m soak.receiving --folder FOLDER --port PORT`.

What a user of the library writes: an inbox that answers as soon as an event is written, and a handler whose effect
commits together with the record of it.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from onceward import Operation
from onceward.messaging.inbox import Inbox, Source, WebhookEvent, handler
from onceward.messaging.webhooks import Secret, StandardWebhooks
from soak.relaying import SECRET

FILE, EVENTS = "receiver.db", "receiver.inbox.db"
SOURCE = "soak"
CREATE = "CREATE TABLE IF NOT EXISTS effects (operation TEXT NOT NULL)"
LEASE_SECONDS = 3.0
"""Short: whoever comes after a kill waits that long for the event that was being handled."""


def source_of(file: Path) -> Source:
    """The sender, and what is done about its events."""

    @handler(guarantee="atomic", settle="inside", lease=LEASE_SECONDS)
    def take(event: WebhookEvent, operation: Operation) -> None:
        with closing(sqlite3.connect(file, timeout=30)) as connection, connection:
            connection.execute("INSERT INTO effects VALUES (?)", (event.json()["operation"],))
            operation.settle_inside(connection, None)

    return Source(SOURCE, StandardWebhooks(), [Secret.parse(SECRET)], take)


def handler_of(inbox: Inbox) -> type[BaseHTTPRequestHandler]:
    """The handler of requests."""

    class Receiver(BaseHTTPRequestHandler):
        """Takes events."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """One event."""
            body = self.rfile.read(int(self.headers["content-length"]))
            reply = inbox.answer(SOURCE, self.headers.items(), body)
            self.send_response(reply.status)
            for name, value in reply.headers:
                self.send_header(name, value)
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

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
    inbox = Inbox(f"sqlite:///{file}", scope="soak", lease=LEASE_SECONDS)
    inbox.add(source_of(file))
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(CREATE)
    server = ThreadingHTTPServer(("127.0.0.1", asked.port), handler_of(inbox))
    server.daemon_threads = True
    with inbox.working():
        print(json.dumps({"address": f"http://127.0.0.1:{server.server_port}"}), flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
