"""
The rules about key columns and migrations: words and examples. What finds them is `table_checks.py` and
`migration_checks.py`.
"""

from __future__ import annotations

from typing import Final

from onceward.lint.findings import Rule, Severity

_ADD: Final = """\
ALTER TABLE expenses
    ADD COLUMN worker_id text,
    ADD COLUMN idempotency_key text;

"""
_FILL: Final = """\
UPDATE expenses
SET worker_id = 'historical-backfill',
    idempotency_key = encode(sha256(convert_to('historical-backfill:' || id::text, 'UTF8')), 'hex')
WHERE idempotency_key IS NULL OR worker_id IS NULL;

"""
_TIGHTEN: Final = """\
ALTER TABLE expenses
    ALTER COLUMN worker_id SET NOT NULL,
    ALTER COLUMN idempotency_key SET NOT NULL;

"""
_CONSTRAIN: Final = """\
ALTER TABLE expenses
    ADD CONSTRAINT expenses_worker_idem_key UNIQUE (worker_id, idempotency_key);
"""
_WHOLE: Final = _ADD + _FILL + _TIGHTEN + _CONSTRAIN

TABLE_RULES: Final = (
    Rule(
        "OW220",
        "same-key-default",
        "a default on a key column, such as the empty string",
        "Existing rows all get the same key, so the constraint collides; and later, callers that forget their key\n"
        "all share one. A key column has no default.",
        "CREATE TABLE expenses (amount numeric, idempotency_key text NOT NULL DEFAULT '' UNIQUE);\n",
        "CREATE TABLE expenses (amount numeric, idempotency_key text NOT NULL UNIQUE);\n",
        language="sql",
    ),
    Rule(
        "OW221",
        "key-without-unique",
        "a key column without a UNIQUE constraint, which protects nothing",
        "Nothing refuses the second row. Add a constraint over the key and the column that says whose key it is.",
        "CREATE TABLE expenses (worker_id text NOT NULL, idempotency_key text NOT NULL);\n",
        "CREATE TABLE expenses (worker_id text NOT NULL, idempotency_key text NOT NULL,\n"
        "    CONSTRAINT expenses_worker_idem_key UNIQUE (worker_id, idempotency_key));\n",
        language="sql",
    ),
    Rule(
        "OW222",
        "constraint-before-backfill",
        "the constraint is added before the rows have their keys",
        "A backfill that collides then fails half-way, and rows that workers write in the meantime meet keys that\n"
        "are not final. The order makes it safe: add, fill, tighten, constrain.",
        _ADD + _CONSTRAIN.replace(";\n", ";\n\n") + _FILL + _TIGHTEN.rstrip("\n") + "\n",
        _WHOLE,
        language="sql",
    ),
    Rule(
        "OW223",
        "drop-in-migration",
        "a DROP in a migration that adds a key, or a DROP that removes a key's protection",
        "A migration that adds, fills, tightens and constrains can be undone; a DROP cannot. Leave it to a later\n"
        "migration, when nothing uses the dropped part any more.",
        _WHOLE + "\nALTER TABLE expenses DROP COLUMN legacy_reference;\n",
        _WHOLE,
        language="sql",
    ),
    Rule(
        "OW224",
        "unscoped-key",
        "a constraint over the key without the column that says whose key it is",
        "Two workers, or two tenants, may make the same key by chance: the second operation is then taken for a\n"
        "retry of the first, and is lost. Add the worker or tenant to the constraint.",
        "CREATE TABLE expenses (worker_id text NOT NULL, idempotency_key text NOT NULL UNIQUE);\n",
        "CREATE TABLE expenses (worker_id text NOT NULL, idempotency_key text NOT NULL,\n"
        "    UNIQUE (worker_id, idempotency_key));\n",
        Severity.WARNING,
        "sql",
    ),
    Rule(
        "OW225",
        "not-null-before-backfill",
        "a column becomes NOT NULL before its rows are filled",
        "On a table with rows this fails, or someone makes it pass with a default, which is worse. Add the column as\n"
        "nullable, fill it, then SET NOT NULL.",
        _ADD + _TIGHTEN + _FILL + _CONSTRAIN,
        _WHOLE,
        language="sql",
    ),
    Rule(
        "OW226",
        "backfill-not-deterministic",
        "a backfill with keys that are random, made from the clock, or all the same",
        "A backfill is run again after a crash, or on a copy. Keys that differ between runs identify nothing; one key\n"
        "for all rows collides. Derive each key from its row, such as a hash of a label and the primary key.",
        _ADD
        + _FILL.replace(
            "encode(sha256(convert_to('historical-backfill:' || id::text, 'UTF8')), 'hex')", "gen_random_uuid()::text"
        )
        + _TIGHTEN
        + _CONSTRAIN,
        _WHOLE,
        language="sql",
    ),
)
