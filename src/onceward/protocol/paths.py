"""
Where the service's endpoints are.
"""

from __future__ import annotations

from urllib.parse import quote

DATABASES = "/v1/db"
BALANCE = "/api/v1/balance"
USAGE = "/v1/usage"


def database_path(namespace: str, database: str) -> str:
    """The path of a database."""
    return f"{DATABASES}/{quote(namespace, safe='')}/{quote(database, safe='')}"
