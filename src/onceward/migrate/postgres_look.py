"""
Looks at a PostgreSQL table before anything is changed: whether it can be migrated, and how far it has come.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg

from onceward.migrate.hashing import Hash
from onceward.migrate.table import KEY, WORKER, MigrationRefused, Table, check_name, quote

_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "p": "a partitioned table",
    "S": "a sequence",
}
_ID_TYPES = frozenset(("int2", "int4", "int8", "text", "varchar", "bpchar", "uuid", "numeric", "citext"))
"""Types whose text is the same in every session. That of a timestamp or a float is a matter of settings."""
_KEY_CHARACTERS = 64

_TABLE = """
SELECT c.oid, n.nspname, c.relname, c.relkind, c.relispartition,
    EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid) AS has_children,
    pg_has_role(c.relowner, 'USAGE') AS owned, has_schema_privilege(n.oid, 'CREATE') AS may_create
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""
_IDS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typname
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
    JOIN pg_type t ON t.oid = a.atttypid
WHERE i.indrelid = %s AND i.indisprimary
"""
_COLUMNS = """
SELECT a.attname, t.typname, a.atttypmod, a.atthasdef, format_type(a.atttypid, a.atttypmod), a.attnotnull
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attname = ANY (%s) AND NOT a.attisdropped
"""
_INDEX = """
SELECT COALESCE(i.indrelid = %(oid)s, false), COALESCE(i.indisunique AND i.indpred IS NULL, false),
    COALESCE(i.indisvalid, false),
    ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number ORDER BY place)
FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
WHERE c.relname = %(name)s AND c.relnamespace = %(schema)s::text::regnamespace
"""


class Standing(NamedTuple):
    """What the schema says of the migration."""

    columns: frozenset[str]
    not_null: bool
    check: str
    """The check that both values are there: "" if there is none, "new" until it is validated, then "valid"."""
    unique_index: str
    """The unique index: "" if there is none, "broken" after a kill while it was built, or "valid"."""
    constraint: bool


def look(connection: psycopg.Connection[Any], name: str, schema: str, how: Hash) -> Table:
    """The table, if it can be migrated."""
    check_name(name, "postgresql")
    typed = f"{quote(schema)}.{quote(name)}" if schema else quote(name)
    found = connection.execute(_TABLE, [typed]).fetchone()
    if found is None:
        raise MigrationRefused(
            f"there is no table {typed} here that this role can see. Write the name as it is in the database (case "
            "matters), and add --schema if it is not on the search path"
        )
    oid, schema, name, kind, is_partition, has_children, owned, may_create = found
    if kind != "r":
        advice = (
            "Its unique constraint would have to contain the partition key: write its migration by hand"
            if kind == "p"
            else "Name the table that has its rows"
        )
        raise MigrationRefused(
            f"{typed} is {_KINDS.get(kind, 'not a table')}, and only a plain table can be migrated. {advice}"
        )
    if is_partition or has_children:
        raise MigrationRefused(
            f"{typed} is part of a partitioned or inherited table, so a constraint would cover only one part. "
            "Write its migration by hand"
        )
    if not (owned and may_create):
        raise MigrationRefused(
            f"this role may not change {typed}: only its owner may, with CREATE on the schema {quote(schema)}. Connect "
            "as the owner, or print the SQL for an administrator with `onceward migrate generate`"
        )
    id, id_type = _id_of(connection, oid, typed)
    _check_columns(connection, oid, typed)
    table = Table("postgresql", schema, name, id, id_type, _digest_schema(connection, how))
    standing_of(connection, table)  # It refuses what has our names and is not ours.
    return table


def _id_of(connection: psycopg.Connection[Any], oid: int, typed: str) -> tuple[str, str]:
    ids = connection.execute(_IDS, [oid]).fetchall()
    if not ids:
        raise MigrationRefused(
            f"{typed} has no primary key, from which the keys of existing rows are made. Add one first"
        )
    if len(ids) > 1:
        raise MigrationRefused(
            f"the primary key of {typed} has {len(ids)} columns, and the keys of existing rows are made from one. "
            "Write its migration by hand, with a key made from all columns"
        )
    ((id, id_type, base),) = ids
    if base not in _ID_TYPES:
        raise MigrationRefused(
            f"the primary key of {typed} is of type {id_type}, whose text may differ between sessions. Keys can be "
            "made from integers, numeric, text or uuid: write its migration by hand"
        )
    return id, id_type


def _check_columns(connection: psycopg.Connection[Any], oid: int, typed: str) -> None:
    for column, type, modifier, has_default, shown, _ in connection.execute(_COLUMNS, [oid, [WORKER, KEY]]):
        short = type == "varchar" and 0 <= modifier - 4 < _KEY_CHARACTERS
        if type not in ("text", "varchar") or short:
            raise MigrationRefused(
                f"{typed}.{column} already exists with the type {shown}, and must be text (or varchar of at least "
                f"{_KEY_CHARACTERS}). Change or rename it first"
            )
        if has_default:
            raise MigrationRefused(
                f"{typed}.{column} has a default, so rows without a key would all get the same key. Remove the "
                "default first"
            )


def _digest_schema(connection: psycopg.Connection[Any], how: Hash) -> str:
    """Where pgcrypto is; empty if it can be had and is not installed yet."""
    if how != "pgcrypto":
        return ""
    installed = connection.execute(
        "SELECT quote_ident(n.nspname) || '.' FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace "
        "WHERE e.extname = 'pgcrypto'"
    ).fetchone()
    if installed is not None:
        return str(installed[0])
    if connection.execute("SELECT FROM pg_available_extensions WHERE name = 'pgcrypto'").fetchone() is None:
        raise MigrationRefused(
            "this server does not have pgcrypto. Install PostgreSQL's contrib package, or choose --hash builtin or "
            "--hash application: the keys are the same"
        )
    return ""


def standing_of(connection: psycopg.Connection[Any], table: Table) -> Standing:
    """How far the schema has come."""
    (oid,) = connection.execute("SELECT to_regclass(%s)::oid", [table.quoted]).fetchone() or (None,)
    columns = {row[0]: row[5] for row in connection.execute(_COLUMNS, [oid, [WORKER, KEY]])}
    kinds = {
        name: (kind, valid)
        for name, kind, valid in connection.execute(
            "SELECT conname, contype::text, convalidated FROM pg_constraint WHERE conrelid = %s", [oid]
        )
    }
    check, constraint = kinds.get(table.presence), kinds.get(table.constraint)
    index = connection.execute(_INDEX, {"oid": oid, "name": table.constraint, "schema": quote(table.schema)}).fetchone()
    wrong = (check is not None and check[0] != "c") or (constraint is not None and constraint[0] != "u")
    if wrong or (index is not None and (not index[0] or not index[1] or index[3] != [WORKER, KEY])):
        raise MigrationRefused(
            f"something else is named {table.presence if check and check[0] != 'c' else table.constraint}: it is not a "
            f"unique index on ({WORKER}, {KEY}) of {table.quoted}. Rename it first"
        )
    return Standing(
        frozenset(columns),
        len(columns) == 2 and all(columns.values()),
        "" if check is None else "valid" if check[1] else "new",
        "" if index is None else "valid" if index[2] else "broken",
        constraint is not None,
    )
