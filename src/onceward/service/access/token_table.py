"""
Tokens in the database: created, found, rotated, revoked, listed. Rules as steps over SQL.

A rotation makes a new token of the same family: same tenant, environment, role and databases, and so the same scope. A
retry that began with the old token goes on with the new one and is replayed. The old one lives on for the overlap that
is asked for, or ends at once.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import NamedTuple

from onceward._core.errors import ConfigurationError, IllegalMove, KeyInvalid
from onceward._core.keys import check_key
from onceward.service.access.issued_token import IssuedToken
from onceward.service.access.peppers import Peppers, pepper_missing_error
from onceward.stores.tables.sql_steps import Row, Sql, SqlSteps, one_or_none

DATABASES_MAX = 100
DATABASE_CHARACTERS_MAX = 128
"""Half of what a scope may have: the tenant and the token's family are in it, too."""
TOUCH_US = 3_600_000_000
"""How coarse `last used` is: an hour, so that it costs one write an hour and token."""
PURPOSE = b"token"

_IN_USE = "SELECT DISTINCT pepper FROM onceward_tokens WHERE revoked_at IS NULL"
_CREATE = """INSERT INTO onceward_tokens
    (id, family, tenant, environment, role, databases, pepper, digest, created_at, expires_at)
    SELECT :id, :family, name, :environment, :role, :databases, :pepper, :digest, :now, :now + :life
    FROM onceward_tenants WHERE name = :tenant AND erasing_at IS NULL RETURNING id"""
_FIND = """SELECT :now, t.id, t.family, t.tenant, t.environment, t.role, t.databases, t.pepper, t.digest,
    t.last_used_at, t.expires_at, t.revoked_at, n.erasing_at, n.balance IS NOT NULL
    FROM onceward_tokens AS t JOIN onceward_tenants AS n ON n.name = t.tenant WHERE t.id = :id"""
_TOUCH = """UPDATE onceward_tokens SET last_used_at = :now
    WHERE id = :id AND (last_used_at IS NULL OR last_used_at <= :now - :coarse) RETURNING id"""
_SHOWN = "id, family, tenant, environment, role, databases, created_at, last_used_at, expires_at, revoked_at, successor"
_SHOW = f"SELECT :now, {_SHOWN} FROM onceward_tokens WHERE id = :id {{lock}}"  # noqa: S608 - constants
_LIST = f"""SELECT :now, {_SHOWN} FROM onceward_tokens
    WHERE (:any = 1 OR tenant = :tenant) AND id > :after ORDER BY id LIMIT :limit"""  # noqa: S608 - constants
_SUCCEED = """UPDATE onceward_tokens SET successor = :successor,
    expires_at = CASE WHEN expires_at IS NOT NULL AND expires_at <= :now + :overlap THEN expires_at
    ELSE :now + :overlap END WHERE id = :id RETURNING id"""
_REVOKE = "UPDATE onceward_tokens SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL RETURNING id"


class Role(StrEnum):
    """What a token may do; each may do what the ones before it may."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


class TokenSpec(NamedTuple):
    """What a token is to be."""

    tenant: str
    environment: str
    role: Role
    databases: tuple[str, ...] | None
    """None: all of the tenant's."""
    life: int | None
    """Microseconds; None: until it is revoked."""


class StoredToken(NamedTuple):
    """A token's row, as authentication needs it. The digest is not for showing."""

    now: int
    id: str
    family: str
    tenant: str
    environment: str
    role: str
    databases: str | None
    pepper: str
    digest: bytes
    last_used_at: int | None
    expires_at: int | None
    revoked_at: int | None
    erasing_at: int | None
    prepaid: bool


class TokenView(NamedTuple):
    """A token, as operators see it. Instants are microseconds since 1970."""

    now: int
    id: str
    family: str
    tenant: str
    environment: str
    role: str
    databases: tuple[str, ...] | None
    created_at: int
    last_used_at: int | None
    """To the hour."""
    expires_at: int | None
    revoked_at: int | None
    successor: str | None

    @property
    def state(self) -> str:
        """active, ending (it has a successor), expired or revoked."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= self.now:
            return "expired"
        return "active" if self.successor is None else "ending"


class NewToken(NamedTuple):
    """A token that was just made: the only moment at which its secret is known."""

    issued: IssuedToken
    view: TokenView


def check_peppers(peppers: Peppers) -> SqlSteps[None]:
    """Refuse to go on where there is no pepper, or where tokens are in use whose pepper is not known."""
    missing = sorted({pepper for (pepper,) in (yield Sql(_IN_USE, {}))} - peppers.ids)
    if missing:
        raise ConfigurationError(
            f"some tokens were made with a pepper that is not known here ({', '.join(missing)}), and would "
            "all be refused: set ONCEWARD_PEPPER to the value it had when they were made (several: NEW,OLD)"
        )
    if not peppers.current:
        raise pepper_missing_error()


def create(
    spec: TokenSpec, issued: IssuedToken, peppers: Peppers, family: str | None = None
) -> SqlSteps[NewToken | None]:
    """Write a token down; None if there is no such tenant, or it is being erased."""
    yield from check_peppers(peppers)
    values = {
        "id": issued.id,
        "family": family or issued.id,
        "tenant": spec.tenant,
        "environment": spec.environment,
        "role": spec.role.value,
        "databases": None if spec.databases is None else json.dumps(spec.databases),
        "pepper": peppers.current,
        "digest": peppers.digest(PURPOSE, issued.body),
        "life": spec.life,
    }
    if not (yield Sql(_CREATE, values)):
        return None
    made = yield from show(issued.id)
    return None if made is None else NewToken(issued, made)


def find(id: str) -> SqlSteps[StoredToken | None]:
    """The row of a token."""
    row = one_or_none((yield Sql(_FIND, {"id": id})))
    return None if row is None else StoredToken(*row)


def touch(id: str) -> SqlSteps[bool]:
    """Note that a token was used, if that has not been noted for an hour."""
    return bool((yield Sql(_TOUCH, {"id": id, "coarse": TOUCH_US})))


def show(id: str) -> SqlSteps[TokenView | None]:
    """One token."""
    row = one_or_none((yield Sql(_SHOW, {"id": id})))
    return None if row is None else _view(row)


def list_tokens(tenant: str | None, after: str, limit: int) -> SqlSteps[list[TokenView]]:
    """Tokens in order of id, of one tenant or of all."""
    values = {"any": 1 if tenant is None else 0, "tenant": tenant or "", "after": after, "limit": limit}
    return [_view(row) for row in (yield Sql(_LIST, values))]


def rotate(id: str, issued: IssuedToken, peppers: Peppers, overlap: int) -> SqlSteps[NewToken | None]:
    """Make the successor of a token, which ends after the overlap (microseconds); None if there is no such token."""
    old = yield from show(id)
    if old is None:
        return None
    if old.successor is not None:
        raise IllegalMove(f"token {id} was already rotated; its successor is {old.successor}: rotate that one")
    if old.state != "active":
        raise IllegalMove(f"token {id} is {old.state}, so it cannot be rotated: make a new one")
    life = None if old.expires_at is None else old.expires_at - old.created_at
    spec = TokenSpec(old.tenant, old.environment, Role(old.role), old.databases, life)
    made = yield from create(spec, issued, peppers, old.family)
    if made is not None:
        yield Sql(_SUCCEED, {"id": id, "successor": issued.id, "overlap": overlap})
    return made


def revoke(id: str) -> SqlSteps[TokenView | None]:
    """End a token now; None if there is no such token. Again does no harm."""
    yield Sql(_REVOKE, {"id": id})
    return (yield from show(id))


def check_databases(databases: list[str] | tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Give a list of databases back if it can be one: in order, each once."""
    if databases is None:
        return None
    if not isinstance(databases, list | tuple) or not 1 <= len(databases) <= DATABASES_MAX:
        raise ConfigurationError(f"a token's databases are a list of 1 to {DATABASES_MAX} names, or None for all")
    try:
        return tuple(sorted({check_key(name, DATABASE_CHARACTERS_MAX) for name in databases}))
    except KeyInvalid:
        raise ConfigurationError(
            f"a database's name is 1 to {DATABASE_CHARACTERS_MAX} visible ASCII characters, without spaces"
        ) from None


def databases_of(text: str | None) -> tuple[str, ...] | None:
    """The databases in a row."""
    return None if text is None else tuple(json.loads(text))


def _view(row: Row) -> TokenView:
    view = TokenView(*row)
    return view._replace(databases=databases_of(view.databases))  # type: ignore[arg-type]
