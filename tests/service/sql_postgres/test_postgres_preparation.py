"""`onceward tenant prepare`: what it prints is run by psql, on new servers, and the engine works under its role."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hostile_probes import PROBES
from layers import Layers, Prober, probing
from tenant_support import Tenant

from onceward.cli import main
from onceward.service.sql.postgres import PostgresEngine
from servers.postgres import DEBIAN_15, PostgresServer, needed, programs, throwaway

pytestmark = pytest.mark.dose(1, of="version")

OWNER, ROLE, DATABASE = "owner", "servant", "of_tenants"
QUICK = [probe for probe in PROBES if probe.after != "bombs"]
RIGHTS = """
SELECT 'database', datacl::text FROM pg_database WHERE datname = current_database()
UNION ALL SELECT nspname, nspacl::text FROM pg_namespace
UNION ALL SELECT oid::regclass::text, relacl::text FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace
UNION ALL SELECT oid::regprocedure::text, proacl::text FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
UNION ALL SELECT lanname, lanacl::text FROM pg_language
UNION ALL SELECT rolname, concat(rolsuper, rolinherit, rolcreaterole, rolcanlogin) FROM pg_roles ORDER BY 1, 2
"""
"""Everything that the script may change."""


@pytest.fixture(scope="module", params=[18, 15])
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A server that nobody has touched."""
    needed()
    if request.param == 15 and not DEBIAN_15.is_dir():
        pytest.skip("no PG 15")
    made = throwaway(DEBIAN_15 if request.param == 15 else programs())
    made.execute(f"CREATE ROLE {OWNER} LOGIN CREATEDB CREATEROLE")
    yield made
    made.stop()


@pytest.fixture
def database(server: PostgresServer) -> Iterator[str]:
    """A new database, and no role of the service."""
    server.execute(f"CREATE DATABASE {DATABASE} OWNER {OWNER}")
    yield DATABASE
    tenants = server.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'ow\\_%'", DATABASE)
    server.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")
    for (name,) in tenants:
        server.execute(f"DROP ROLE {name}")
    server.execute(f"DROP ROLE IF EXISTS {ROLE}")


def printed(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """What the command prints."""
    assert main(["tenant", "prepare", "--database", DATABASE, "--role", ROLE, *flags]) == 0
    return capsys.readouterr().out


def typed(server: PostgresServer, script: str, database: str, folder: Path, user: str = "postgres") -> str:
    """What psql says when it runs a script; nothing, if all went well."""
    (folder / "script.sql").write_text(script)
    command = [server.bin / "psql", "-X", "-q", "-d", server.url(database, user=user), "-f", folder / "script.sql"]
    quiet = {**os.environ, "PGOPTIONS": "-c client_min_messages=warning"}
    ran = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=False, env=quiet)
    return ran.stderr


def rights(server: PostgresServer, database: str) -> list[tuple[Any, ...]]:
    """Who may do what."""
    return server.execute(RIGHTS, database)


def works(url: str) -> int:
    """Have a tenant write a row under a key, twice; how many rows there are."""

    async def run() -> int:
        async with PostgresEngine(url) as engine:
            tenant = Tenant(engine)
            await engine.create("live-acme", "shop")
            await tenant.ask("CREATE TABLE events (id text PRIMARY KEY)")
            for _ in range(2):
                await tenant.ask("INSERT INTO events VALUES ($1)", "a", key="k")
            return await tenant.count()

    return asyncio.run(run())


def probed(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The probes that get through."""
    monkeypatch.setattr("layers.ROLE", ROLE)

    async def story(prober: Prober) -> list[str]:
        through = await prober.answered(QUICK)
        assert await prober.secret() == [["the secret"]]
        return through

    found: list[str] = probing(server.url(DATABASE, user=ROLE), server.url(DATABASE), Layers(), story)
    return found


class TestWhatIsPrinted:
    """Run as it stands."""

    @pytest.mark.fault("pg-an-owner-cannot-prepare")
    @pytest.mark.parametrize("way", ["superuser", "managed"])
    def test_the_engine_works_under_its_role_and_every_probe_is_stopped(
        self,
        server: PostgresServer,
        database: str,
        way: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """
        By a superuser; or, with --managed, by an owner of the database who is none. A second run changes nothing.
        """
        script = printed(capsys, *(["--managed"] if way == "managed" else []))
        user = OWNER if way == "managed" else "postgres"
        assert typed(server, script, database, tmp_path, user) == ""
        once = rights(server, database)
        assert works(server.url(database, user=ROLE)) == 1
        assert typed(server, script, database, tmp_path, user) == ""
        assert probed(server, monkeypatch) == []
        with psycopg.connect(server.url(database, user=ROLE)) as connection:
            [flags] = connection.execute(
                "SELECT rolsuper, rolinherit, rolcreaterole, rolreplication FROM pg_roles WHERE rolname = current_user"
            ).fetchall()
        assert flags == (False, False, True, False)
        kept = set(once)
        assert [one for one in rights(server, database) if one not in kept and not str(one[0]).startswith("ow_")] == []

    @pytest.mark.fault("pg-a-database-is-prepared-by-mistake")
    def test_in_another_database_nothing_is_done(
        self, server: PostgresServer, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """
        What it revokes, other programs need. psql goes on after an error, and still nothing is done.
        """
        before = rights(server, "postgres")
        said = typed(server, printed(capsys), "postgres", tmp_path)

        assert f"this script is for the database {DATABASE}, and this is postgres" in said
        assert rights(server, "postgres") == before
        assert server.execute(f"SELECT 1 FROM pg_roles WHERE rolname = '{ROLE}'") == []

    @pytest.mark.fault("pg-a-role-may-be-a-superuser")
    def test_a_role_that_may_do_everything_is_refused(
        self, server: PostgresServer, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """
        One that inherits, or cannot log in, is mended.
        """
        server.execute(f"CREATE ROLE {ROLE} SUPERUSER")
        before = rights(server, database)
        assert "may do everything" in typed(server, printed(capsys), database, tmp_path)
        assert rights(server, database) == before
        server.execute(f"ALTER ROLE {ROLE} NOSUPERUSER INHERIT NOLOGIN")
        assert typed(server, printed(capsys), database, tmp_path) == ""
        assert works(server.url(database, user=ROLE)) == 1

    def test_names_are_checked_and_programs_get_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        """
        They are written into statements.
        """
        for name in ("", "a b", "a;b", "A", "1a", "a'b", 'a"b', "a" * 64, "a$$b"):
            assert main(["tenant", "prepare", "--database", name]) == 2
            assert main(["tenant", "prepare", "--database", "d", "--role", name or "-"]) == 2
        capsys.readouterr()
        assert main(["tenant", "prepare", "--database", "d", "--json"]) == 0
        script = json.loads(capsys.readouterr().out)["sql"]
        assert script.startswith("-- Onceward")
        assert script.endswith("COMMIT;\n")
