"""
The rules about single INSERTs: words and examples. What finds them is `insert_judge.py`.
"""

from __future__ import annotations

from typing import Final

from onceward.lint.findings import Rule, Severity

_TABLE: Final = """\
CREATE TABLE expenses (
    id bigserial PRIMARY KEY,
    worker_id text NOT NULL,
    amount numeric NOT NULL,
    idempotency_key text NOT NULL,
    CONSTRAINT expenses_worker_idem_key UNIQUE (worker_id, idempotency_key)
);

"""
_GOOD: Final = (
    _TABLE
    + """\
INSERT INTO expenses (worker_id, amount, idempotency_key)
VALUES ($1, $2, $3)
ON CONFLICT (worker_id, idempotency_key) DO NOTHING;
"""
)

INSERT_RULES: Final = (
    Rule(
        "OW201",
        "duplicate-factory",
        "an INSERT that a retry repeats, because no constraint stops it",
        "If the response to the first attempt is lost, the caller tries again, and there are two rows. Give the\n"
        "operation a key, put a UNIQUE constraint over it, and skip the rows that the constraint refuses.",
        "CREATE TABLE expenses (id bigserial PRIMARY KEY, amount numeric NOT NULL);\n\n"
        "INSERT INTO expenses (amount) VALUES ($1);\n",
        _GOOD,
        language="sql",
    ),
    Rule(
        "OW202",
        "unhandled-refusal",
        "a constraint refuses the second row with an error, and no conflict clause skips it",
        "There is one row, but the retry gets an error. A caller that takes the error for a failure tries again\n"
        "under another key, or tells its user that nothing happened. Add the clause, or handle the violation of this\n"
        "constraint.",
        _TABLE + "INSERT INTO expenses (worker_id, amount, idempotency_key) VALUES ($1, $2, $3);\n",  # noqa: S608
        _GOOD,
        Severity.WARNING,
        "sql",
    ),
    Rule(
        "OW203",
        "conflict-without-target",
        "a conflict clause without a target skips rows that any constraint refuses",
        "`ON CONFLICT DO NOTHING` also skips a new operation that breaks another constraint: its row is lost and\n"
        "nobody notices. SQLite's `INSERT OR IGNORE` also skips rows that break NOT NULL or CHECK. Name the key's\n"
        "columns.",
        "CREATE TABLE charges (\n    reference text NOT NULL UNIQUE,\n    idempotency_key text NOT NULL "
        "UNIQUE\n);\n\n"
        "INSERT INTO charges (reference, idempotency_key) VALUES ($1, $2)\nON CONFLICT DO NOTHING;\n",
        "CREATE TABLE charges (\n    reference text NOT NULL UNIQUE,\n    idempotency_key text NOT NULL "
        "UNIQUE\n);\n\n"
        "INSERT INTO charges (reference, idempotency_key) VALUES ($1, $2)\nON CONFLICT (idempotency_key) DO "
        "NOTHING;\n",
        Severity.WARNING,
        "sql",
    ),
    Rule(
        "OW204",
        "conflict-target-without-constraint",
        "the conflict target matches no unique constraint of the schema",
        "The database refuses such a statement every time: the columns must be exactly those of one unique\n"
        "constraint, a partial index needs its WHERE repeated, and a deferrable constraint cannot be used at all. A\n"
        "name that sounds right protects nothing.",
        _TABLE + "INSERT INTO expenses (worker_id, amount, idempotency_key)\nVALUES ($1, $2, $3)\n"
        "ON CONFLICT (idempotency_key) DO NOTHING;\n",
        _GOOD,
        language="sql",
    ),
    Rule(
        "OW205",
        "nullable-key",
        "a key that may be NULL, although NULLs are distinct to UNIQUE",
        "A UNIQUE constraint accepts any number of NULLs, so a row without a key is not protected. Declare the\n"
        "column NOT NULL. If the key is optional on purpose, say so with a partial index:\n"
        "`WHERE idempotency_key IS NOT NULL`. In SQLite even a PRIMARY KEY that is not an integer accepts NULLs\n"
        "unless it is declared NOT NULL.",
        "CREATE TABLE expenses (amount numeric, idempotency_key text UNIQUE);\n\n"
        "INSERT INTO expenses (amount, idempotency_key) VALUES ($1, $2)\nON CONFLICT (idempotency_key) DO NOTHING;\n",
        "CREATE TABLE expenses (amount numeric, idempotency_key text NOT NULL UNIQUE);\n\n"
        "INSERT INTO expenses (amount, idempotency_key) VALUES ($1, $2)\nON CONFLICT (idempotency_key) DO NOTHING;\n",
        language="sql",
    ),
    Rule(
        "OW206",
        "fresh-key",
        "a key that the database generates on each attempt",
        "`now()`, `gen_random_uuid()` and sequences differ on a retry, so the constraint never meets the\n"
        "first row. Only the caller knows that its second request is a retry, so the caller chooses the key and\n"
        "sends the same key each time.",
        _TABLE + "INSERT INTO expenses (worker_id, amount, idempotency_key)\nVALUES ($1, $2, "
        "gen_random_uuid()::text)\n"
        "ON CONFLICT (worker_id, idempotency_key) DO NOTHING;\n",
        _GOOD,
        language="sql",
    ),
    Rule(
        "OW207",
        "update-where-no-double-send",
        "DO UPDATE where the intent is to send nothing twice",
        "With DO UPDATE, a retry writes and reports a row, as the first attempt did, so a program that sends a mail\n"
        "for each written row sends it again. With DO NOTHING, a retry reports no row. State the intent with\n"
        "`--intent no-double-send`, or in the file as below.",
        "-- onceward: intent no-double-send\n"
        "CREATE TABLE confirmation_emails (run_id text NOT NULL, expense_id bigint NOT NULL, body text,\n"
        "    UNIQUE (run_id, expense_id));\n\n"
        "INSERT INTO confirmation_emails (run_id, expense_id, body) VALUES ($1, $2, $3)\n"
        "ON CONFLICT (run_id, expense_id) DO UPDATE SET body = EXCLUDED.body;\n",
        "-- onceward: intent no-double-send\n"
        "CREATE TABLE confirmation_emails (run_id text NOT NULL, expense_id bigint NOT NULL, body text,\n"
        "    UNIQUE (run_id, expense_id));\n\n"
        "INSERT INTO confirmation_emails (run_id, expense_id, body) VALUES ($1, $2, $3)\n"
        "ON CONFLICT (run_id, expense_id) DO NOTHING;\n",
        language="sql",
    ),
    Rule(
        "OW208",
        "replace-deletes",
        "REPLACE deletes the first row and writes another",
        "The first row is deleted, with its number and the rows that refer to it (ON DELETE CASCADE), whichever\n"
        "constraint was met. Write `ON CONFLICT (...) DO NOTHING`, or DO UPDATE for the columns that may change.",
        "-- onceward: dialect sqlite\n"
        "CREATE TABLE expenses (amount INTEGER, idempotency_key TEXT NOT NULL UNIQUE);\n\n"
        "INSERT OR REPLACE INTO expenses (amount, idempotency_key) VALUES (?, ?);\n",
        "-- onceward: dialect sqlite\n"
        "CREATE TABLE expenses (amount INTEGER, idempotency_key TEXT NOT NULL UNIQUE);\n\n"
        "INSERT INTO expenses (amount, idempotency_key) VALUES (?, ?)\nON CONFLICT (idempotency_key) DO NOTHING;\n",
        Severity.WARNING,
        "sql",
    ),
    Rule(
        "OW209",
        "adding-upsert",
        "DO UPDATE adds to the existing value, so each retry adds again",
        "With `SET balance = accounts.balance + EXCLUDED.balance`, a retry adds the amount a second time. Write each\n"
        "movement once, as a row with a key, and compute the balance as the sum of the rows. Columns that count\n"
        "attempts are not reported.",
        "CREATE TABLE balances (account text PRIMARY KEY, amount numeric NOT NULL);\n\n"
        "INSERT INTO balances (account, amount) VALUES ($1, $2)\n"
        "ON CONFLICT (account) DO UPDATE SET amount = balances.amount + EXCLUDED.amount;\n",
        "CREATE TABLE movements (account text NOT NULL, amount numeric NOT NULL, idempotency_key text NOT NULL "
        "UNIQUE);\n\n"
        "INSERT INTO movements (account, amount, idempotency_key) VALUES ($1, $2, $3)\n"
        "ON CONFLICT (idempotency_key) DO NOTHING;\n",
        language="sql",
    ),
    Rule(
        "OW215",
        "partial-constraint",
        "the key's unique index covers only some rows",
        "Once the first row leaves the index (its status changes, or it is marked as deleted), a retry writes a\n"
        "second row. Put the constraint over all rows; `WHERE idempotency_key IS NOT NULL` alone is fine.",
        "CREATE TABLE orders (status text NOT NULL, idempotency_key text NOT NULL);\n"
        "CREATE UNIQUE INDEX orders_idem_key ON orders (idempotency_key) WHERE status = 'open';\n",
        "CREATE TABLE orders (status text NOT NULL, idempotency_key text NOT NULL);\n"
        "CREATE UNIQUE INDEX orders_idem_key ON orders (idempotency_key);\n",
        language="sql",
    ),
)
