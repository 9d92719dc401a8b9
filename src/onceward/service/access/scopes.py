"""
Names of tenants, and the scopes of their keys.

    live:acme                          environment and tenant: the default
    live:acme:token:k3v9x2m8q4ab       with scope_by="token": the token's family, which a rotation keeps
    live:acme:db:shop/orders           of one database
    operator:acme                      what operators do about a tenant (top-ups)

A tenant's name has no colon, so whose scope it is can be read off: `acme` never owns what belongs to `acme-2`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from onceward._core.errors import ConfigurationError
from onceward._core.keys import ENVIRONMENTS, check_scope

TENANT_CHARACTERS_MAX = 63
"""As long as a DNS label may be: tenants become host names, folders and metrics sooner or later."""
OPERATOR = "operator"
"""In place of an environment: no token is of it, so no tenant's key can meet an operator's."""

SCOPES_REMEMBERED = 1_024

_TENANT = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")


def check_tenant(name: str) -> str:
    """Give the name back if a tenant may have it."""
    if isinstance(name, str) and _TENANT.fullmatch(name):
        return name
    raise ConfigurationError(
        f"a tenant's name is 1 to {TENANT_CHARACTERS_MAX} of a-z, 0-9, '.', '_' and '-', beginning and ending with a "
        "letter or a digit; use an id, not personal data"
    )


def check_environment(environment: str) -> str:
    """Give the environment back if there is such a one."""
    if environment in ENVIRONMENTS:
        return environment
    raise ConfigurationError(f"an environment must be one of {', '.join(ENVIRONMENTS)}")


@lru_cache(maxsize=SCOPES_REMEMBERED)
def scope_of(environment: str, tenant: str, *, family: str | None = None, database: str | None = None) -> str:
    """The scope that a caller's keys are in."""
    scope = f"{environment}:{tenant}"
    if family is not None:
        scope += f":token:{family}"
    # The database comes last and is not cut apart again: whatever it is called, it cannot be taken for something else.
    return check_scope(scope if database is None else f"{scope}:db:{database}")


def operator_scope(tenant: str) -> str:
    """The scope of what operators do about a tenant."""
    return f"{OPERATOR}:{tenant}"


def is_of_database(scope: str) -> bool:
    """Whether it is the scope of keys in one database."""
    return ":db:" in scope


def tenant_of(scope: str) -> str | None:
    """Whose scope it is; None if it is no tenant's."""
    environment, *rest = scope.split(":", 2)
    if not rest or environment not in (*ENVIRONMENTS, OPERATOR) or not _TENANT.fullmatch(rest[0]):
        return None
    return rest[0]
