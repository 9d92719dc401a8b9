"""
Where a tenant's database is: in the folder of a service, or on PostgreSQL; and how it is closed there.

A closed database takes nothing that writes, from whichever process: a key that is retried runs where the database has
gone, or nowhere. On SQLite the mark is in the file, and every transaction looks for it. On PostgreSQL the role that
every transaction takes gets another name: whoever still knows the old one is refused by the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from onceward._core.errors import ConfigurationError, StoreUnavailable
from onceward.protocol.errors import DatabaseUnknown
from onceward.runtime import failpoints
from onceward.runtime.environment import REAL, Environment
from onceward.service.settings import DATABASES
from onceward.service.sql.closed_databases import CLOSED_AT
from onceward.service.sql.database_files import SUFFIX, DatabaseName, check_name, file_identity, namespace_of
from onceward.service.sql.limits import DEFAULT_LIMITS
from onceward.service.sql.moving.moved_records import MovedRecord
from onceward.service.sql.moving.moved_schema import MovedSchema, MovedTable
from onceward.service.sql.moving.moved_values import MovedRow
from onceward.service.sql.moving.sqlite_source import SqliteSource
from onceward.service.sql.moving.sqlite_target import SqliteMoveTarget
from onceward.service.sql.session import connect

if TYPE_CHECKING:  # They need psycopg, and folders do not.
    from onceward.service.sql.moving.postgres_connection import MovingConnection
    from onceward.service.sql.moving.postgres_target import PostgresMoveTarget

CLOSED_MARK = failpoints.declare("sql.close.marked", "a database is closed | what was under way there is waited for")
WAIT_SECONDS: Final = 120.0
"""For transactions that began before a database was closed: longer than any statement of a tenant's may take."""
_POLL_SECONDS: Final = 0.05
_SCHEMES: Final = ("postgresql://", "postgres://")


class MoveSource(Protocol):
    """A database in one snapshot."""

    schema: MovedSchema

    @property
    def fence_floor(self) -> int:
        """The greatest fence that was ever deleted there."""

    def size(self) -> int:
        """How many rows and records there are, about: for an estimate."""

    def rows(self, table: MovedTable) -> Iterator[MovedRow]:
        """The rows of a table."""

    def records(self) -> Iterator[MovedRecord]:
        """The records of its keys."""


class DatabasePlace(NamedTuple):
    """A database of a tenant's, and where it is."""

    where: str
    """The folder of a service, or the URL of a PostgreSQL database."""
    tenant: str
    environment: str
    database: str

    @property
    def is_postgres(self) -> bool:
        """Whether it is on PostgreSQL."""
        return self.where.startswith(_SCHEMES)

    @property
    def name(self) -> DatabaseName:
        """As the engines have it."""
        return DatabaseName(namespace_of(self.environment, self.tenant), check_name(self.database, "database"))

    @property
    def path(self) -> Path:
        """Its file, whether or not it is there."""
        folder = Path(self.where).resolve()
        if not folder.is_dir():
            raise ConfigurationError(
                f"there is no folder {self.where}; name the folder of a service, or a postgresql:// URL"
            )
        return folder / DATABASES / self.name.namespace / f"{self.name.database}{SUFFIX}"

    def check(self) -> None:
        """Refuse a database that is not there."""
        if not self.is_postgres:
            self.existing_path()
            return
        with _postgres(self) as line:
            _role_of(line, self)

    def existing_path(self) -> Path:
        """Its file, which must be there."""
        if file_identity(self.path) is None:
            raise _unknown(self)
        return self.path


@contextmanager
def open_source(place: DatabasePlace) -> Iterator[tuple[MoveSource, bool]]:
    """A database to be exported, in one snapshot, and whether it is closed."""
    if not place.is_postgres:
        path = place.existing_path()
        with SqliteSource(path) as source:
            yield source, source.is_closed
        return
    from onceward.service.sql.moving.postgres_connection import told_plainly
    from onceward.service.sql.moving.postgres_source import PostgresSource
    from onceward.service.sql.postgres.tenant_schemas import CLOSED

    with _postgres(place) as line, told_plainly(line.name):
        role = _role_of(line, place)
        with PostgresSource(line, role.removeprefix(CLOSED), role) as source:
            yield source, role.startswith(CLOSED)


@contextmanager
def open_target(place: DatabasePlace) -> Iterator[SqliteMoveTarget | PostgresMoveTarget]:
    """Where a database is imported to."""
    if not place.is_postgres:
        (Path(place.where).resolve() / DATABASES).mkdir(mode=0o700, exist_ok=True)
        with closing(SqliteMoveTarget(place.path)) as target:
            yield target
        return
    from onceward.service.sql.moving.postgres_connection import told_plainly
    from onceward.service.sql.moving.postgres_target import PostgresMoveTarget

    with _postgres(place, create=True) as line, told_plainly(line.name):
        yield PostgresMoveTarget(line, place.name)


def close_database(place: DatabasePlace, environment: Environment = REAL) -> None:
    """
    Let a database take no more writes, and wait for those that were under way. Closing it again is harmless.

    On PostgreSQL it takes no reads, either.
    """
    if place.is_postgres:
        _close_postgres(place, environment)
        return
    with closing(connect(place.existing_path(), DEFAULT_LIMITS)) as line:
        line.execute("BEGIN IMMEDIATE")  # What writes now ends first.
        sql = "INSERT INTO onceward_meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
        line.execute(sql, (CLOSED_AT, environment.wall_us()))
        line.execute("COMMIT")
    failpoints.hit(CLOSED_MARK)


def reopen_database(place: DatabasePlace) -> bool:
    """Let a closed database take writes again, if it was not moved after all; whether it was closed."""
    if place.is_postgres:
        return _reopen_postgres(place)
    with closing(connect(place.existing_path(), DEFAULT_LIMITS)) as line:
        return line.execute("DELETE FROM onceward_meta WHERE name = ?", (CLOSED_AT,)).rowcount == 1


@contextmanager
def _postgres(place: DatabasePlace, *, create: bool = False) -> Iterator[MovingConnection]:
    try:
        from onceward.service.sql.moving.postgres_connection import MovingConnection
    except ImportError as error:
        raise ConfigurationError(
            "PostgreSQL needs two more packages: pip install 'onceward[postgres]' pgparse"
        ) from error
    with closing(MovingConnection(place.where, create=create)) as line:
        yield line


def _role_of(line: MovingConnection, place: DatabasePlace, more: str = "") -> str:
    """The role of a database, which is its schema's name unless it is closed."""
    from onceward.service.sql.postgres.tenant_schemas import checked_role

    found = line.ask(
        f"SELECT schema_name FROM {line.tables}.onceward_databases "  # noqa: S608 - a name of ours
        f"WHERE namespace = $1 AND database = $2{more}",
        *place.name,
    )
    if not found:
        raise _unknown(place)
    return checked_role(found[0][0])


def _close_postgres(place: DatabasePlace, environment: Environment) -> None:
    from onceward.service.sql.moving.postgres_connection import told_plainly
    from onceward.service.sql.postgres.tenant_schemas import CLOSED

    with _postgres(place) as line, told_plainly(line.name):
        with line.transaction():
            role = _role_of(line, place, " FOR UPDATE")
            if not role.startswith(CLOSED):
                _rename(line, place, role, CLOSED + role)
        failpoints.hit(CLOSED_MARK)
        [(closed_at,)] = line.ask("SELECT clock_timestamp()")
        until = environment.monotonic() + WAIT_SECONDS
        while line.ask(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND usename = session_user "
            "AND pid <> pg_backend_pid() AND xact_start < $1 LIMIT 1",
            closed_at,
        ):
            if environment.monotonic() > until:
                raise StoreUnavailable(
                    "the database is closed, and a transaction from before still runs. Nothing was exported; "
                    "run the command again when it has ended (pg_stat_activity shows it)"
                )
            environment.sleep(_POLL_SECONDS)


def _reopen_postgres(place: DatabasePlace) -> bool:
    from onceward.service.sql.moving.postgres_connection import told_plainly
    from onceward.service.sql.postgres.tenant_schemas import CLOSED

    with _postgres(place) as line, told_plainly(line.name), line.transaction():
        role = _role_of(line, place, " FOR UPDATE")
        if role.startswith(CLOSED):
            _rename(line, place, role, role.removeprefix(CLOSED))
        return role.startswith(CLOSED)


def _rename(line: MovingConnection, place: DatabasePlace, role: str, name: str) -> None:
    line.ask(f"ALTER ROLE {role} RENAME TO {name}")
    line.ask(
        f"UPDATE {line.tables}.onceward_databases SET schema_name = $3 "  # noqa: S608 - a name of ours
        "WHERE namespace = $1 AND database = $2",
        *(*place.name, name),
    )


def _unknown(place: DatabasePlace) -> DatabaseUnknown:
    return DatabaseUnknown(
        f"there is no database {place.database} of {place.tenant} in the {place.environment} environment there; check "
        "tenant, environment and name"
    )
