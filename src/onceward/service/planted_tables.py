"""
Refuses a PostgreSQL database in which somebody else has made tables, views or triggers under our names.

Whoever owns a table can change what is in it, and a trigger runs with the rights of whoever writes. So every relation
that the service would find by a name of ours belongs to its own role, to a role that it is a member of, to the
database's owner or to a superuser; and so does the function of every trigger on it.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError
from onceward.stores import tables_url

_TRUSTED = """
trusted AS (
    SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user OR rolsuper
    UNION SELECT datdba FROM pg_catalog.pg_database WHERE datname = current_database()
    UNION SELECT role.oid FROM pg_catalog.pg_roles AS role, pg_catalog.pg_roles AS here
    WHERE here.rolname = current_user AND NOT here.rolsuper AND pg_has_role(here.oid, role.oid, 'MEMBER')),
ours AS (
    SELECT oid, relowner FROM pg_catalog.pg_class
    WHERE relname LIKE 'onceward\\_%' AND relkind IN ('r', 'p', 'v', 'm', 'f')
    AND relnamespace::regnamespace::name = ANY (current_schemas(false)))
"""
_PLANTED = f"""
WITH {_TRUSTED}
SELECT ours.oid::regclass::text, 'is a relation', ours.relowner::regrole::text FROM ours
WHERE ours.relowner NOT IN (SELECT oid FROM trusted)
UNION ALL
SELECT ours.oid::regclass::text, 'has the trigger ' || fired.tgname, called.proowner::regrole::text
FROM ours JOIN pg_catalog.pg_trigger AS fired ON fired.tgrelid = ours.oid AND NOT fired.tgisinternal
JOIN pg_catalog.pg_proc AS called ON called.oid = fired.tgfoid
WHERE called.proowner NOT IN (SELECT oid FROM trusted)
ORDER BY 1, 2 LIMIT 1
"""  # noqa: S608 - constants


def check_tables(url: str) -> None:
    """Raise `ConfigurationError` if the database of a store has something under our names that is somebody else's."""
    beside = tables_url(url) or ""
    if urlsplit(beside).scheme.lower() not in ("postgresql", "postgres"):
        return
    import psycopg  # Here: most services keep their records in a file.

    from onceward.stores._postgres_url import parse

    target = parse(beside)
    try:
        with psycopg.connect(**target.parameters) as connection:
            found = connection.execute(_PLANTED).fetchone()
    except psycopg.OperationalError:
        return  # The store says in its own words that it cannot be reached.
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"{target.name}: the service's role may not see who owns the tables ({error.diag.message_primary}). "
            "Grant it what `onceward tenant prepare` prints"
        ) from None
    if found is not None:
        name, what, owner = found
        raise ConfigurationError(
            f"{target.name}: {name} {what} of the role {owner}, which is neither the service's own role nor the "
            "database's owner nor a superuser, so someone else could change what the service relies on. Drop "
            f"it, or give it to the service's role: ALTER TABLE {name} OWNER TO ..."
        )
