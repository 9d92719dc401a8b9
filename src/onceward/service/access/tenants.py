"""
Tenants: who they are, what they may hold. Rules as steps over SQL.
"""

from __future__ import annotations

from typing import NamedTuple

from onceward._core.errors import ConfigurationError, IllegalMove
from onceward.stores.tables.sql_steps import Row, Sql, SqlSteps, one_or_none

QUOTA_MAX = 2**53
"""Whole numbers up to here are the same in every language that reads our JSON."""

_COLUMNS = """name, created_at, balance, quota_records, quota_bytes, quota_databases, used_records, used_bytes,
    erasing_at,
    (SELECT value FROM onceward_access WHERE name = 'counted_since'),
    (SELECT coalesce(sum(amount), 0) FROM onceward_reservations WHERE tenant = n.name AND state = 'open'),
    (SELECT count(*) FROM onceward_tokens WHERE tenant = n.name AND revoked_at IS NULL)"""
_CREATE = """INSERT INTO onceward_tenants (name, created_at, balance, quota_records, quota_bytes, quota_databases)
    VALUES (:name, :now, :balance, :records, :bytes, :databases) ON CONFLICT (name) DO NOTHING RETURNING name"""
_SHOW = f"SELECT {_COLUMNS} FROM onceward_tenants AS n WHERE name = :name"  # noqa: S608 - constants
_LIST = f"SELECT {_COLUMNS} FROM onceward_tenants AS n WHERE name > :after ORDER BY name LIMIT :limit"  # noqa: S608
_QUOTA = """UPDATE onceward_tenants
    SET quota_records = :records, quota_bytes = :bytes, quota_databases = :databases
    WHERE name = :name AND erasing_at IS NULL RETURNING name"""


class Quota(NamedTuple):
    """What a tenant may hold at most; None: no limit."""

    records: int | None = None
    bytes: int | None = None
    databases: int | None = None


class Tenant(NamedTuple):
    """A tenant, as operators see it. Instants are microseconds since 1970, money is micro-units."""

    name: str
    created_at: int
    balance: int | None
    """None: it does not pay in advance. What is reserved has been taken off."""
    quota_records: int | None
    quota_bytes: int | None
    quota_databases: int | None
    """How many databases it may have; None: as many as the service lets everybody have."""
    used_records: int
    used_bytes: int
    erasing_at: int | None
    """When an erasure began that has not come to its end."""
    counted_at: int | None
    """When `used_records` and `used_bytes` were counted."""
    reserved: int
    tokens: int
    """Not revoked."""


def create(name: str, *, prepaid: bool, quota: Quota) -> SqlSteps[bool]:
    """Make a tenant; whether it is new."""
    values = {"name": name, "balance": 0 if prepaid else None, **quota._asdict()}
    if (yield Sql(_CREATE, values)):
        return True
    found = yield from show(name)
    if found is not None and found.erasing_at is not None:
        raise IllegalMove("this tenant is being erased; run `onceward tenant erase` again to finish that")
    return False


def show(name: str) -> SqlSteps[Tenant | None]:
    """One tenant."""
    row = one_or_none((yield Sql(_SHOW, {"name": name})))
    return None if row is None else _tenant(row)


def list_tenants(after: str, limit: int) -> SqlSteps[list[Tenant]]:
    """Tenants in order of name."""
    return [_tenant(row) for row in (yield Sql(_LIST, {"after": after, "limit": limit}))]


def set_quota(name: str, quota: Quota) -> SqlSteps[bool]:
    """Set what a tenant may hold (None: as much as it likes); whether there is such a tenant."""
    return bool((yield Sql(_QUOTA, {"name": name, **quota._asdict()})))


def check_quotas(quota: Quota) -> Quota:
    """Give quotas back if they can be some."""
    for what, value in quota._asdict().items():
        check_quota(value, what)
    return quota


def check_quota(value: int | None, what: str) -> int | None:
    """Give a quota back if it can be one."""
    if value is None or (type(value) is int and 0 <= value <= QUOTA_MAX):
        return value
    raise ConfigurationError(f"a quota of {what} must be a whole number from 0 to {QUOTA_MAX}, or None for no limit")


def _tenant(row: Row) -> Tenant:
    found = Tenant(*row)
    # PostgreSQL adds up to a decimal, also where nothing but whole numbers is added.
    return found._replace(reserved=int(found.reserved), counted_at=found.counted_at or None)
