"""Tables and triggers under our names that somebody else has made in the service's PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from onceward import ConfigurationError
from onceward.service.planted_tables import check_tables
from servers.postgres import needed, running

pytestmark = pytest.mark.usefixtures("_postgres")
SERVICE, STRANGER = "planted_service", "planted_stranger"


@pytest.fixture(scope="module")
def _postgres() -> None:
    needed()


@pytest.fixture
def url() -> Iterator[str]:
    """A database in which the service and a stranger may both make tables."""
    server = running()
    server.execute("CREATE DATABASE planted")
    try:
        for role in (SERVICE, STRANGER):
            server.execute(f"CREATE ROLE {role} LOGIN")
            server.execute(f"GRANT CREATE ON SCHEMA public TO {role}", "planted")
        yield server.url("planted", user=SERVICE)
    finally:
        server.execute("DROP DATABASE planted WITH (FORCE)")
        for role in (SERVICE, STRANGER):
            server.execute(f"DROP ROLE IF EXISTS {role}")


def as_role(role: str, *statements: str) -> None:
    """Run statements in that database as a role."""
    with psycopg.connect(running().url("planted", user=role), autocommit=True) as connection:
        for one in statements:
            connection.execute(one)  # type: ignore[call-overload]


TRIGGERED = "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"


@pytest.mark.fault("planted-tables-are-used")
def test_a_table_of_somebody_elses_is_refused(url: str) -> None:
    """
    A table or a view, before the service has made its own.
    """
    for made, gone in (
        ("CREATE TABLE onceward_tenants (name text)", "DROP TABLE onceward_tenants"),
        ("CREATE VIEW onceward_tokens AS SELECT 1", "DROP VIEW onceward_tokens"),
    ):
        as_role(STRANGER, made)
        with pytest.raises(ConfigurationError, match=rf"onceward_\w+ is a relation of the role {STRANGER}"):
            check_tables(url)
        as_role(STRANGER, gone)
    check_tables(url)


@pytest.mark.fault("planted-triggers-are-used")
def test_a_trigger_of_somebody_elses_is_refused(url: str) -> None:
    """
    On the service's own table: whoever may make triggers on it could run code as the service.
    """
    as_role(SERVICE, "CREATE TABLE onceward_tokens (id text)", f"GRANT TRIGGER ON onceward_tokens TO {STRANGER}")
    check_tables(url)
    as_role(STRANGER, TRIGGERED, "CREATE TRIGGER g BEFORE INSERT ON onceward_tokens EXECUTE FUNCTION f()")

    with pytest.raises(ConfigurationError, match=f"has the trigger g of the role {STRANGER}"):
        check_tables(url)


def test_tables_of_a_role_that_the_service_belongs_to_are_its_own(url: str) -> None:
    """
    Also those of a superuser: a migration may have made them. A superuser's own service trusts no stranger for that.
    """
    as_role(STRANGER, "CREATE TABLE onceward_tenants (name text)")
    with pytest.raises(ConfigurationError, match="is a relation"):
        check_tables(running().url("planted"))
    running().execute(f"GRANT {STRANGER} TO {SERVICE}")
    check_tables(url)
    as_role(STRANGER, "DROP TABLE onceward_tenants")
    as_role("postgres", "CREATE TABLE onceward_tenants (name text)")
    check_tables(url)


def test_a_role_that_may_not_look_is_told_what_it_needs(url: str) -> None:
    """
    After what tenants need, somebody else's service has lost rights as well: it does not fall over.
    """
    as_role("postgres", "REVOKE EXECUTE ON FUNCTION current_schemas(boolean) FROM PUBLIC")

    with pytest.raises(ConfigurationError, match=r"may not see who owns the tables .*onceward tenant prepare"):
        check_tables(url)


def test_a_file_and_a_server_that_is_away_are_no_business_of_this() -> None:
    """
    The store itself says what is wrong with them.
    """
    check_tables("sqlite:///records.db")
    check_tables("postgresql://nobody@127.0.0.1:1/nothing")
