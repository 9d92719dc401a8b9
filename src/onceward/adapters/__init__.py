"""
Adapters for database libraries: the record is written on the caller's own connection, in the caller's transaction.

There is one public module for each library: `sqlite3`, `psycopg`, `sqlalchemy`, `django`. It is found by the
connection's type, without importing a library that is not in use. Each has `join`, which gives a `CallerTransaction`
(`_core/caller_transaction_async.py`) for atomic mode and `settle_inside`, and `run_in_transaction` for other rows of
ours (an outbox); both also with `_async`. A store of another package may bring adapters of its own
(`Capabilities.joins`). `insert_once` is here, too: it needs a connection and no gate.

May import: `_core`, `runtime`, `stores` (with `stores.tables`). Not `gate`, which imports this.

Start with `_transaction_async.py` (join, run, finish), then `sqlite3.py`, the smallest adapter.
"""

from onceward.adapters.insert import insert_once
from onceward.adapters.insert_async import insert_once_async
from onceward.adapters.insert_statement import Inserted, Update, insert_sql

__all__ = ["Inserted", "Update", "insert_once", "insert_once_async", "insert_sql"]
