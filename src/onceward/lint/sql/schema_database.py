"""
The schema of a live database, read-only: PostgreSQL by psycopg, SQLite by the standard library.

Only catalogues are read. PostgreSQL is asked in a read-only transaction; a SQLite file is opened as read-only and must
be there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from onceward._core.errors import ConfigurationError, StoreUnavailable
from onceward._core.sql_lexer import Dialect
from onceward.lint.sql.parsing import parse_sql
from onceward.lint.sql.postgres_tree import DEFAULT_SCHEMAS
from onceward.lint.sql.schema import SchemaTable, SqlSchema
from onceward.lint.sql.statements import FRESH, AddUnique, Column, CreateTable, Unique, Value

_SECONDS: Final = 10
_STATEMENT_SECONDS: Final = 60

_COLUMNS: Final = """
SELECT n.nspname, c.relname, c.relkind::text, a.attname, a.attnotnull, a.attidentity <> '', t.typname,
       CASE WHEN t.typname = 'bpchar' THEN a.atttypmod - 4 ELSE 0 END, pg_get_expr(d.adbin, d.adrelid)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND n.nspname NOT LIKE 'pg_toast%'
ORDER BY n.nspname, c.relname, a.attnum
"""
_INDEXES: Final = """
SELECT n.nspname, c.relname, pg_get_indexdef(i.indexrelid), i.indisprimary, NOT i.indimmediate, i.indisvalid
FROM pg_index i
JOIN pg_class c ON c.oid = i.indrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.indisunique AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg_toast%'
ORDER BY i.indexrelid
"""


def dialect_of(url: str) -> Dialect:
    """Whose database a URL names. Raises ConfigurationError for one that is not read."""
    scheme = urlsplit(url).scheme.lower()
    if scheme in ("postgresql", "postgres"):
        return Dialect.POSTGRES
    if scheme == "sqlite":
        return Dialect.SQLITE
    raise ConfigurationError(
        f"--database reads postgresql:// and sqlite:/// only, not {scheme or 'a path'}. For others, pass the migration "
        "files: --schema FOLDER"
    )


def read_database(url: str) -> SqlSchema:
    """The tables of a database. Raises ConfigurationError or StoreUnavailable with what to do."""
    return _read_postgres(url) if dialect_of(url) is Dialect.POSTGRES else _read_sqlite(url)


def _read_postgres(url: str) -> SqlSchema:
    try:
        import psycopg
    except ImportError:
        raise ConfigurationError(
            "reading PostgreSQL needs the package 'psycopg', which is missing: pip install 'onceward[postgres]'"
        ) from None
    try:
        with psycopg.connect(url, connect_timeout=_SECONDS) as connection:
            connection.read_only = True
            connection.execute(f"SET LOCAL statement_timeout = '{_STATEMENT_SECONDS}s'")
            columns = connection.execute(_COLUMNS).fetchall()
            indexes = connection.execute(_INDEXES).fetchall()
    except psycopg.OperationalError as error:
        reason = str(error).strip().split("\n")[0]
        raise StoreUnavailable(f"the database cannot be read: {reason}. Check the URL, or use --schema") from None
    except (psycopg.Error, ValueError) as error:
        raise ConfigurationError(f"the database cannot be read: {str(error).strip().splitlines()[0]}") from None
    schema = SqlSchema(Dialect.POSTGRES, source="the database")
    for namespace, name, kind, column, not_null, identity, type_name, width, default in columns:
        full = name if namespace in DEFAULT_SCHEMAS else f"{namespace}.{name}"
        if full not in schema.tables:
            schema.put(full, SchemaTable(full, kind="view" if kind in ("v", "m") else "table"))
        table = schema.tables[full]
        value = Value(FRESH, "auto-increment") if identity else _default(default)
        table.columns[column] = Column(column, 0, type_name, not_null, value, max(0, width))
    for namespace, name, text, primary, deferrable, valid in indexes:
        full = name if namespace in DEFAULT_SCHEMAS else f"{namespace}.{name}"
        for one in parse_sql(text, Dialect.POSTGRES):
            if isinstance(one, AddUnique) and valid and full in schema.tables:
                schema.tables[full].uniques.append(_with(one.unique, primary, deferrable))
    return schema


def _with(unique: Unique, primary: bool, deferrable: bool) -> Unique:
    return Unique(
        unique.columns, 0, unique.name, primary, unique.predicate, unique.nulls_equal or primary, deferrable=deferrable
    )


def _default(text: str | None) -> Value | None:
    """A default as PostgreSQL prints it, read by its own parser."""
    if text is None:
        return None
    for one in parse_sql(f"CREATE TABLE t (c text DEFAULT {text})", Dialect.POSTGRES):
        if isinstance(one, CreateTable) and one.columns:
            return one.columns[0].default
    return None


def _read_sqlite(url: str) -> SqlSchema:
    parts = urlsplit(url)
    path = Path(unquote(parts.path)[1:] if parts.path.startswith("/") else unquote(parts.path))
    if not parts.path.strip("/") or parts.netloc:
        raise ConfigurationError(f"{url!r} names no file. Write sqlite:///app.db, or sqlite:////path/app.db")
    if not path.is_file():
        raise ConfigurationError(f"there is no file {path}. Check the path: sqlite:///app.db is relative")
    schema = SqlSchema(Dialect.SQLITE, source="the database")
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_SECONDS)) as connection:
            tables = connection.execute(
                "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
            ).fetchall()
            for name, kind in tables:
                table = SchemaTable(name.lower(), kind=kind)
                table.columns = {one.name: one for one in _sqlite_columns(connection, name)}
                table.uniques = list(_sqlite_uniques(connection, name, table))
                schema.put(table.name, table)
    except sqlite3.DatabaseError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error}. Is it a SQLite database, and not in use?") from None
    return schema


def _sqlite_columns(connection: sqlite3.Connection, table: str) -> Iterator[Column]:
    rows = connection.execute(
        'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)', (table,)
    ).fetchall()
    keys = [row for row in rows if row[4]]
    for name, type_name, not_null, default, primary in rows:
        is_number = primary and len(keys) == 1 and type_name.upper() == "INTEGER"
        value = Value(FRESH, "auto-increment") if is_number else _sqlite_default(default)
        yield Column(name.lower(), 0, type_name.lower(), bool(not_null or is_number), value)


def _sqlite_default(text: str | None) -> Value | None:
    if text is None:
        return None
    for one in parse_sql(f"CREATE TABLE t (c TEXT DEFAULT ({text}))", Dialect.SQLITE):
        if isinstance(one, CreateTable) and one.columns:
            return one.columns[0].default
    return None


def _sqlite_uniques(connection: sqlite3.Connection, name: str, table: SchemaTable) -> Iterator[Unique]:
    number = [one.name for one in table.columns.values() if one.default == Value(FRESH, "auto-increment")]
    if number:
        yield Unique(tuple(number), 0, primary=True)
    indexes = connection.execute(
        "SELECT i.name, i.origin, i.partial, m.sql FROM pragma_index_list(?) i "
        "LEFT JOIN sqlite_master m ON m.type = 'index' AND m.name = i.name WHERE i.\"unique\"",
        (name,),
    ).fetchall()
    for index, origin, partial, sql in indexes:
        columns: list[Any] = [
            row[0] for row in connection.execute("SELECT name FROM pragma_index_info(?) ORDER BY seqno", (index,))
        ]
        if partial or None in columns:
            found = [one.unique for one in parse_sql(sql or "", Dialect.SQLITE) if isinstance(one, AddUnique)]
            yield from found
        else:
            shown = "" if index.startswith("sqlite_autoindex") else index.lower()
            yield Unique(tuple(one.lower() for one in columns), 0, shown, origin == "pk")
