"""`onceward store install-functions`: in one transaction, again without harm, and out again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import psycopg
import pytest
from functions_support import FINGERPRINT, SCOPE, charge, claim, make_tables, rows, settle

from onceward.cli import main
from onceward.runtime.environment import REAL
from onceward.stores import _postgres_function_installer as installer
from onceward.stores import _postgres_functions as functions
from onceward.stores._postgres_flow import LATEST
from onceward.stores._postgres_functions import FUNCTIONS_VERSION
from servers.postgres import PostgresServer, needed

needed()

OURS = """SELECT (SELECT count(*) FROM pg_proc WHERE proname LIKE 'onceward\\_%'),
    (SELECT count(*) FROM pg_trigger WHERE tgname = 'settled_before_commit'),
    (SELECT count(*) FROM pg_class WHERE relname = 'onceward_records_readable')"""
NONE, ALL = [(0, 0, 0)], [(13, 1, 1)]
PUBLIC_TABLES = "SELECT count(*) FROM onceward_records"


class Ran(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]
CLAIM = "onceward_claim(text, text, bytea, text)"
LATER = "FUNCTION onceward_functions_version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 7'"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Type the command, or another one of its group, in this process."""

    def run(url: str, *typed: str, command: str = "install-functions") -> Ran:
        capsys.readouterr()
        code = main(["store", command, *typed, "--store", url])
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def bare(server: PostgresServer) -> Iterator[str]:
    """A database with the tables, and without the functions."""
    name = f"bare_{REAL.random(4).hex()}"
    server.execute(f"CREATE DATABASE {name}")
    make_tables(server.url(name))
    yield server.url(name)
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def caller(server: PostgresServer, bare: str) -> Iterator[str]:
    """The URL of a role that may connect, and was given nothing else."""
    database = bare.rpartition("/")[2]
    with server.role("caller", database=database):
        yield server.url(database, user="caller")


def checked(run: Run, url: str) -> dict[str, Any] | None:
    """What `onceward store check` finds of the functions."""
    found = run(url, "--json", command="check").document["checks"]
    return next((one for one in found if one["name"] == "functions"), None)


@pytest.mark.fault("functions-grants-are-lost")
def test_installing_again_does_no_harm_and_keeps_what_was_granted(run: Run, bare: str, caller: str) -> None:
    """
    The second time everything is there: records, rights, and the functions as expected.
    """
    before = checked(run, bare)
    first = run(bare, "--json")
    rows(bare, "GRANT EXECUTE ON FUNCTION onceward_claim, onceward_settle TO caller")
    with psycopg.connect(caller) as connection:
        settle(connection, claim(connection, "k"))
        connection.commit()
        second = run(bare, "--json")
        assert rows(bare, f"SELECT has_function_privilege('caller', '{CLAIM}', 'EXECUTE')") == [(True,)]
        again = claim(connection, "k")

    assert before is None
    assert (first.code, first.document) == (0, {"schema": "public", "before": 0, "after": FUNCTIONS_VERSION})
    assert (second.code, second.document) == (
        0,
        {"schema": "public", "before": FUNCTIONS_VERSION, "after": FUNCTIONS_VERSION},
    )
    assert (again.verdict, again.value) == ("replay", {"status": "created"})
    assert rows(bare, OURS) == ALL
    assert checked(run, bare) == {"name": "functions", "ok": True, "detail": f"version {FUNCTIONS_VERSION}"}


def test_what_is_printed_changes_nothing_and_is_what_an_administrator_runs(run: Run, bare: str) -> None:
    """
    `--sql` for making them and for taking them out: plain statements in one transaction.
    """
    printed = run(bare, "--sql")
    untouched = rows(bare, OURS)
    rows(bare, printed.out)
    made = rows(bare, OURS)
    removal = run(bare, "--sql", "--remove", "--json")
    rows(bare, removal.document["sql"])

    assert (printed.code, untouched, made, rows(bare, OURS)) == (0, NONE, ALL, NONE)
    assert printed.out.startswith("BEGIN;\n")
    assert printed.out.rstrip().endswith("COMMIT;")


def test_every_name_in_the_script_has_its_schema() -> None:
    """
    A function that runs with its owner's rights finds nothing by a path that others can write.
    """
    for script in (functions.install_script, functions.removal_script):
        text = script(functions.TablesPlace('"odd place"', "owner"))
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
        loose = [line for line in lines for part in line.split("onceward_")[:-1] if part[-1:] not in (".", "'")]
        assert loose == []
        code = "\n".join(lines)
        assert code.count("SECURITY DEFINER") == code.count("SECURITY DEFINER SET search_path = pg_catalog, pg_temp")


@pytest.mark.parametrize("granted", [False, True])
def test_nobody_may_claim_until_somebody_says_so_and_then_without_the_tables(
    run: Run, bare: str, caller: str, granted: bool
) -> None:
    """
    EXECUTE is given by name, and is all that is needed: neither the records nor the view can be read or written.
    """
    run(bare)
    rows(bare, "CREATE TABLE charges (key text, who text); GRANT INSERT ON charges TO caller")
    if granted:
        rows(bare, "GRANT EXECUTE ON FUNCTION onceward_claim, onceward_settle TO caller")
    with psycopg.connect(caller) as connection:
        if not granted:
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="onceward_claim"):
                claim(connection, "k")
            return
        answer = charge(connection, "k")
        connection.commit()
        for forbidden in (
            "SELECT * FROM onceward_records",
            "SELECT * FROM onceward_records_readable",
            "DELETE FROM onceward_records",
            "SELECT onceward_put_settled('', '', '', '1 day', '1 day')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(forbidden.encode())
            connection.rollback()

    assert answer == "SQL"


@pytest.mark.fault("functions-open-search-path")
def test_a_callers_search_path_cannot_put_its_own_things_in_their_place(run: Run, bare: str, caller: str) -> None:
    """
    Tables and functions of the caller's, found first by its own path: the records go where they belong all the same.
    """
    run(bare)
    rows(
        bare,
        "GRANT EXECUTE ON FUNCTION onceward_claim, onceward_settle TO caller; GRANT TEMP ON DATABASE "
        f"{bare.rpartition('/')[2]} TO caller; CREATE SCHEMA trap AUTHORIZATION caller",
    )
    with psycopg.connect(caller) as connection:
        connection.execute("CREATE TEMP TABLE onceward_records (id bytea PRIMARY KEY)")
        connection.execute("CREATE TEMP TABLE onceward_meta (name text, value bigint)")
        connection.execute(
            "CREATE FUNCTION trap.sha256(bytea) RETURNS bytea LANGUAGE sql AS $$SELECT 'trapped'::bytea$$"
        )
        connection.execute("SET search_path = trap, pg_temp, pg_catalog, public")
        trapped = None
        try:
            settle(connection, claim(connection, "k"))
            connection.commit()
        except psycopg.Error as error:
            trapped = error

    assert trapped is None
    assert rows(bare, "SELECT scope, state, octet_length(id) FROM onceward_records") == [(SCOPE, "settled", 32)]


@pytest.mark.fault("functions-mismatch-unseen")
def test_functions_of_another_version_are_told_and_replaced_and_never_put_back(run: Run, bare: str) -> None:
    """
    Older ones, and ones that somebody changed, are found by `store check` and made anew; later ones are left alone.
    """
    run(bare)
    found: dict[str, Any] = {}
    rows(bare, "ALTER FUNCTION onceward_prefixed(text) RENAME TO onceward_was_prefixed")
    found["changed"] = checked(run, bare)
    mended = run(bare)
    found["mended"] = checked(run, bare)
    rows(bare, f"CREATE OR REPLACE {LATER}")
    found["later"] = checked(run, bare)
    later = [run(bare), run(bare, "--remove"), run(bare, "--sql")]

    assert found["changed"]["ok"] is False
    assert "missing or changed: onceward_prefixed; run onceward store install-functions" in found["changed"]["detail"]
    assert (mended.code, found["mended"]["ok"]) == (0, True)
    assert found["later"] == {
        "name": "functions",
        "ok": False,
        "detail": f"version 7, this Onceward knows {FUNCTIONS_VERSION}: upgrade it",
    }
    assert [one.code for one in later] == [4, 4, 4]
    assert all("upgrade it" in one.err for one in later)
    assert rows(bare, "SELECT onceward_functions_version()") == [(7,)]


def test_older_functions_are_mentioned_and_brought_forward(
    run: Run, bare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A package that brings the next version finds this one.
    """
    run(bare)
    monkeypatch.setattr(functions, "FUNCTIONS_VERSION", FUNCTIONS_VERSION + 1)
    found = checked(run, bare)

    assert found is not None
    assert (found["ok"], found["detail"]) == (
        False,
        f"version {FUNCTIONS_VERSION}, this Onceward has {FUNCTIONS_VERSION + 1}: run onceward store install-functions",
    )


def test_taking_them_out_leaves_tables_and_records(run: Run, bare: str) -> None:
    """
    Again does no harm; afterwards a claim in Python finds what SQL had settled.
    """
    run(bare)
    with psycopg.connect(bare) as connection:
        settle(connection, claim(connection, "k"))
        connection.commit()
    first, second = run(bare, "--remove", "--json"), run(bare, "--remove", "--json")

    assert (first.document["before"], first.document["after"], second.document["before"]) == (FUNCTIONS_VERSION, 0, 0)
    assert (rows(bare, OURS), rows(bare, PUBLIC_TABLES)) == (NONE, [(1,)])
    assert checked(run, bare) is None


def test_what_is_built_on_them_keeps_them_and_nothing_is_half_gone(run: Run, bare: str) -> None:
    """
    A view of somebody's that calls one of them: refused, with its name, and all are still there.
    """
    run(bare)
    rows(bare, "CREATE VIEW mine AS SELECT onceward_fingerprint(NULL) AS one")
    refused = run(bare, "--remove")

    assert refused.code == 4
    assert "view mine depends on" in refused.err
    assert rows(bare, OURS) == ALL


@pytest.mark.fault("functions-half-installed")
def test_an_installation_that_fails_leaves_nothing(run: Run, bare: str, caller: str) -> None:
    """
    No right to create; or, near its end, a view of somebody else's in the way: not one function is there.
    """
    powerless = run(caller)
    rows(bare, "GRANT SELECT ON onceward_records, onceward_meta TO caller")
    reading = run(caller)
    rows(bare, "CREATE VIEW onceward_records_readable AS SELECT 1 AS one")
    obstructed = run(bare)

    assert [one.code for one in (powerless, reading, obstructed)] == [4, 4, 4]
    assert "let the owner run what --sql prints" in reading.err
    assert rows(bare, "SELECT count(*) FROM pg_proc WHERE proname LIKE 'onceward\\_%'") == [(0,)]


@pytest.mark.parametrize(("version", "words"), [(1, "onceward store migrate"), (LATEST + 1, "upgrade it")])
def test_tables_of_another_version_are_refused(run: Run, bare: str, version: int, words: str) -> None:
    """
    Older tables are brought forward first; later ones need a later package. Installed ones refuse to work on them, too.
    """
    setting = "UPDATE onceward_meta SET value = {} WHERE name = 'schema_version'"
    rows(bare, setting.format(version))
    ran, sql = run(bare), run(bare, "--sql")
    rows(bare, setting.format(LATEST))
    printed = run(bare, "--sql").out
    rows(bare, setting.format(version))
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=f"schema version {LATEST}"):
        rows(bare, printed)
    nothing = rows(bare, OURS)
    rows(bare, setting.format(LATEST))
    run(bare)
    rows(bare, setting.format(version))
    with (
        psycopg.connect(bare) as connection,
        pytest.raises(
            psycopg.errors.ObjectNotInPrerequisiteState,
            match=f"schema version {version}, these functions know {LATEST}",
        ),
    ):
        claim(connection, "k")

    assert (ran.code, sql.code, nothing) == (4, 4, NONE)
    assert words in ran.err


@pytest.mark.parametrize("url", ["sqlite:///agent.db", "redis://127.0.0.1:1/0", "memory://"])
def test_other_stores_are_refused(run: Run, url: str) -> None:
    """
    They have no functions: exit code 2, and where to go instead.
    """
    ran = run(url)

    assert (ran.code, ran.out) == (2, "")
    assert "installed in PostgreSQL" in ran.err


def test_a_database_that_is_away_or_has_no_tables_is_told(run: Run, server: PostgresServer) -> None:
    """
    Exit code 4 if nobody answers; 2 if it is perhaps the wrong database.
    """
    away = run("postgresql://nobody@127.0.0.1:1/nowhere?connect_timeout=2")
    wrong = run(server.url("template1"))

    assert (away.code, wrong.code) == (4, 2)
    assert "cannot be reached" in away.err
    assert "`onceward store init`" in wrong.err


def test_a_busy_table_is_given_up_and_nothing_is_changed(run: Run, bare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Whoever waits for the table makes every later writer wait: so not for long.
    """
    monkeypatch.setattr(functions, "LOCK_SECONDS", 0.05)
    with psycopg.connect(bare) as busy:
        busy.execute("LOCK TABLE onceward_records IN ROW EXCLUSIVE MODE")
        refused = run(bare)

    assert refused.code == 4
    assert "when it is quieter" in refused.err
    assert rows(bare, OURS) == NONE


def test_many_that_install_at_once_install_it_once(bare: str) -> None:
    """
    Six at the same moment: none fails.
    """
    with ThreadPoolExecutor(6) as crowd:
        moves = list(crowd.map(lambda _: installer.install(bare), range(6)))

    assert {move.after for move in moves} == {FUNCTIONS_VERSION}
    assert rows(bare, OURS) == ALL


def test_each_schema_of_a_database_has_its_own(run: Run, server: PostgresServer, bare: str) -> None:
    """
    A store in a schema with a name that needs quotes: its functions are there, and keep its records there.
    """
    database = bare.rpartition("/")[2]
    rows(bare, 'CREATE SCHEMA "Odd ""place"')
    odd = server.url(database, options="options=-csearch_path%3D%22Odd%5C%20%22%22place%22")
    make_tables(odd)
    installed, plain = run(odd, "--json"), run(bare, "--json")
    with psycopg.connect(odd) as connection:
        settle(connection, claim(connection, "k"))
        connection.commit()
        again = claim(connection, "k", fingerprint=FINGERPRINT)

    assert installed.document["schema"] == '"Odd ""place"'
    assert (plain.document["schema"], plain.document["before"]) == ("public", 0)
    assert again.verdict == "replay"
    assert rows(bare, PUBLIC_TABLES) == [(0,)]
    assert run(odd, "--remove").code == 0
    assert rows(bare, OURS) == ALL
