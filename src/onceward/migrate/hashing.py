"""
The key of a row that was there before keys were: SHA-256 of `historical-backfill:` and its id, in every place.

Python, PostgreSQL's built-in `sha256`, pgcrypto's `digest` and plain SQLite give the same 64 digits, so that a backfill
may begin in one of them and end in another.
"""

from __future__ import annotations

import hashlib
from typing import Literal, TypeAlias

from onceward.migrate.sqlite_sha256 import sha256_of

LABEL = "historical-backfill"
"""The worker that rows from before the migration are said to be of."""

Hash: TypeAlias = Literal["builtin", "pgcrypto", "application"]
HASHES: tuple[Hash, ...] = ("builtin", "pgcrypto", "application")
"""Who computes it: the database alone, its extension pgcrypto, or this program. SQLite has no pgcrypto."""


def historical_key(id_text: str) -> str:
    """The key for a row, by its id as the database writes it."""
    return hashlib.sha256(f"{LABEL}:{id_text}".encode()).hexdigest()


def postgres_expression(id_column: str, how: Hash, extension_schema: str = "") -> str:
    """The key as PostgreSQL computes it; of the UTF-8 bytes, in whatever encoding the database is."""
    text = f"convert_to('{LABEL}:' || {id_column}::text, 'UTF8')"
    if how == "pgcrypto":
        return f"encode({extension_schema}digest({text}, 'sha256'), 'hex')"
    return f"encode(sha256({text}), 'hex')"


def sqlite_expression(id_column: str) -> str:
    """The key as plain SQLite computes it; `id_column` has its table's name before it."""
    return sha256_of(f"'{LABEL}:' || CAST({id_column} AS TEXT)")
