"""
The rules about MERGE, routines and transactions: words and examples. What finds them is `routine_checks.py`.
"""

from __future__ import annotations

from typing import Final

from onceward.lint.findings import Rule, Severity

_KEYS: Final = """\
CREATE TABLE charges (id bigserial PRIMARY KEY, amount numeric NOT NULL, reference text NOT NULL UNIQUE);
CREATE TABLE charge_keys (idempotency_key text NOT NULL CONSTRAINT charge_keys_idem_key UNIQUE, amount numeric);

"""

ROUTINE_RULES: Final = (
    Rule(
        "OW210",
        "merge-as-guard",
        "MERGE used to prevent a second row",
        "MERGE matches and inserts in two steps. Two callers may both find nothing: then there are two rows or, with\n"
        "a constraint, one caller gets an error. Insert, and let the unique constraint decide.",
        "MERGE INTO charge_keys AS t\nUSING (SELECT $1 AS idempotency_key) AS s ON t.idempotency_key = "
        "s.idempotency_key\n"
        "WHEN NOT MATCHED THEN INSERT (idempotency_key) VALUES (s.idempotency_key);\n",
        "CREATE TABLE charge_keys (idempotency_key text NOT NULL UNIQUE);\n\n"
        "INSERT INTO charge_keys (idempotency_key) VALUES ($1)\nON CONFLICT (idempotency_key) DO NOTHING;\n",
        language="sql",
    ),
    Rule(
        "OW211",
        "check-then-insert",
        "a check for the row decides whether it is inserted",
        "Two callers check, both find nothing, both insert. It does not matter whether the check is\n"
        "`WHERE NOT EXISTS`, a LEFT JOIN, or a SELECT in a function. The check may stay as a fast path if a unique\n"
        "constraint decides.",
        "INSERT INTO charges (reference, amount)\nSELECT $1, $2\n"
        "WHERE NOT EXISTS (SELECT 1 FROM charges WHERE reference = $1);\n",
        "CREATE TABLE charges (reference text NOT NULL UNIQUE, amount numeric NOT NULL);\n\n"
        "INSERT INTO charges (reference, amount) VALUES ($1, $2)\nON CONFLICT (reference) DO NOTHING;\n",
        language="sql",
    ),
    Rule(
        "OW212",
        "any-violation-is-the-keys",
        "an error is taken for a repeated key, without checking which constraint raised it",
        "A unique violation of another constraint in the same block is then treated as if the operation had been\n"
        "done before: the caller gets an empty result, and the operation is lost. Check the constraint's name, and\n"
        "raise all other errors again.",
        _KEYS + "CREATE FUNCTION charge(k text, a numeric, r text) RETURNS void LANGUAGE plpgsql AS $$\nBEGIN\n"  # noqa: S608
        "    INSERT INTO charges (amount, reference) VALUES (a, r);\n"
        "    INSERT INTO charge_keys (idempotency_key, amount) VALUES (k, a);\n"
        "EXCEPTION WHEN unique_violation THEN\n    RETURN;\nEND $$;\n",
        _KEYS + "CREATE FUNCTION charge(k text, a numeric, r text) RETURNS void LANGUAGE plpgsql AS $$\n"  # noqa: S608
        "DECLARE broken text;\nBEGIN\n"
        "    INSERT INTO charges (amount, reference) VALUES (a, r);\n"
        "    INSERT INTO charge_keys (idempotency_key, amount) VALUES (k, a);\n"
        "EXCEPTION WHEN unique_violation THEN\n    GET STACKED DIAGNOSTICS broken = CONSTRAINT_NAME;\n"
        "    IF broken <> 'charge_keys_idem_key' THEN\n        RAISE;\n    END IF;\nEND $$;\n",
        language="sql",
    ),
    Rule(
        "OW213",
        "fixed-width-key",
        "a key column of a fixed width, such as char(36)",
        "char(n) pads shorter keys with blanks, which comparisons ignore, and a T-SQL parameter silently cuts longer\n"
        "ones: two different keys become one, and the second operation gets the result of the first.",
        "CREATE TABLE charge_keys (idempotency_key char(36) NOT NULL UNIQUE);\n",
        "CREATE TABLE charge_keys (idempotency_key text NOT NULL UNIQUE CHECK (length(idempotency_key) <= 255));\n",
        Severity.WARNING,
        "sql",
    ),
    Rule(
        "OW214",
        "split-transaction",
        "the key and the effect are in different transactions",
        "If the work commits and the key does not, a retry does the work again; the other way round, it is never\n"
        "done. Put both between one BEGIN and one COMMIT.",
        _KEYS + "BEGIN;\nINSERT INTO charges (amount, reference) VALUES ($1, $2) ON CONFLICT (reference) DO "
        "NOTHING;\nCOMMIT;\n"
        "BEGIN;\nINSERT INTO charge_keys (idempotency_key) VALUES ($3) ON CONFLICT (idempotency_key) DO "
        "NOTHING;\nCOMMIT;\n",
        _KEYS + "BEGIN;\nINSERT INTO charges (amount, reference) VALUES ($1, $2) ON CONFLICT (reference) DO "  # noqa: S608
        "NOTHING;\n"
        "INSERT INTO charge_keys (idempotency_key) VALUES ($3) ON CONFLICT (idempotency_key) DO NOTHING;\nCOMMIT;\n",
        language="sql",
    ),
)
