"""
What makes another value at each attempt: a key made of it never meets the one of the attempt before.
"""

from __future__ import annotations

from typing import Final

FRESH_FUNCTIONS: Final = frozenset(
    {
        # Clocks.
        "now",
        "clock_timestamp",
        "statement_timestamp",
        "transaction_timestamp",
        "timeofday",
        "current_timestamp",
        "current_time",
        "current_date",
        "localtimestamp",
        "localtime",
        "sysdatetime",
        "sysutcdatetime",
        "sysdatetimeoffset",
        "getdate",
        "getutcdate",
        "unixepoch",
        # Chance.
        "random",
        "rand",
        "randomblob",
        "gen_random_uuid",
        "gen_random_bytes",
        "uuid_generate_v1",
        "uuid_generate_v1mc",
        "uuid_generate_v4",
        "uuidv4",
        "uuidv7",
        "uuid",
        "newid",
        "newsequentialid",
        "gen_ulid",
        "ulid",
        "nanoid",
        # Counters, and whose attempt it is.
        "nextval",
        "txid_current",
        "pg_current_xact_id",
        "pg_backend_pid",
        "last_insert_rowid",
        "scope_identity",
    }
)
"""Names of functions, in small letters. SQLite's `datetime('now')` is known by its argument."""
