"""
A client for `onceward serve`, in both colours; and the same against a local SQLite file, without a server.

    with Client("https://sql.example.com", token=token) as client:
        db = client.db("acme", "shop")
        db.query("INSERT INTO events VALUES (?, ?)", ["e-1", "click"], idempotency_key="evt-e-1")
"""

from onceward.client.awaiting import AsyncClient, AsyncDatabase, AsyncPlanned
from onceward.client.blocking import Client, Database, Planned
from onceward.client.results import BatchResult, Result

__all__ = [
    "AsyncClient",
    "AsyncDatabase",
    "AsyncPlanned",
    "BatchResult",
    "Client",
    "Database",
    "Planned",
    "Result",
]
