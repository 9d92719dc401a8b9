"""
Erasing a tenant: its records of every scope, its dead letters (they are records, too), its tokens and its money; and
what it has elsewhere (`besides`: databases of the SQL service), which only whoever asks for the erasure can know.

In small batches, so that nobody else waits; each batch is a transaction, so a kill at any moment leaves something that
the same command brings to its end. First the tokens end, so that nothing new comes; last the tenant itself goes, and
a tombstone stays: a keyed digest of the name, and when. Before any record goes, a mark is left for as long as one can
be held (`onceward._core.erasure_marks`): whoever is running an operation of the tenant cannot put its record back. A
record belongs to a tenant if `tenant_of` its scope says so: another tenant whose name begins alike is never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import NamedTuple

from onceward._core.erasure_marks import mark_prefix
from onceward._core.keys import ENVIRONMENTS
from onceward.gate.store_runner import run_on_store
from onceward.runtime.environment import Environment
from onceward.service.access.access_database import AccessDatabase
from onceward.service.access.peppers import Peppers, pepper_missing_error
from onceward.service.access.scopes import OPERATOR, tenant_of
from onceward.service.access.stored_records import PAGE, StoredRecords
from onceward.service.access.token_verifier import REMEMBERED_SECONDS
from onceward.stores import open_store
from onceward.stores.tables.sql_steps import Sql, SqlSteps, one_or_none

PASSES_MAX = 3
"""
Calls that were under way may have made records behind us: a pass that finds nothing is the last. Not for ever, though:
whoever writes without a token goes on writing.
"""
PURPOSE = b"tenant"

_BEGIN = "UPDATE onceward_tenants SET erasing_at = :now WHERE name = :tenant AND erasing_at IS NULL RETURNING name"
_REVOKE = "UPDATE onceward_tokens SET revoked_at = :now WHERE tenant = :tenant AND revoked_at IS NULL"
_THERE = "SELECT name FROM onceward_tenants WHERE name = :tenant"
_TOMBSTONE = """INSERT INTO onceward_erasures (digest, pepper, started_at) VALUES (:digest, :pepper, :now)
    ON CONFLICT (digest) DO UPDATE SET started_at = excluded.started_at, finished_at = NULL"""
_FIND = "SELECT started_at, finished_at FROM onceward_erasures WHERE digest = :digest"
_BELONGINGS = (
    """DELETE FROM onceward_tokens WHERE id IN (
        SELECT id FROM onceward_tokens WHERE tenant = :tenant LIMIT :limit) RETURNING id""",
    """DELETE FROM onceward_reservations WHERE id IN (
        SELECT id FROM onceward_reservations WHERE tenant = :tenant LIMIT :limit) RETURNING id""",
    """DELETE FROM onceward_topups WHERE tenant = :tenant AND reference IN (
        SELECT reference FROM onceward_topups WHERE tenant = :tenant LIMIT :limit) RETURNING reference""",
)
_GONE = "DELETE FROM onceward_tenants WHERE name = :tenant"
_FINISH = "UPDATE onceward_erasures SET finished_at = :now WHERE digest = :digest"


class ErasureProgress(NamedTuple):
    """How far an erasure is."""

    looked_at: int
    """Records of anybody that were looked at."""
    records: int
    """Records of the tenant that were erased, dead letters among them."""
    others: int = 0
    """Tokens, reservations and top-ups that were erased."""
    besides: int = 0
    """What else was erased: databases."""


def no_other_data() -> Iterable[object]:
    """A tenant who has nothing elsewhere."""
    return ()


class TenantTombstone(NamedTuple):
    """What is left of an erased tenant. Instants are microseconds since 1970."""

    started_at: int
    finished_at: int | None


def erase_tenant(
    database: AccessDatabase,
    environment: Environment,
    tenant: str,
    besides: Callable[[], Iterable[object]] = no_other_data,
) -> Iterator[ErasureProgress]:
    """
    Erase a tenant, telling after every batch how far it is. Nothing, if there never was one of that name.

    `besides` erases what the tenant has elsewhere, one thing for each turn, and is asked until it finds nothing.
    """
    driver, records, peppers, url = database
    if not peppers.current:
        raise pepper_missing_error()
    if not driver.transact("access.erase", partial(_begin, tenant, peppers)):
        return
    # Whoever believed one of its tokens a moment ago has forgotten that after this.
    environment.sleep(2 * REMEMBERED_SECONDS)
    done = ErasureProgress(0, 0)
    for _ in range(PASSES_MAX):
        before = done.records, done.besides
        mark_erased(url, tenant, environment)
        done = yield from erase_records(records, tenant, done)
        for _ in besides():
            done = done._replace(besides=done.besides + 1)
            yield done
        if (done.records, done.besides) == before:
            break
    for statement in _BELONGINGS:
        while count := driver.transact("access.erase", partial(_some, statement, tenant)):
            done = done._replace(others=done.others + count)
            yield done
    driver.transact("access.erase", partial(_finish, tenant, peppers))
    records.wipe()
    driver.wipe()
    yield done


def mark_erased(url: str, tenant: str, environment: Environment) -> None:
    """Leave word in the store that the records of a tenant are erased, so that nobody who holds one puts it back."""
    with closing(open_store(url, environment=environment)) as store:
        for whose in (*ENVIRONMENTS, OPERATOR):
            run_on_store(store, mark_prefix(f"{whose}:{tenant}"), environment=environment)


def erase_records(
    records: StoredRecords, tenant: str, done: ErasureProgress
) -> Generator[ErasureProgress, None, ErasureProgress]:
    """Once through all records, in order of id."""
    after = b""
    while page := records.page(after):
        after = page[-1][0]
        theirs = [id for id, scope in page if tenant_of(scope) == tenant]
        erased = records.erase(theirs) if theirs else 0
        done = done._replace(looked_at=done.looked_at + len(page), records=done.records + erased)
        yield done
    return done


def find_tombstone(peppers: Peppers, tenant: str) -> SqlSteps[TenantTombstone | None]:
    """When a tenant of this name was erased; None if there is no word of it."""
    for pepper in sorted(peppers.ids):
        row = one_or_none((yield Sql(_FIND, {"digest": peppers.digest(PURPOSE, tenant.encode(), pepper)})))
        if row is not None:
            return TenantTombstone(*row)
    return None


def _begin(tenant: str, peppers: Peppers) -> SqlSteps[bool]:
    """Whether there is, or was, such a tenant."""
    begun = yield Sql(_BEGIN, {"tenant": tenant})
    yield Sql(_REVOKE, {"tenant": tenant})
    if begun:
        digest = peppers.digest(PURPOSE, tenant.encode())
        yield Sql(_TOMBSTONE, {"digest": digest, "pepper": peppers.current})
        return True
    return bool((yield Sql(_THERE, {"tenant": tenant}))) or (yield from find_tombstone(peppers, tenant)) is not None


def _some(statement: str, tenant: str) -> SqlSteps[int]:
    return len((yield Sql(statement, {"tenant": tenant, "limit": PAGE})))


def _finish(tenant: str, peppers: Peppers) -> SqlSteps[None]:
    yield Sql(_GONE, {"tenant": tenant})
    for pepper in sorted(peppers.ids):
        yield Sql(_FINISH, {"digest": peppers.digest(PURPOSE, tenant.encode(), pepper)})
