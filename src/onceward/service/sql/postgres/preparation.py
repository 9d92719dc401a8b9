"""
What an administrator grants and revokes before the service stores tenants' SQL in a database: one script for psql.

The first part is needed everywhere, and the owner of a managed server may run it. The second needs a superuser: it
takes from everybody what no tenant needs (languages, catalogs, functions that read more than their arguments). Where it
cannot be run, the parser's allow-list holds these alone.

The database is for the service only: what is revoked here, other programs in it may need.
"""

from __future__ import annotations

import re
from typing import Final

from onceward._core.errors import ConfigurationError
from onceward.service.sql.postgres.allowed_names import FUNCTIONS

ROLE: Final = "onceward"
TEMPORARY_FILES: Final = "256MB"
"""What all statements of one session may write to temporary files."""
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_INFORMATION = """
current_database format_type has_any_column_privilege has_column_privilege has_schema_privilege
has_sequence_privilege has_table_privilege pg_column_is_updatable pg_get_constraintdef pg_get_expr pg_get_viewdef
pg_has_role pg_is_other_temp_schema pg_my_temp_schema pg_relation_is_updatable
"""
INFORMATION_FUNCTIONS: Final = frozenset(_INFORMATION.split())
"""What the views of the information schema call as whoever reads them. The parser refuses them by themselves."""
_SECRETS = """
pg_authid pg_shadow pg_user_mapping pg_subscription pg_statistic pg_statistic_ext_data pg_largeobject pg_file_settings
pg_hba_file_rules pg_ident_file_mappings pg_config
"""
SECRET_CATALOGS: Final = frozenset(_SECRETS.split())
"""What not even the service reads."""

_EVERYWHERE: Final = """\
-- Onceward: a database for tenants' SQL. Run this in the database {database}, which has to be its own:
--   psql -d {database} -f this-file
-- It is one transaction, and running it again is safe.
-- Give the role a way to log in yourself (ALTER ROLE {role} PASSWORD ..., or a certificate).
BEGIN;
DO $$ BEGIN
    IF current_database() <> '{database}' THEN
        RAISE EXCEPTION 'this script is for the database {database}, and this is %', current_database();
    END IF;
END $$;

-- 1. The role of the service: it makes a role and a schema for each database of a tenant, and inherits nothing.
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = '{role}') THEN
        CREATE ROLE {role} LOGIN NOINHERIT CREATEROLE;
    ELSIF EXISTS (SELECT FROM pg_catalog.pg_roles
        WHERE rolname = '{role}' AND (rolsuper OR rolreplication OR rolbypassrls)) THEN
        RAISE EXCEPTION 'the role {role} may do everything, and tenants'' SQL is run by it: name another one';
    ELSIF EXISTS (SELECT FROM pg_catalog.pg_roles
        WHERE rolname = '{role}' AND (rolinherit OR NOT rolcreaterole OR NOT rolcanlogin)) THEN
        ALTER ROLE {role} LOGIN NOINHERIT CREATEROLE;
    END IF;
    -- Whoever is no superuser can make a schema only for a role that it can become.
    IF NOT pg_has_role(current_user, '{role}',
        CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
        GRANT {role} TO CURRENT_USER;
    END IF;
END $$;
REVOKE ALL ON DATABASE {database} FROM PUBLIC;
GRANT CONNECT, CREATE ON DATABASE {database} TO {role};

-- 2. Its own tables (records, tokens, names of databases) are in a schema that tenants have no rights on.
REVOKE ALL ON SCHEMA public FROM PUBLIC;
CREATE SCHEMA IF NOT EXISTS {role} AUTHORIZATION {role};
ALTER ROLE {role} IN DATABASE {database} SET search_path = {role};
"""
_SUPERUSER: Final = """\

-- 3. For a superuser. Without this part the parser alone keeps tenants from what it revokes.
ALTER ROLE {role} SET temp_file_limit = '{temporary}';
REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC;
REVOKE USAGE ON LANGUAGE sql FROM PUBLIC;
GRANT USAGE ON LANGUAGE plpgsql TO {role};

-- Functions of the server: nobody needs more than these, operators and casts; the service may call them all.
DO $$ DECLARE one record; BEGIN
    FOR one IN SELECT fn.oid::regprocedure AS name FROM pg_catalog.pg_proc AS fn
        WHERE fn.pronamespace = 'pg_catalog'::regnamespace AND fn.prokind IN ('f', 'w', 'a', 'p')
        AND NOT fn.proname = ANY ('{{{functions}}}'::text[])
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_operator WHERE oprcode = fn.oid)
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_cast WHERE castfunc = fn.oid)
    LOOP
        EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC', one.name);
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO {role}', one.name);
    END LOOP;
END $$;

-- Catalogs: tenants see their own things in the information schema.
DO $$ DECLARE one record; BEGIN
    FOR one IN SELECT kept.oid::regclass AS name, kept.relname FROM pg_catalog.pg_class AS kept
        WHERE kept.relnamespace = 'pg_catalog'::regnamespace AND kept.relkind IN ('r', 'v')
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', one.name);
        IF NOT one.relname = ANY ('{{{secrets}}}'::text[]) THEN
            EXECUTE format('GRANT SELECT ON %s TO {role}', one.name);
        END IF;
    END LOOP;
END $$;
"""


def preparation_script(database: str, *, role: str = ROLE, managed: bool = False) -> str:
    """The script for a database; `managed` leaves out what only a superuser can do."""
    for name, what in ((database, "database"), (role, "role")):
        if _NAME.fullmatch(name) is None:
            raise ConfigurationError(
                f"the name of the {what} must be small letters, digits and _, at most 63 of them, not {name[:80]!r}"
            )
    values = {
        "database": database,
        "role": role,
        "temporary": TEMPORARY_FILES,
        "functions": ",".join(sorted(FUNCTIONS | INFORMATION_FUNCTIONS)),
        "secrets": ",".join(sorted(SECRET_CATALOGS)),
    }
    return (_EVERYWHERE if managed else _EVERYWHERE + _SUPERUSER).format(**values) + "COMMIT;\n"
