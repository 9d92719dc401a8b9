"""
`TenantSeal`: seals what belongs to a tenant under a key of that tenant's own.

    file of keys (master)  ---seals--->  onceward_seal_keys: a tenant's keys  ---seal--->  its results

A tenant's key is made at its first write, and kept in a table beside the records, sealed under the first key of the
file. When another key comes first in the file, each tenant gets a new key with its next write, and the older ones still
open. To throw a tenant's keys away erases everything that they sealed, also in backups that have the rows and not the
keys. So keep copies of this table apart from those of the records, and for as short as you can: on SQLite it is a file
of its own (agent.seal.db).

What belongs to no tenant is sealed under the file's own keys.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import NamedTuple

from onceward._core.errors import ConfigurationError, SealBroken, SealKeyMissing
from onceward._core.sealing import SealContext, SealedData, row_context
from onceward.gate.seal_keys import Sealed
from onceward.runtime.environment import REAL, Environment
from onceward.service.access.scopes import tenant_of
from onceward.stores.tables import Schema, Sql, SqlSteps, TablesDriver, open_tables
from onceward.stores.tables.sql_steps import declare_failpoints

SCHEMA = Schema("seal", "onceward.service.seal", 1, "`onceward serve --seal-keys FILE` makes them when it starts")
REMEMBERED_SECONDS = 0.5
"""How long a tenant's keys are used without a look at the table, and so how late it is seen that they are gone."""
REMEMBERED_MAX = 10_000

declare_failpoints({"seal.make": "a tenant's key is written", "seal.erase": "a tenant's keys are deleted"})

_KEYS = "SELECT id, master, wrapped FROM onceward_seal_keys WHERE tenant = :tenant ORDER BY created_at DESC, id"
_ADD = """INSERT INTO onceward_seal_keys (tenant, id, master, wrapped, created_at)
    VALUES (:tenant, :id, :master, :wrapped, :now)"""
_ERASE = "DELETE FROM onceward_seal_keys WHERE tenant = :tenant RETURNING id"


class _StoredKey(NamedTuple):
    id: str
    master: str
    wrapped: bytes


class _Remembered(NamedTuple):
    keys: tuple[str, ...]
    """The one that seals first."""
    seal: Sealed
    until: float


class TenantSeal:
    """Seals each tenant's values under keys of its own. Safe for threads; it asks the database, so it may block."""

    def __init__(self, master: Sealed, driver: TablesDriver, environment: Environment = REAL) -> None:
        self.master = master
        self._driver = driver
        self._environment = environment
        self._remembered: dict[str, _Remembered] = {}
        self._loading = threading.Lock()

    def seal(self, data: bytes, context: SealContext) -> SealedData:
        """Encrypt under the tenant's key; one is made if it has none."""
        tenant = tenant_of(context.scope)
        return (self.master if tenant is None else self._keys_of(tenant).seal).seal(data, context)

    def unseal(self, sealed: SealedData, context: SealContext) -> bytes:
        """Decrypt what one of the tenant's keys has sealed, or one of the file's."""
        tenant = tenant_of(context.scope)
        if tenant is None or sealed.key_id in self.master.key_ids:
            return self.master.unseal(sealed, context)
        try:
            return self._keys_of(tenant).seal.unseal(sealed, context)
        except SealKeyMissing:
            return self._keys_of(tenant, anew=True).seal.unseal(sealed, context)

    def key_id_for(self, scope: str) -> str:
        """The id of the key that values of a scope are sealed under now."""
        tenant = tenant_of(scope)
        return (self.master if tenant is None else self._keys_of(tenant).seal).key_ids[0]

    def keys_for(self, scope: str) -> tuple[str, ...]:
        """The keys for a tenant's scope, the one that seals first: for a process that seals for it only. Secrets."""
        tenant = tenant_of(scope)
        if tenant is None:
            raise ConfigurationError("only scopes of tenants have keys")
        return self._keys_of(tenant).keys

    def remembered_keys(self, scope: str) -> tuple[str, ...] | None:
        """The same, if they are at hand; None: `keys_for` has to ask the database."""
        found = self._remembered.get(tenant_of(scope) or "")
        return found.keys if found is not None and self._environment.monotonic() < found.until else None

    def close(self) -> None:
        """Let go of files and connections, and forget every key."""
        self._remembered.clear()
        self._driver.close()

    def _keys_of(self, tenant: str, *, anew: bool = False) -> _Remembered:
        found = self._remembered.get(tenant)
        if found is not None and not anew and self._environment.monotonic() < found.until:
            return found
        with self._loading:
            now = self._environment.monotonic()
            stored = self._driver.look(partial(_keys, tenant))
            if not any(one.master == self.master.key_ids[0] for one in stored):
                stored = self._driver.transact("seal.make", partial(self._make, tenant))
            keys = self._opened(tenant, stored)
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            made = _Remembered(keys, Sealed(*keys), now + REMEMBERED_SECONDS)
            self._remembered[tenant] = made
            return made

    def _make(self, tenant: str) -> SqlSteps[list[_StoredKey]]:
        """Make a key under the first key of the file, unless somebody else just has."""
        stored = yield from _keys(tenant)
        if not any(one.master == self.master.key_ids[0] for one in stored):
            key = Sealed.new_key()
            id = Sealed(key).key_ids[0]
            master, wrapped = self.master.seal(key.encode(), _context(tenant, id))
            yield Sql(_ADD, {"tenant": tenant, "id": id, "master": master, "wrapped": wrapped})
            stored = yield from _keys(tenant)
        return stored

    def _opened(self, tenant: str, stored: list[_StoredKey]) -> tuple[str, ...]:
        """The keys that open, those under the file's first key before the others."""
        first = self.master.key_ids[0]
        opened = [self._open(tenant, one) for one in sorted(stored, key=lambda one: one.master != first)]
        return tuple(key for key in opened if key is not None)

    def _open(self, tenant: str, stored: _StoredKey) -> str | None:
        try:
            return self.master.unseal(SealedData(stored.master, stored.wrapped), _context(tenant, stored.id)).decode()
        except SealKeyMissing:
            return None  # Its master key was taken out of the file. What it sealed says which key is missing.
        except Exception as error:
            raise SealBroken(
                f"key {stored.id} in onceward_seal_keys cannot be opened: it was changed, or "
                "copied from another tenant. Restore the table from a backup"
            ) from error


def open_tenant_seal(url: str, master: Sealed, *, create: bool, environment: Environment = REAL) -> TenantSeal:
    """The keys of the tenants of the store that a URL names; with `create`, their table is made if need be."""
    return TenantSeal(master, open_tables(url, SCHEMA, environment, create=create), environment)


def erase_tenant_keys(url: str, tenant: str, environment: Environment = REAL) -> int:
    """
    Throw a tenant's keys away; how many there were.

    Returns when nobody uses them from memory any more: a tenant of the same name would otherwise begin with them.
    """
    try:
        driver = open_tables(url, SCHEMA, environment, create=False)
    except ConfigurationError:
        return 0  # There is no such table: nothing was ever sealed here.
    try:
        erased = len(driver.transact("seal.erase", partial(_erase, tenant)))
        driver.wipe()
    finally:
        driver.close()
    if erased:
        environment.sleep(2 * REMEMBERED_SECONDS)
    return erased


def _keys(tenant: str) -> SqlSteps[list[_StoredKey]]:
    rows = yield Sql(_KEYS, {"tenant": tenant})
    return [_StoredKey(id, master, bytes(wrapped)) for id, master, wrapped in rows]


def _erase(tenant: str) -> SqlSteps[list[object]]:
    return list((yield Sql(_ERASE, {"tenant": tenant})))


def _context(tenant: str, id: str) -> SealContext:
    """A tenant's key is bound to its tenant: moved to another's row, it does not open."""
    return row_context(tenant, id.encode(), "key/1")
