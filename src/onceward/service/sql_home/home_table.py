"""
The rules: a store has one home of databases, and a home is open at one place. Steps over SQL, for both databases.

Every rule holds the home's row until its transaction ends, so those that start at once take turns and one of them wins.
A holder whose service is gone lapses; whoever comes next deletes it first and looks then, so that a late renewal either
lands before (and is seen) or finds its row gone (and has to claim again).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from onceward._core.errors import ConfigurationError
from onceward.stores.tables import Schema, Sql, SqlSteps, one_or_none
from onceward.stores.tables.sql_steps import declare_failpoints

SCHEMA = Schema("sql_home", "onceward.service.sql_home", 1, "`onceward serve` makes them when it starts")
FOLDER = "folder"
POSTGRESQL = "postgresql"
HELD_SECONDS = 30.0
"""How long a service that is not heard of is taken to be alive."""

declare_failpoints(
    {
        "sql_home.claim": "a service has said where its databases are",
        "sql_home.renew": "a service has said that it lives",
        "sql_home.release": "a service has released its databases",
        "sql_home.adopt": "an operator has said where the databases are now",
    }
)

_FIND = "SELECT kind, id, label, since FROM onceward_sql_homes WHERE one = 1"
_ADD = """INSERT INTO onceward_sql_homes (one, kind, id, label, since) VALUES (1, :kind, :id, :label, :now)
    ON CONFLICT (one) DO NOTHING"""
_REPLACE = "UPDATE onceward_sql_homes SET kind = :kind, id = :id, label = :label, since = :now WHERE one = 1"
_LABEL = "UPDATE onceward_sql_homes SET label = :label WHERE one = 1"
_LAPSE = "DELETE FROM onceward_sql_holders WHERE renewed_at <= :now - :held"
_OTHERS = """SELECT label, renewed_at + :held - :now FROM onceward_sql_holders WHERE place <> :place
    ORDER BY renewed_at DESC"""
_HOLD = """INSERT INTO onceward_sql_holders (id, place, label, renewed_at) VALUES (:id, :place, :label, :now)
    ON CONFLICT (id) DO UPDATE SET renewed_at = :now"""
_RENEW = "UPDATE onceward_sql_holders SET renewed_at = :now WHERE id = :id RETURNING id"
_RELEASE = "DELETE FROM onceward_sql_holders WHERE id = :id"
_RELEASE_ALL = "DELETE FROM onceward_sql_holders"
_NOWHERE = ""
"""No place: everybody is somewhere else."""


class SqlHome(NamedTuple):
    """Where databases are."""

    kind: str
    id: str
    label: str
    """For people: which folder on which host, or which database of which server."""
    since: int = 0
    """Since when this store has had it, in microseconds since 1970."""

    def __str__(self) -> str:
        day = f", since {datetime.fromtimestamp(self.since / 1_000_000, UTC):%Y-%m-%d}" if self.since else ""
        return f"{'the folder ' if self.kind == FOLDER else ''}{self.label} ({self.id}{day})"


class SqlHolder(NamedTuple):
    """A service that has databases open."""

    id: str
    place: str
    label: str


class SqlHomeElsewhere(ConfigurationError):
    """This store's tenants have their databases somewhere else, or the same ones are open at another place."""


def claim(home: SqlHome, holder: SqlHolder | None) -> SqlSteps[None]:
    """Databases are here, and this service opens them; `SqlHomeElsewhere`, and nothing is changed."""
    yield Sql(_ADD, {"kind": home.kind, "id": home.id, "label": home.label})
    found = yield from _locked()
    if (found.kind, found.id) != (home.kind, home.id):
        raise _elsewhere(home, found)
    if holder is not None:
        yield from _refuse_others(home, holder.place)
        yield Sql(_HOLD, holder._asdict())
    if found.label != home.label:
        yield Sql(_LABEL, {"label": home.label})


def renew(home: SqlHome, holder: SqlHolder) -> SqlSteps[None]:
    """This service lives. If it was taken for dead, it claims again, and may be refused."""
    if not (yield Sql(_RENEW, {"id": holder.id})):
        yield from claim(home, holder)


def release(holder: SqlHolder) -> SqlSteps[None]:
    """This service has closed its databases."""
    yield Sql(_RELEASE, {"id": holder.id})


def adopt(home: SqlHome, replacing: str | None) -> SqlSteps[SqlHome | None]:
    """
    From now on databases are here, and no longer where they were: at `replacing`, which has to be right.

    Returns what was replaced; None, if nothing was: there was none, or it was this one already.
    """
    yield Sql(_ADD, {"kind": home.kind, "id": home.id, "label": home.label})
    found = yield from _locked()
    if (found.kind, found.id) == (home.kind, home.id):
        return None
    if found.id != replacing:
        raise SqlHomeElsewhere(
            f"the databases of this store's tenants are in {found}. Keys that ran there are not known in {home}, and "
            f"would run again. If they are lost, or were moved here in another way: --replacing {found.id}"
        )
    yield from _refuse_others(found, _NOWHERE)
    yield Sql(_RELEASE_ALL, {})
    yield Sql(_REPLACE, {"kind": home.kind, "id": home.id, "label": home.label})
    return found


def find() -> SqlSteps[SqlHome | None]:
    """Where databases are, if that is known."""
    row = one_or_none((yield Sql(_FIND, {})))
    return None if row is None else SqlHome(*row)


def _locked() -> SqlSteps[SqlHome]:
    [row] = yield Sql(_FIND + " {lock}", {})
    return SqlHome(*row)


def _refuse_others(home: SqlHome, place: str) -> SqlSteps[None]:
    held = round(HELD_SECONDS * 1_000_000)
    yield Sql(_LAPSE, {"held": held})
    others = yield Sql(_OTHERS, {"held": held, "place": place})
    for label, left in others:
        raise SqlHomeElsewhere(
            f"{home} is in use elsewhere: {label}. Two services must not use it at the same time, also "
            "not a copy of it or from a shared disk: a key would run twice. Stop that service first; if it is already "
            f"gone, its hold lapses in {max(1, -(-int(left) // 1_000_000))} s"
        )


def _elsewhere(home: SqlHome, found: SqlHome) -> SqlHomeElsewhere:
    target = "--folder PATH" if home.kind == FOLDER else "--sql URL"
    return SqlHomeElsewhere(
        f"the databases of this store's tenants are in {found}, not in {home}: with both, one key could run twice. "
        "Several services may share a store only if they also share the databases: on one machine, start this one with "
        "that folder; on several, keep the databases on PostgreSQL (--sql postgresql://...); or run this service "
        f"without SQL (--without-sql). If the databases are lost, or were moved on purpose: onceward store "
        f"adopt {target} --replacing {found.id}"
    )
