"""
How much a tenant has in its schemas: bytes and things, asked inside the transaction that may add to them.

Two steps go around a tenant's statements: the first notes what the schema takes, the last compares and stops the
transaction before it commits. What is counted is whole files of the server's, so pages that were freed count until they
are filled again, as in a SQLite file; so do those that an undone statement left. Another request that writes to the
same database meanwhile is counted along.

What a schema has is found by its dependencies, which are indexed: the server's catalog lists everybody's tables.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, NamedTuple

from onceward.protocol.errors import SqlError, SqlKind
from onceward.service.sql.metering import QUOTA_FULL
from onceward.service.sql.postgres.session import PipelineStep
from onceward.service.sql.postgres.tenant_schemas import OPEN_NAME

MEASURED_SECONDS: Final = 1.0
"""Between two looks at the size of one database, where no quota asks for each of its writes."""
HEAVY_ROWS: Final = 100
HEAVY_SECONDS: Final = 0.05
"""A request that writes more rows, or takes longer, is looked at before it commits."""
REMEMBERED: Final = 10_000
_NEVER: Final = float("-inf")
_THINGS: Final = """pg_catalog.pg_depend AS part JOIN pg_catalog.pg_namespace AS space ON space.oid = part.refobjid
    AND part.refclassid = CAST('pg_catalog.pg_namespace' AS pg_catalog.regclass)"""
SIZE: Final = f"""(SELECT CAST(coalesce(sum(pg_catalog.pg_total_relation_size(part.objid)), 0) AS bigint)
    FROM {_THINGS}
    WHERE space.nspname = {{}} AND part.classid = CAST('pg_catalog.pg_class' AS pg_catalog.regclass))"""  # noqa: S608
"""The bytes of a schema, by an expression for its name: tables with their indexes and long values, and sequences."""
_BEFORE: Final = f"SELECT set_config('onceward.bytes', {SIZE.format('$1::text')}::text, true)".encode()
_AFTER: Final = f"""
WITH now AS MATERIALIZED (SELECT {SIZE.format("$1::text")} AS bytes),
grown AS MATERIALIZED (
    SELECT bytes, bytes - nullif(current_setting('onceward.bytes', true), '')::bigint AS more FROM now)
SELECT coalesce(more, 0), sqrt(CASE WHEN more > $2::bigint THEN -1 ELSE 1 END),
    ln(CASE WHEN bytes > $3::bigint AND coalesce(more, 1) > 0 THEN 0 ELSE 1 END) FROM grown
""".encode()  # noqa: S608
_COUNT: Final = f"""
SELECT 1 / CASE WHEN (SELECT count(*) + coalesce(sum((SELECT count(*) FROM pg_catalog.pg_index
    WHERE indrelid = part.objid AND part.classid = 'pg_catalog.pg_class'::pg_catalog.regclass)), 0)
    FROM {_THINGS} JOIN {{schema}}.onceward_databases AS theirs ON {OPEN_NAME} = space.nspname
    WHERE theirs.namespace = ANY ($1::text[])) > $2::bigint THEN 0 ELSE 1 END
"""  # noqa: S608
"""Tables, views, sequences, types and indexes of all databases of a tenant."""


class SchemaRoom(NamedTuple):
    """What a request may add."""

    things_max: int
    """Tables, indexes, sequences, views and types of the tenant."""
    namespaces: Sequence[str] = ()
    """Where the tenant's databases are: all that count together."""
    watched: bool = False
    """Whether it may make the database larger."""
    measured: bool = False
    """Whether bytes are looked at in any case; of what is watched only, if it turns out to be heavy."""
    growth: int | None = None
    """How many more bytes there may be; None: as many as the database may have."""
    database_bytes: int = 0

    def before(self, schema: str) -> list[PipelineStep]:
        """What is asked before the statements, as the service."""
        return [PipelineStep(_BEFORE, [schema.encode()], b"onceward_before")] if self.measured else []

    def after(self, schema: str, records: str, *, adds_things: bool) -> list[PipelineStep]:
        """What is asked after them, as the service again. The schema of the records is quoted where that is needed."""
        steps = []
        if adds_things:
            spaces = "{" + ",".join(f'"{one}"' for one in self.namespaces) + "}"  # Names have no quotes in them.
            steps.append(
                PipelineStep(_counting(records), [spaces.encode(), str(self.things_max).encode()], b"onceward_things")
            )
        return [*steps, self.measuring(schema)] if self.measured else steps

    def measuring(self, schema: str) -> PipelineStep:
        """Looks at the bytes, and stops the transaction if they are too many."""
        growth = None if self.growth is None else str(self.growth).encode()
        return PipelineStep(_AFTER, [schema.encode(), growth, str(self.database_bytes).encode()], b"onceward_after")

    def refusal(self, code: str) -> SqlError | None:
        """What to say where one of these steps has stopped the transaction."""
        # How the steps stop a transaction: a division by zero, the root and the logarithm of what has none.
        match code:
            case "22012":
                return SqlError(
                    SqlKind.FULL,
                    f"this tenant would have more than {self.things_max} tables, indexes, sequences, views and types "
                    "in all its databases",
                    hint="drop some; or use rows of one table instead of many tables",
                )
            case "2201F":
                return quota_full(self.growth)
            case "2201E":
                return SqlError(
                    SqlKind.FULL, "the database is full", hint="delete rows that are not needed, or drop a table"
                )
        return None


def quota_full(growth: int | None) -> SqlError:
    """A request would add more than it may."""
    return SqlError(
        SqlKind.FULL,
        f"{QUOTA_FULL}: this needs more than the {growth} bytes that are left; nothing was written",
        hint="delete rows or databases that are not needed, or ask for a higher quota",
    )


class MeasuredLately:
    """Which schemas were looked at a moment ago: without a quota, once a second is enough."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._at: OrderedDict[str, float] = OrderedDict()

    def is_due(self, schema: str) -> bool:
        """Whether to look now; whoever is told so does."""
        now = self._monotonic()
        if now - self._at.get(schema, _NEVER) < MEASURED_SECONDS:
            return False
        self._at[schema] = now
        self._at.move_to_end(schema)
        if len(self._at) > REMEMBERED:
            self._at.popitem(last=False)
        return True


@cache
def _counting(schema: str) -> bytes:
    return _COUNT.format(schema=schema).encode()
