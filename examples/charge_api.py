"""
A FastAPI endpoint that charges cards, on PostgreSQL: killed in the middle of a charge, started again, one charge.

    DATABASE_URL=postgresql://... python examples/charge_api.py

The bank honours keys, so the endpoint is `keyed`: after a crash the same request is sent again, with the same key.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import RemoteDisconnected
from pathlib import Path
from typing import Any
from urllib.error import URLError

import psycopg
from bank import Bank
from bank import charge as ask_bank
from fastapi import FastAPI, Request
from serving import post

from onceward import AsyncGate
from onceward.http import IncomingRequest, Route
from onceward.http.asgi import IdempotencyMiddleware

DATABASE = os.environ.get("DATABASE_URL", "postgresql://localhost/shop")
TENANTS = {"Bearer token-acme": "test:acme"}  # stands for your authentication


def caller(request: IncomingRequest) -> str | None:
    """Who is calling: keys of two tenants never meet."""
    return TENANTS.get(request.header("authorization") or "")


app = FastAPI()
app.add_middleware(
    IdempotencyMiddleware,
    gate=AsyncGate(DATABASE, scope="test:shop"),
    scope=caller,
    routes=[Route("/charges", guarantee="keyed", require_key=True)],
)


@app.post("/charges", status_code=201)
def charge(order: dict[str, str], request: Request) -> dict[str, Any]:
    """Charge an order at the bank, under a key that is the same on every attempt, and note it."""
    charged = ask_bank(os.environ["BANK"], order, request.state.operation.downstream_key())
    with psycopg.connect(DATABASE) as connection:
        connection.execute(
            "INSERT INTO charges (id, order_id) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            (charged["charge"], order["order"]),
        )
    return charged


@contextmanager
def served(bank: Bank, listening: socket.socket) -> Iterator["subprocess.Popen[bytes]"]:
    """A uvicorn of its own, as in production, on a socket that outlives it: clients wait there until it is up."""
    handed = listening.fileno()
    arguments = [sys.executable, "-m", "uvicorn", "charge_api:app", "--fd", str(handed), "--log-level", "critical"]
    environment = {**os.environ, "BANK": bank.url, "DATABASE_URL": DATABASE}
    folder = Path(__file__).parent
    with subprocess.Popen(arguments, cwd=folder, env=environment, pass_fds=(handed,)) as server:
        yield server
        server.terminate()


def main() -> None:
    """An impatient client: it sends the same charge until it gets an answer, and then once more."""
    with psycopg.connect(DATABASE) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS charges (id text PRIMARY KEY, order_id text NOT NULL)")
    key, order = f"o-{time.time_ns()}", {"order": "17", "amount": "12.50"}
    with Bank() as bank, socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/charges"
        with served(bank, listening) as server:
            bank.victim = server
            try:
                post(url, order, key, "token-acme")
            except (URLError, RemoteDisconnected) as error:
                print(f"the server was killed while it charged: {type(error).__name__}")
        with served(bank, listening):
            answers = [post(url, order, key, "token-acme") for _ in range(2)]
        for answer in answers:
            print(answer.status, answer.body, "replayed" if answer.replayed else "ran")
        print(f"3 requests, {bank.requests} at the bank, {len(bank.charges)} charge")


if __name__ == "__main__":
    main()
