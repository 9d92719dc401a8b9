"""
Upkeep of a PostgreSQL store: make it ready, check it, migrate its schema.

Looking is done on a plain connection that creates nothing. Making and moving is left to the store itself, which does it
under a lock of its own when it is first used: however many do that at once, one makes the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

import psycopg

from onceward._core.errors import ConfigurationError, StoreUnavailable
from onceward._core.record import Record
from onceward.runtime import failpoints
from onceward.runtime.environment import REAL
from onceward.stores import _postgres_flow as flows
from onceward.stores._postgres_errors import DRIVER_ERRORS, is_locked, translate_connect_error, translate_error
from onceward.stores._postgres_functions import check_functions
from onceward.stores._postgres_indexes import (
    LOCK_SECONDS,
    PAUSE_SECONDS,
    TRIES,
    alone,
    index_plan,
    index_sql,
    index_steps,
)
from onceward.stores._postgres_rows import COLUMNS, MIGRATION_LOCK, US, record_of
from onceward.stores._postgres_url import PostgresTarget, parse
from onceward.stores._postgres_wire import DEFAULT_CONVERSION, connect_arguments
from onceward.stores._upkeep import SchemaMigration, StoreCheck, clock_detail
from onceward.stores.postgres import PostgresStore

BEFORE_INDEX = failpoints.declare("postgres.index.before", "an index is to be made or dropped | it is")

Connection = psycopg.Connection[tuple[Any, ...]]

SERVER_LEAST = 150_000
"""The oldest server that the tests run on: PostgreSQL 15."""
PAGE = 5_000
"""Records in one page of a count. Without their results, each is a few hundred bytes."""

RIGHTS = {"onceward_records": ("SELECT", "INSERT", "UPDATE", "DELETE"), "onceward_meta": ("SELECT", "UPDATE")}
INDEXES = frozenset(("onceward_records_pkey", "onceward_family", *index_plan().made))

_INDEXES = """SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE indrelid = to_regclass('onceward_records') AND indisvalid"""
_COLUMNS = """SELECT attname FROM pg_attribute
    WHERE attrelid = to_regclass('onceward_records') AND attnum > 0 AND NOT attisdropped"""
_SIZE = """SELECT pg_size_pretty(sum(pg_total_relation_size(oid))), count(*) FILTER (WHERE relispartition) FROM pg_class
    WHERE oid = to_regclass('onceward_records')
    OR oid IN (SELECT relid FROM pg_partition_tree(to_regclass('onceward_records')) WHERE isleaf)"""
_TABLE = """SELECT relpersistence = 'p', row_security_active(oid) FROM pg_class
    WHERE oid = to_regclass('onceward_records')"""
_REPLICAS = "SELECT count(*) FROM pg_stat_replication"
_CLOCK = f"SELECT {US.format('clock_timestamp()')}"

_SHOWN = ", ".join("NULL" if column in ("result", "error") else column for column in COLUMNS)
_PAGE = f"""{_CLOCK}, {_SHOWN}
    FROM onceward_records WHERE id > %s ORDER BY id LIMIT {PAGE}"""

_GRANTS = "\n".join(
    f"--   GRANT {', '.join(rights)} ON {table} TO the_role_that_gates_connect_as;" for table, rights in RIGHTS.items()
)


def init(url: str) -> str:
    """Make the tables if they are not there; where."""
    target = parse(url)
    _open(url)
    return target.name


def is_there(url: str) -> bool:
    """Whether the tables are there."""
    with inspecting(url) as look:
        return look.version() > 0


def planned(url: str) -> SchemaMigration:
    """What `migrate` would do."""
    with inspecting(url) as look:
        before = look.version()
        steps = index_steps(look) if before == flows.LATEST else []
    names = tuple(f"postgres_{number:04}" for number, _ in flows.migrations() if number > before)
    return SchemaMigration(before, flows.LATEST, names + tuple(step.sql for step in steps), begun=bool(steps))


def migrate(url: str) -> tuple[int, int]:
    """Bring the schema up to date; its versions before and after."""
    before = planned(url).before
    _open(url)
    if planned(url).scripts:
        _make_indexes(url)
    return before, planned(url).before


def schema_sql(after: int) -> str:
    """The statements of all migrations later than a version, and what is done beside the writers afterwards."""
    parts = [_in_one_transaction(after)] if after < flows.LATEST else []
    if after:
        parts.append(f"-- Where the table is large: not in a transaction. Otherwise nothing happens.\n{index_sql()}")
        parts.append(
            "-- Partitioned: onceward store migrate. Functions in SQL: onceward store install-functions --sql."
        )
    return "\n\n".join((*parts, f"-- A role that owns none of this needs:\n{_GRANTS}"))


def partitioned_sql(url: str) -> str:
    """The statements that make the tables, with the records divided as the URL says."""
    return f"{_in_one_transaction(0, parse(url).partitions)}\n\n-- A role that owns none of this needs:\n{_GRANTS}"


def _in_one_transaction(after: int, partitions: int = 0) -> str:
    scripts = [text.decode().strip() for number, text in flows.migrations(partitions) if number > after]
    lock = f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK});"
    return "\n\n".join(("BEGIN;", f"-- One at a time.\n{lock}", *scripts, "COMMIT;"))


def _make_indexes(url: str) -> None:
    """One statement after the other, beside the writers; what is left to do is looked up before each."""
    with inspecting(url) as look, inspecting(url) as held, alone(held.connection.execute):
        if look.target.direct:
            look.rows("SELECT set_config('statement_timeout', '0', false)")
        while steps := index_steps(look):
            step = steps[0]
            for left in reversed(range(TRIES if step.blocks else 1)):
                failpoints.hit(BEFORE_INDEX)
                try:
                    with look.connection.transaction() if step.blocks else nullcontext():
                        if step.blocks:
                            look.rows(f"SELECT set_config('lock_timeout', '{LOCK_SECONDS}s', true)")
                        look.run(step.sql)
                    break
                except StoreUnavailable as error:
                    if not left or not is_locked(error.__cause__):
                        raise
                REAL.sleep(PAUSE_SECONDS)


def check(url: str) -> list[StoreCheck]:
    """Look the server, the tables and the role over. Nothing is changed."""
    with inspecting(url) as look:
        version = look.version()
        return [
            *_server(look),
            *_durability(look),
            _clock(look),
            StoreCheck("schema", version == flows.LATEST, f"version {version}" if version else "no Onceward tables"),
            *(_tables(look) if version else ()),
            *(check_functions(look) if version else ()),
        ]


def held(url: str) -> Iterator[Record]:
    """Every record, without its result."""
    with inspecting(url) as look:
        after = b""
        while page := look.rows(_PAGE, after):
            yield from (record_of(row[0], row[1:]) for row in page)
            after = page[-1][1]


class Inspection(NamedTuple):
    """A connection to look with."""

    target: PostgresTarget
    connection: Connection

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        try:
            return self.connection.execute(sql.encode(), parameters or None, binary=True).fetchall()
        except DRIVER_ERRORS as error:
            raise translate_error(error, self.target.name) from None

    def run(self, sql: str) -> None:
        """Run a statement that has no rows."""
        try:
            self.connection.execute(sql.encode())
        except DRIVER_ERRORS as error:
            raise translate_error(error, self.target.name) from error

    def value(self, sql: str, *parameters: Any) -> Any:
        """The one value of a statement."""
        [(value,)] = self.rows(sql, *parameters)
        return value

    def setting(self, name: str) -> str:
        """A setting of the server's."""
        return str(self.value("SELECT current_setting(%s)", name))

    def version(self) -> int:
        """The schema's version; 0: there are no tables. Refuses a later one."""
        if not self.value(flows.HAS_META.decode()):
            return 0
        return flows.checked_version(self.target.name, self.rows(flows.VERSION.decode()))


def _open(url: str) -> None:
    store = PostgresStore.from_url(url)
    try:
        store.load(bytes(32))  # The tables are made before the first statement.
    except StoreUnavailable as error:
        if "permission denied" in str(error.__cause__):
            raise StoreUnavailable(
                f"{error}. Or let the owner of the database run what `onceward store init --sql` prints"
            ) from None
        raise
    finally:
        store.close()


@contextmanager
def inspecting(url: str) -> Iterator[Inspection]:
    """A connection that creates nothing, for the length of a `with` block."""
    target = parse(url)
    connection = _connected(target)
    try:
        yield Inspection(target, connection)
    finally:
        connection.close()


def _connected(target: PostgresTarget) -> Connection:
    """A connection to the writer; if there is none, to whoever is there: the findings will say that it is read-only."""
    options = connect_arguments(target, DEFAULT_CONVERSION)
    try:
        return psycopg.connect(**options)
    except DRIVER_ERRORS as error:
        failure = translate_connect_error(error, target.name, ever_connected=False)
    if not isinstance(failure, ConfigurationError):
        with suppress(*DRIVER_ERRORS):
            return psycopg.connect(**{**options, "target_session_attrs": "any"})
    raise failure


def _server(look: Inspection) -> Iterator[StoreCheck]:
    number = int(look.setting("server_version_num"))
    yield StoreCheck(
        "server", number >= SERVER_LEAST, f"PostgreSQL {look.setting('server_version')}, tested from 15 on"
    )
    encoding = look.setting("server_encoding")
    yield StoreCheck("encoding", encoding == "UTF8", encoding)
    standby = look.value("SELECT pg_is_in_recovery()")
    read_only = look.setting("transaction_read_only") == "on"
    detail = "a standby" if standby else "read-only" if read_only else "takes writes"
    yield StoreCheck("writer", not (standby or read_only), detail)


def _durability(look: Inspection) -> Iterator[StoreCheck]:
    for name, cost in (
        ("fsync", "a crash of the machine can lose or damage what was acknowledged"),
        ("full_page_writes", "a crash of the machine can damage pages"),
    ):
        value = look.setting(name)
        yield StoreCheck(name, value == "on", value if value == "on" else f"{value}: {cost}")
    default = look.setting("synchronous_commit")
    ours = "on for Onceward's writes" if default in ("off", "local") else "also for Onceward's writes"
    relaxed = ", but not for settles that ask for less" if look.target.may_relax else ""
    yield StoreCheck("synchronous_commit", True, f"{default} by default, {ours}{relaxed}")
    standbys, replicas = look.setting("synchronous_standby_names"), look.value(_REPLICAS)
    safe = f"synchronous standbys: {standbys}"
    unsafe = f"{replicas} replicas, none synchronous: a failover can lose what was acknowledged"
    yield StoreCheck("failover", True, safe if standbys else unsafe if replicas else "no replicas")


def _clock(look: Inspection) -> StoreCheck:
    before = REAL.wall_us()
    theirs = look.value(_CLOCK)
    ahead = (theirs - (before + REAL.wall_us()) / 2) / 1_000_000
    return StoreCheck("clock", True, clock_detail(ahead))


def _tables(look: Inspection) -> Iterator[StoreCheck]:
    missing = [column for column in COLUMNS if column not in {row[0] for row in look.rows(_COLUMNS)}]
    yield StoreCheck("columns", not missing, f"missing: {', '.join(missing)}" if missing else "as expected")
    absent = sorted(INDEXES - {row[0] for row in look.rows(_INDEXES)})
    yield StoreCheck(
        "indexes",
        not absent,
        f"missing or invalid: {', '.join(absent)}; run onceward store migrate" if absent else "as expected",
    )
    [(logged, hidden)] = look.rows(_TABLE)
    yield StoreCheck("logged", logged, "yes" if logged else "UNLOGGED: a crash of the server empties the table")
    yield StoreCheck("row security", not hidden, "hides rows from this role" if hidden else "none for this role")
    lacking = [
        f"{right} on {table}"
        for table, rights in RIGHTS.items()
        for right in rights
        if not look.value("SELECT has_table_privilege(to_regclass(%s), %s)", table, right)
    ]
    yield StoreCheck("rights", not lacking, f"missing: {', '.join(lacking)}" if lacking else "as expected")
    [(size, parts)] = look.rows(_SIZE)
    yield StoreCheck("size", True, f"{size} in {parts} partitions" if parts else size)
