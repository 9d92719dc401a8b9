"""
Tenants' databases on PostgreSQL: a schema each, owned by a role that nobody can log in as.

The name of both is random. It is found by namespace and database in a table of ours, on which tenants have no rights.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from onceward.protocol.errors import DatabaseUnknown
from onceward.runtime.environment import Environment
from onceward.service.sql.closed_databases import closed_error
from onceward.service.sql.database_files import DatabaseName, check_name
from onceward.service.sql.postgres.session import PipelineStep, TenantSession
from onceward.stores.tables import Schema

SCHEMA: Final = Schema(
    "sql_tenants", "onceward.service.sql.postgres", 1, "`onceward serve --sql postgresql://...` makes them"
)
REMEMBERED: Final = 10_000
CLOSED: Final = "closed_"
"""In front of the name of a role, here and on the server, while its database takes nothing: it is being moved."""
OPEN_NAME: Final = f"pg_catalog.regexp_replace(theirs.schema_name, '^{CLOSED}', '')"
"""The schema of a row of `onceward_databases AS theirs`. While a database is closed, the name there is its role's."""
SUFFIX_CHARACTERS: Final = 12
ERASED_AT_ONCE: Final = 1_000
_ERASE: Final = """
WITH gone AS (
    DELETE FROM {tables}.onceward_records WHERE id IN (
        SELECT id FROM {tables}.onceward_records
        WHERE right(scope, 12) = $1::text AND strpos(scope, ':db:') > 0 LIMIT $2::bigint)
    RETURNING fence),
kept AS (
    UPDATE {tables}.onceward_meta SET value = (SELECT max(fence) FROM gone)
    WHERE name = 'fence_floor' AND value < (SELECT max(fence) FROM gone))
SELECT count(*) FROM gone
"""
"""Some of a database's records; the greatest fence deleted is remembered, so that no later claim can get it again."""
_NAME: Final = re.compile(r"ow_[0-9a-f]{24}")
_BEGIN, _COMMIT, _ROLLBACK = PipelineStep(b"BEGIN"), PipelineStep(b"COMMIT"), PipelineStep(b"ROLLBACK")


def record_suffix(schema: str) -> str:
    """What the scopes of a database's records end with: one that is dropped and made again has keys of its own."""
    return sha256(schema.encode()).hexdigest()[:SUFFIX_CHARACTERS]


def stored_scope(scope: str, schema: str) -> str:
    """The scope of a record in a database."""
    return f"{scope}:{record_suffix(schema)}"


class TenantSchemas:
    """Which schema a database is. What was found is remembered: a name never stands for another schema."""

    def __init__(self, tables: str, environment: Environment) -> None:
        self._table = f"{tables}.onceward_databases"
        self._erase = _ERASE.format(tables=tables).encode()
        self._random = environment.random
        self._known: OrderedDict[DatabaseName, str] = OrderedDict()

    def forget(self, name: DatabaseName) -> None:
        """Ask again: another replica may have dropped it."""
        self._known.pop(name, None)

    def recall(self, namespace: str, database: str) -> str | None:
        """The schema, if it was asked for before."""
        return self._known.get((namespace, database))  # type: ignore[call-overload,no-any-return]  # As good as a name.

    async def find(self, session: TenantSession, namespace: str, database: str) -> str:
        """The schema of a database; `DatabaseUnknown` if there is none."""
        name = DatabaseName(check_name(namespace, "namespace"), check_name(database, "database"))
        sql = f"SELECT schema_name FROM {self._table} WHERE namespace = $1 AND database = $2"  # noqa: S608
        [answer] = await session.execute(PipelineStep(sql.encode(), [one.encode() for one in name]))
        found = session.rows_of(answer)
        if not found:
            raise DatabaseUnknown(f"there is no database {database}; create it with PUT, or check its name")
        if found[0][0].startswith(CLOSED):
            raise closed_error()
        schema = _checked(found[0][0])
        self._known[name] = schema
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return schema

    async def create(self, session: TenantSession, namespace: str, database: str) -> bool:
        """Make a database; whether it is new."""
        name = DatabaseName(check_name(namespace, "namespace"), check_name(database, "database"))
        schema = new_schema_name(self._random)
        sql = (
            f"INSERT INTO {self._table} (namespace, database, schema_name) VALUES ($1, $2, $3) "  # noqa: S608
            "ON CONFLICT (namespace, database) DO NOTHING RETURNING 1"
        )
        values = [*(one.encode() for one in name), schema.encode()]
        try:
            _, inserted = await session.execute(_BEGIN, PipelineStep(sql.encode(), values))
            if not session.rows_of(inserted):
                await session.execute(_ROLLBACK)
                return False
            making = statements_that_make(schema, session.connection.info.server_version)
            await session.execute(*(PipelineStep(one.encode()) for one in making), _COMMIT)
        except BaseException:
            session.spoilt = True  # Closing it undoes what is open.
            raise
        return True

    async def drop(self, session: TenantSession, namespace: str, database: str) -> str | None:
        """Delete a database; the schema that it was, None if there was none."""
        name = DatabaseName(check_name(namespace, "namespace"), check_name(database, "database"))
        sql = f"DELETE FROM {self._table} WHERE namespace = $1 AND database = $2 RETURNING schema_name"  # noqa: S608
        self.forget(name)
        try:
            _, deleted = await session.execute(_BEGIN, PipelineStep(sql.encode(), [one.encode() for one in name]))
            found = session.rows_of(deleted)
            if not found:
                await session.execute(_ROLLBACK)
                return None
            role = checked_role(found[0][0])
            schema = role.removeprefix(CLOSED)
            await session.execute(*(PipelineStep(one.encode()) for one in dropping(role)), _COMMIT)
        except BaseException:
            session.spoilt = True
            raise
        return schema

    async def erase_records(self, session: TenantSession, schema: str) -> None:
        """Delete the records of a database that was dropped, a few at a time. What is left over expires as usual."""
        values = [record_suffix(schema).encode(), str(ERASED_AT_ONCE).encode()]
        while True:
            [answer] = await session.execute(PipelineStep(self._erase, values))
            if int(session.rows_of(answer)[0][0]) < ERASED_AT_ONCE:
                return

    async def list(self, session: TenantSession, namespace: str | None) -> list[DatabaseName]:
        """The databases there are, by name."""
        where = "" if namespace is None else " WHERE namespace = $1"
        sql = f"SELECT namespace, database FROM {self._table}{where} ORDER BY namespace, database"  # noqa: S608
        values = [] if namespace is None else [check_name(namespace, "namespace").encode()]
        [answer] = await session.execute(PipelineStep(sql.encode(), values))
        return [DatabaseName(*row) for row in session.rows_of(answer)]


def checked_role(role: str) -> str:
    """The name of a role as we make them, open or closed: it is written into statements."""
    _checked(role.removeprefix(CLOSED))
    return role


def new_schema_name(random: Callable[[int], bytes]) -> str:
    """A name for a schema and its role that nobody can guess."""
    return _checked(f"ow_{random(12).hex()}")


def statements_that_make(schema: str, server_version: int) -> list[str]:
    """The statements that make a role and its schema, in a transaction."""
    membership = " WITH INHERIT FALSE, SET TRUE" if server_version >= 160_000 else ""
    return [
        f"CREATE ROLE {_checked(schema)} NOLOGIN NOINHERIT",
        f"GRANT {schema} TO CURRENT_USER{membership}",
        f"CREATE SCHEMA {schema} AUTHORIZATION {schema}",
    ]


def dropping(role: str) -> tuple[str, ...]:
    """The statements that drop a schema and its role, inside a transaction."""
    schema = checked_role(role).removeprefix(CLOSED)
    as_its_owner = (f"SET LOCAL ROLE {role}", f"DROP SCHEMA {schema} CASCADE", "SET LOCAL ROLE NONE")
    return (*as_its_owner, f"DROP ROLE {role}")


def _checked(name: str) -> str:
    """A name as we make them: it is written into statements."""
    if _NAME.fullmatch(name) is None:
        raise ValueError("the table of databases names a schema that does not belong to the service")
    return name
