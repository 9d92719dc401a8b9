"""
What a server and the service's role there are like: whether tenants can be let in, and what holds them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from onceward._core.errors import ConfigurationError
from onceward.service.sql.postgres.session import PipelineStep, TenantSession
from onceward.service.sql.worker_sandbox import SandboxReport

SHARE: Final = 4
"""One tenant takes at most so small a part of the server's lock table, through one replica: a quarter."""
_PREPARE = (
    "have an administrator prepare it first (docs/how-to/sql-on-postgresql.md), and name the role of the service in "
    "the URL"
)
_QUERY: Final = b"""
SELECT role.rolsuper, role.rolcreaterole AND has_database_privilege(current_database(), 'CREATE'),
    has_function_privilege('public', 'pg_catalog.pg_sleep(double precision)', 'EXECUTE'),
    current_setting('temp_file_limit') = '-1',
    current_setting('max_locks_per_transaction')::bigint
        * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint)
FROM pg_catalog.pg_roles AS role WHERE role.rolname = current_user
"""


class ServerReport(NamedTuple):
    """What is in force on a server."""

    confined: SandboxReport
    """What holds tenants in."""
    locks: int
    """Places in its table of locks, which all sessions share."""

    def relations_max(self, sessions: int) -> int:
        """How many tables, indexes and the like one tenant may have that uses them all in so many sessions at once."""
        return max(1, self.locks // (SHARE * sessions))


UNKNOWN_SERVER: Final = ServerReport(SandboxReport([], []), 0)


async def read_server(session: TenantSession, name: str) -> ServerReport:
    """Ask a server; `ConfigurationError` if nobody's SQL should be run there."""
    [answer] = await session.execute(PipelineStep(_QUERY))
    [(is_super, is_prepared, open_functions, endless_files, locks)] = session.rows_of(answer)
    if is_super:
        raise ConfigurationError(
            f"{name}: the role of the service is a superuser, and tenants' SQL must not be one mistake away from that: "
            f"{_PREPARE}"
        )
    if not is_prepared:
        raise ConfigurationError(
            f"{name}: the role of the service may not make roles and schemas, and a tenant's database is one of each: "
            f"{_PREPARE}"
        )
    active = ["roles", "parser", "protocol", "deadlines"]
    missing = []
    if open_functions:
        missing.append("grants on functions and catalogs (a superuser's part of the preparation)")
    else:
        active.append("grants")
    if endless_files:
        missing.append("temp_file_limit (a superuser's part of the preparation)")
    return ServerReport(SandboxReport(active, missing), int(locks))
