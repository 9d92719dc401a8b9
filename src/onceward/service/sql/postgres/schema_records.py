"""
What is in tenants' schemas and beside them, for whoever looks after it: records of keyed SQL, bytes, and what ran.

Nothing of a tenant's is run. It blocks, as what reads SQLite's files does: operators are few, and upkeep has a thread.
The records are in the table of a store, which the other commands for stores know, too; those of a database end their
scope with a digest of its schema. That is left out of what is shown: callers do not know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final, NamedTuple

from onceward._core.errors import RequestInvalid
from onceward._core.keys import ENVIRONMENTS
from onceward._core.record import Record
from onceward.gate.operator_actions import CANDIDATES_MAX, scan_start_of
from onceward.runtime.environment import REAL, Environment
from onceward.service.sql.database_files import DatabaseName, namespace_of
from onceward.service.sql.database_records import FILES_MAX, format_place, parse_age, parse_place
from onceward.service.sql.postgres.schema_room import SIZE
from onceward.service.sql.postgres.tenant_schemas import (
    OPEN_NAME,
    SCHEMA,
    SUFFIX_CHARACTERS,
    record_suffix,
    stored_scope,
)
from onceward.stores import open_store
from onceward.stores.postgres import PostgresStore
from onceward.stores.tables import Sql, SqlSteps, open_tables
from onceward.stores.tables.sql_steps import Row

# The colons of ':db:' would be taken for placeholders here, and an index is found by its own words.
_OF_DATABASES: Final = r"strpos(scope, E'\x3adb\x3a') > 0"
_OF_ONE: Final = f"right(scope, {SUFFIX_CHARACTERS}) = :suffix AND {_OF_DATABASES}"
_DATABASES: Final = f"""SELECT namespace, database, {OPEN_NAME} FROM onceward_databases AS theirs
    WHERE namespace = :namespace ORDER BY database"""  # noqa: S608
_IDS: Final = f"SELECT id FROM onceward_records WHERE {_OF_ONE} AND id > :after ORDER BY id LIMIT :limit"  # noqa: S608
_IDS_IN_SCOPE: Final = _IDS.replace(" AND id >", " AND scope = :scope AND id >")
_OLDEST: Final = f"""SELECT id, right(scope, {SUFFIX_CHARACTERS}), first_at FROM onceward_records
    WHERE right(scope, {SUFFIX_CHARACTERS}) = ANY(:suffixes) AND {_OF_DATABASES}
    AND (first_at, id) > (:at, :after) AND first_at <= :now - :older
    ORDER BY first_at, id LIMIT :limit"""  # noqa: S608
_BYTES: Final = f"""SELECT namespace, CAST(sum({SIZE.format(OPEN_NAME)}) AS bigint)
    FROM onceward_databases AS theirs WHERE namespace = ANY(:namespaces) GROUP BY namespace"""  # noqa: S608
_HELD: Final = f"""SELECT scope, count(*), coalesce(sum(coalesce(length(result), 0) + coalesce(length(error), 0)), 0)
    FROM onceward_records WHERE {_OF_DATABASES} GROUP BY scope"""  # noqa: S608
_RAN: Final = "SELECT id, :now - settled_at FROM onceward_records WHERE id = ANY(:ids) AND settled_at IS NOT NULL"


class SchemaName(NamedTuple):
    """A database, and the schema that it is."""

    namespace: str
    database: str
    schema: str

    @property
    def place(self) -> DatabaseName:
        """Its name alone."""
        return DatabaseName(self.namespace, self.database)


class SchemaRecord(NamedTuple):
    """A record, and the database whose write it is about."""

    name: SchemaName
    record: Record


class SchemaPage(NamedTuple):
    """Some records, and where the next page begins; None at the end."""

    found: list[SchemaRecord]
    after: str | None


class SchemaRecords:
    """The records in tenants' databases on one server."""

    def __init__(
        self, url: str, environment: Environment = REAL, *, opened: Callable[[Record], Record] | None = None
    ) -> None:
        self._store = PostgresStore(url, environment=environment)
        self._driver = open_tables(url, SCHEMA, environment, create=False)
        self._opened = opened
        """Opens what is sealed at rest; None: nothing is."""

    def close(self) -> None:
        """Let go of the connections."""
        self._driver.close()
        self._store.close()

    def databases(self, environment: str, tenant: str) -> list[SchemaName]:
        """A tenant's databases in one environment, by name."""
        rows = self._ask(_DATABASES, namespace=namespace_of(environment, tenant))
        return [SchemaName(*row) for row in rows]

    def stored_scope(self, name: SchemaName, scope: str) -> str:
        """The scope of a record as it is stored."""
        return stored_scope(scope, name.schema)

    def page(self, names: Sequence[SchemaName], limit: int, after: str = "", scope: str | None = None) -> SchemaPage:
        """Records database by database, in each of them in order of id."""
        place, start = parse_place(after)
        left = [one for one in names if one.place >= place]
        found: list[SchemaRecord] = []
        for one in left[:FILES_MAX]:
            begin = start if one.place == place else b""
            found += self._found(one, self._ids(one, begin, limit - len(found), scope))
            if len(found) == limit:
                return SchemaPage(found, format_place(one.place, found[-1].record.id))
        return SchemaPage(found, format_place(left[FILES_MAX].place, b"") if len(left) > FILES_MAX else None)

    def oldest(
        self,
        names: Sequence[SchemaName],
        limit: int,
        after: str = "",
        *,
        older_than: float = 0.0,
        scope: str | None = None,
    ) -> SchemaPage:
        """Records of all these databases, the oldest first; only those whose first request is older than so many s."""
        if len(names) > FILES_MAX:
            raise RequestInvalid(
                f"{len(names)} databases are too many to sort at once (at most {FILES_MAX}): name one of them"
            )
        at, start = parse_age(after)
        by_suffix = {record_suffix(one.schema): one for one in names}
        rows = self._ask(
            _OLDEST,
            suffixes=list(by_suffix),
            at=at,
            after=start,
            older=round(older_than * 1_000_000),
            limit=limit + 1,
        )
        found = [one for id, suffix, _ in rows[:limit] for one in self._found(by_suffix[suffix], [bytes(id)])]
        if scope is not None:
            found = [one for one in found if one.record.scope == scope]
        last = rows[limit - 1] if len(rows) > limit else None
        return SchemaPage(found, None if last is None else f"{last[2]}:{bytes(last[0]).hex()}")

    def load(self, names: Sequence[SchemaName], id_in: Callable[[SchemaName], bytes]) -> list[SchemaRecord]:
        """The records with these ids, one for each database at most."""
        return [found for name in names for found in self._found(name, [id_in(name)])]

    def begin_with(self, names: Sequence[SchemaName], digits: str) -> list[SchemaRecord]:
        """The records whose ids begin with these hex digits; enough of them to see that there are several."""
        start, found = scan_start_of(digits), list[SchemaRecord]()
        for name in names:
            ids = [id for id in self._ids(name, start, CANDIDATES_MAX, None) if id.hex().startswith(digits)]
            found += self._found(name, ids)
        return found

    # What upkeep asks.

    def are_in(self, url: str) -> bool:
        """Whether they are in the table of the store that a URL names."""
        with closing(open_store(url)) as store:
            return isinstance(store, PostgresStore) and store.identity == self._store.identity

    def usage(self, tenants: Iterable[str], *, records: bool) -> Iterator[tuple[str, int, int]]:
        """
        For each environment of these tenants that has databases: (scope, records, bytes).

        With `records`, those of keys are counted, too; otherwise they are in the store's own table, which counts them.
        """
        spaces = {namespace_of(one, tenant): f"{one}:{tenant}" for tenant in tenants for one in ENVIRONMENTS}
        for namespace, size in self._ask(_BYTES, namespaces=list(spaces)) if spaces else ():
            yield spaces[namespace], 0, int(size)
        if records:
            for scope, count, size in self._ask(_HELD):
                yield scope, int(count), int(size)

    def ran(self, operations: Sequence[str]) -> Mapping[str, float]:
        """Those of these operations that ran, and how many seconds ago."""
        ids = {bytes.fromhex(one.rpartition("/")[2]): one for one in operations}
        rows = self._ask(_RAN, ids=list(ids))
        return {ids[bytes(id)]: max(0.0, int(age) / 1_000_000) for id, age in rows}

    def _ids(self, name: SchemaName, after: bytes, limit: int, scope: str | None) -> list[bytes]:
        values: dict[str, Any] = {"suffix": record_suffix(name.schema), "after": after, "limit": limit}
        if scope is None:
            rows = self._ask(_IDS, **values)
        else:
            rows = self._ask(_IDS_IN_SCOPE, **values, scope=stored_scope(scope, name.schema))
        return [bytes(id) for (id,) in rows]

    def _found(self, name: SchemaName, ids: Iterable[bytes]) -> list[SchemaRecord]:
        records = [record for record in map(self._store.load, ids) if record is not None]
        if self._opened is not None:
            records = [self._opened(one) for one in records]  # What is sealed is bound to the scope as it is stored.
        end = f":{record_suffix(name.schema)}"
        return [
            SchemaRecord(name, one._replace(scope=one.scope.removesuffix(end)))
            for one in records
            if one.scope.endswith(end)
        ]

    def _ask(self, sql: str, **values: Any) -> list[Row]:
        return self._driver.look(partial(_rows, Sql(sql, values)))


def _rows(sql: Sql) -> SqlSteps[list[Row]]:
    return (yield sql)
