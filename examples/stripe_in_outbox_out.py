"""
A Stripe webhook in, a webhook of our own out: delivered three times, its handler fails once, the receiver is away once.

The handler writes its row, the outgoing message and the end of the operation in one transaction: all or nothing.
"""

import json
import logging
import sqlite3
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.request import Request as Delivery
from urllib.request import urlopen

from fastapi import FastAPI, Request, Response
from serving import served

from onceward import Gate, Operation
from onceward.messaging.inbox import AsyncInbox, Source, WebhookEvent, handler
from onceward.messaging.outbox.delivery import HttpEndpoint
from onceward.messaging.outbox.relay import Relay
from onceward.messaging.webhooks import Secret, StandardWebhooks, Stripe

logging.disable()  # The inbox says that a try failed, and when the next one is.
FROM_STRIPE = "whsec_as_the_dashboard_shows_it"
OURS = Secret(b"a secret of thirty-two bytes ...")
folder = tempfile.TemporaryDirectory()
FILE = Path(folder.name) / "shop.db"
STORE = f"sqlite:///{FILE}"
gate = Gate(STORE, scope="live:acme")
runs: list[int] = []


@handler(guarantee="atomic", settle="inside")
def invoice_paid(event: WebhookEvent, operation: Operation) -> None:
    """Note the payment, and tell the shipping department: one transaction."""
    invoice = event.json()["data"]["object"]["id"]
    runs.append(event.attempt)
    with closing(sqlite3.connect(FILE)) as connection:
        outbox = gate.outbox(connection)
        with connection:
            connection.execute("INSERT INTO payments VALUES (?)", (invoice,))
            outbox.add("shipping", {"invoice": invoice}, topic="invoice.paid", aggregate=invoice)
            if len(runs) == 1:
                raise ConnectionError("the disk is full, say")  # Rolls everything back.
            operation.settle_inside(connection, {"noted": invoice})


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The inbox and its workers, while the application runs."""
    async with AsyncInbox(STORE, scope="live:acme") as inbox:
        inbox.add(Source("stripe", Stripe(), [FROM_STRIPE], invoice_paid))
        app.state.inbox = inbox
        async with inbox.working():
            yield


app = FastAPI(lifespan=lifespan)


@app.post("/hooks/{source}")
async def receive(source: str, request: Request) -> Response:
    """Store it, and respond; the workers do the rest."""
    reply = await request.app.state.inbox.answer(source, request.headers.items(), await request.body())
    return Response(reply.body, reply.status, dict(reply.headers))


class Shipping(BaseHTTPRequestHandler):
    """Who is told: it is away at first, and knows a message by its id."""

    tries = 0
    parcels: ClassVar[dict[str, bytes]] = {}

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        verified = StandardWebhooks().verify(headers, body, [OURS], now=time.time())
        Shipping.tries += 1
        if Shipping.tries > 1:
            Shipping.parcels.setdefault(verified.id, body)
        self.send_response(503 if Shipping.tries == 1 else 204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def deliver(url: str, body: bytes) -> Any:
    """What Stripe does: sign, send, and read what comes back."""
    headers = Stripe().sign("evt_1", body, [FROM_STRIPE], now=time.time())
    with urlopen(Delivery(f"{url}/hooks/stripe", body, headers), timeout=30) as response:
        return json.load(response)


def main() -> None:
    """Play Stripe, then relay."""
    with closing(sqlite3.connect(FILE)) as connection, connection:
        connection.execute("CREATE TABLE payments (invoice TEXT PRIMARY KEY)")
    body = json.dumps({"id": "evt_1", "type": "invoice.paid", "data": {"object": {"id": "in_17"}}}).encode()
    with served(app) as url:
        for _ in range(3):
            print(deliver(url, body))
        while len(runs) < 2:
            time.sleep(0.05)
    with HTTPServer(("127.0.0.1", 0), Shipping) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/hooks"
        shipping = HttpEndpoint(address, secrets=[OURS], allow_http=True, allow_private=["127.0.0.1"])
        with Relay(STORE, {"shipping": shipping}) as relay:
            while not Shipping.parcels:
                relay.step()
                time.sleep(0.05)
        server.shutdown()
    with closing(sqlite3.connect(FILE)) as connection:
        payments = connection.execute("SELECT count(*) FROM payments").fetchone()[0]
    print(f"3 deliveries, {len(runs)} runs, {payments} payment, {Shipping.tries} tries, {len(Shipping.parcels)} parcel")


if __name__ == "__main__":
    main()
    gate.close()
    folder.cleanup()
