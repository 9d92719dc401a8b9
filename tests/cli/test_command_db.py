"""`onceward db`: what is typed for a move, what is shown, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceward.service.sql import Keyed, LocalDatabase
from servers.postgres import needed
from servers.tenants import prepared

SHOP = ("acme/shop", "shop.jsonl", "--from", "onceward-data")


@pytest.fixture(autouse=True)
def _here(store: str, service_folder: Path) -> None:
    """A store for the log, and a folder with a shop."""


def new_folder(folder: Path) -> Path:
    """The folder of a service that has nothing yet."""
    (folder / "new" / "databases").mkdir(parents=True)
    return folder / "new"


def test_a_move_from_folder_to_folder(run: Any, folder: Path) -> None:
    """
    Exported and closed, imported and compared; the numbers for people, and for programs.
    """
    new_folder(folder)
    exported = run("db", "export", *SHOP, "--close", "--json")
    imported = run("db", "import", "shop.jsonl", "--to", "new", "--reason", "ticket 1")
    again = run("db", "import", "shop.jsonl", "--to", "new", "--json")
    with LocalDatabase(folder / "new" / "databases" / "live-acme" / "shop.db") as database:
        retried = database.query("INSERT INTO things VALUES ('one')", identity=Keyed("live:acme:db:shop", "evt-1"))

    assert (exported.code, exported.err) == (0, "")
    assert exported.document == {"file": "shop.jsonl", "tables": {"things": 1}, "records": 1, "closed": True}
    assert (imported.code, imported.err) == (0, "")
    assert [line.split()[-1] for line in imported.out.splitlines()[1:]] == ["equal", "equal"]
    assert again.document["already"] is True
    assert retried.replayed


def test_to_postgresql_and_back(run: Any, folder: Path) -> None:
    """
    The same two commands, with the URL of a prepared database; its decisions are in its own log, if none is named.
    """
    needed()
    url = prepared("typed")
    new_folder(folder)
    codes = [
        run("db", "export", *SHOP, "--close").code,
        run("db", "import", "shop.jsonl", "--to", url, "--restart").code,
        run("db", "export", "acme/shop", "back.jsonl", "--from", url, "--close").code,
        run("db", "import", "back.jsonl", "--to", "new").code,
    ]
    log = run("audit", "list", "--json").document["decisions"]

    assert codes == [0, 0, 0, 0]
    assert [one["action"] for one in log] == ["database.import", "database.close", "database.import", "database.close"]
    assert {(one["tenant"], one["environment"]) for one in log} == {("acme", "live")}
    assert log[0]["after"] == {"rows": 1, "records": 1, "obstacles": 0, "imported": True}


def test_what_does_not_fit_is_listed(run: Any, folder: Path) -> None:
    """
    Exit code 1, a line for each with what to type; with that it goes on.
    """
    with LocalDatabase(folder / "onceward-data/databases/live-acme/shop.db") as database:
        database.query("CREATE TRIGGER watch AFTER INSERT ON things BEGIN DELETE FROM things; END")
    run("db", "export", *SHOP, "--close")
    new_folder(folder)
    refused = run("db", "import", "shop.jsonl", "--to", "new")
    document = run("db", "import", "shop.jsonl", "--to", "new", "--json").document
    looked = run("db", "import", "shop.jsonl", "--to", "new", "--without", "trigger:watch", "--dry-run")
    before = [path.name for path in (folder / "new" / "databases").iterdir()]
    done = run("db", "import", "shop.jsonl", "--to", "new", "--without", "trigger:watch")

    assert refused.code == 1
    assert "--without trigger:watch" in refused.out
    assert "nothing was written" in refused.err
    assert [one["advice"] for one in document["obstacles"]] == ["--without trigger:watch"]
    assert (looked.code, looked.err, before) == (0, "everything fits; nothing was written\n", [])
    assert done.code == 0


def test_an_open_database_is_pointed_out(run: Any, folder: Path) -> None:
    """
    At the export and at the import: a key may run on both sides.
    """
    new_folder(folder)
    exported = run("db", "export", *SHOP)
    imported = run("db", "import", "shop.jsonl", "--to", "new")

    assert "still takes writes" in exported.err
    assert "its source was open" in imported.err


@pytest.mark.parametrize(
    ("typed", "code", "says"),
    [
        ("db export shop x.jsonl --from onceward-data", 2, "TENANT/DATABASE"),
        ("db export acme/other x.jsonl --from onceward-data", 1, "there is no database other of acme"),
        ("db export acme/shop x.jsonl --from onceward-data --environment test", 1, "in the test environment"),
        ("db export acme/SHOP x.jsonl --from onceward-data", 2, "not a valid name"),
        ("db export acme/shop export.jsonl --from onceward-data", 2, "--overwrite"),
        ("db export acme/shop x.jsonl --from nowhere", 2, "there is no folder nowhere"),
        ("db export acme/shop x.jsonl --from postgresql://127.0.0.1:1/none", 4, "cannot be reached"),
        ("db import nothing.jsonl --to onceward-data", 2, "cannot be read"),
        ("db import agent.db --to onceward-data", 2, "damaged or incomplete"),
        ("db import export.jsonl --to onceward-data --column-type n=text", 2, "TABLE.COLUMN=TYPE"),
        ("db import export.jsonl --to onceward-data --without table:other", 2, "there is no table:other"),
        ("db reopen acme/shop --from onceward-data", 2, "--yes NAME"),
        ("db reopen acme/other --from onceward-data --yes other", 1, "there is no database other"),
    ],
)
def test_what_is_mistyped_is_told(typed: str, code: int, says: str, run: Any, folder: Path) -> None:
    """
    One line, an exit code, and nothing is done: not even a decision stands in the log.
    """
    ran = run(*typed.split())

    assert (ran.code, ran.out) == (code, "")
    assert says in ran.err
    assert not (folder / "x.jsonl").exists()


def test_a_closed_database_is_opened_again(run: Any, folder: Path) -> None:
    """
    By its name, typed twice.
    """
    run("db", "export", *SHOP, "--close")
    first = run("db", "reopen", "acme/shop", "--from", "onceward-data", "--yes", "shop")
    second = run("db", "reopen", "acme/shop", "--from", "onceward-data", "--yes", "shop", "--json")
    with LocalDatabase(folder / "onceward-data/databases/live-acme/shop.db") as database:
        database.query("INSERT INTO things VALUES ('two')")

    assert "yes" in first.out
    assert second.document == {"wasClosed": False}
