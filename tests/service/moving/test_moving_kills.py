"""
kill -9 at every step of a move: whatever was done stays, nothing is done twice, and no name leads to half a database.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from moving_support import (
    NAME,
    as_administrator,
    contents,
    databases,
    empty_folder,
    file_of,
    moved,
    open_shop,
    place_of,
    tried,
)

from onceward.errors import OncewardError
from onceward.service.sql import DatabaseUnknown, SqlError
from onceward.service.sql.database_files import DatabaseFolder, erase_namespace
from onceward.service.sql.moving import ImportOptions, ImportReport, export_database, import_database
from onceward.service.sql.moving.export_file import ExportFile
from onceward.service.sql.postgres.schema_erasure import erase_schemas

pytestmark = pytest.mark.dose(1, of="version")

HERE = Path(__file__).parent
IMPORTS = [
    ("sql.import.made", 0), *(("sql.import.added", skip) for skip in (0, 2, 5, 9)),
    ("sql.import.complete", 0), ("sql.import.compared", 0),
]  # fmt: skip
"""Where an import dies before its database can be found."""
NAMED = (("pg_roles", "rolname"), ("pg_namespace", "nspname"))
POSITIONS = {0: 4, 2: 10, 5: 20, 9: 36}
"""How many rows and records are in after so many batches and one: no batch has rows of two tables."""
AFTER = [("sql.import.published", 0)]
FOLDERS = [*IMPORTS, ("sqlite.migrate.statement", 1), ("sql.import.linked", 0), *AFTER]


def killed(what: str, one: Path | str, two: Path | str, point: str, skip: int = 0) -> int:
    """Run a step in a process of its own that is killed there; how it ended."""
    command = [sys.executable, str(HERE / "move_drill.py"), what, str(one), str(two), point, str(skip)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(HERE), os.environ.get("PYTHONPATH", "")))}
    return subprocess.run(command, timeout=120, check=False, env=environment, stderr=subprocess.DEVNULL).returncode


@pytest.fixture
def exported(folder: Path, tmp_path: Path) -> Path:
    """The shop in a file."""
    export_database(place_of(folder), tmp_path / "there.jsonl", close=True)
    return tmp_path / "there.jsonl"


@pytest.mark.slow
class TestImports:
    """Killed, and typed again."""

    @pytest.mark.fault("positions-are-not-kept", "imports-are-found-at-once")
    @pytest.mark.parametrize(("point", "skip"), [*IMPORTS, *AFTER])
    @pytest.mark.dose(3)
    def test_to_postgresql(self, point: str, skip: int, folder: Path, exported: Path, url: str, tmp_path: Path) -> None:
        """
        It is not found before its end; the second run goes on, and what is there then comes back as it was.
        """
        before = contents(folder)
        ended = killed("import", exported, url, point, skip)
        found = databases(url)
        [[done]] = as_administrator(url, "SELECT position FROM onceward_moves WHERE namespace = %s", NAME.namespace)
        report = tried(lambda: import_database(exported, url))

        assert ended == -signal.SIGKILL
        assert found == ([NAME] if (point, skip) in AFTER else [])
        assert isinstance(report, ImportReport)
        moved(url, empty_folder(tmp_path / "new"), tmp_path / "back.jsonl")
        assert done == {"sql.import.made": 0, "sql.import.added": POSITIONS.get(skip)}.get(point, 40)
        assert report.already == ((point, skip) in AFTER)
        assert contents(tmp_path / "new") == before

    @pytest.mark.fault("files-are-found-at-once")
    @pytest.mark.parametrize(("point", "skip"), FOLDERS)
    @pytest.mark.dose(3)
    def test_to_a_folder(self, point: str, skip: int, folder: Path, exported: Path, tmp_path: Path) -> None:
        """
        The same with a file under a hidden name; nothing else is left in the end.
        """
        new = empty_folder(tmp_path / "new")
        ended = killed("import", exported, new, point, skip)
        found = DatabaseFolder(new / "databases").databases()
        import_database(exported, str(new))

        assert ended == -signal.SIGKILL
        assert found == ([NAME] if point in ("sql.import.linked", "sql.import.published") else [])
        assert contents(new) == contents(folder)
        assert [one.name for one in file_of(new).parent.iterdir()] == ["shop.db"]

    @pytest.mark.fault("erasures-leave-half-imports")
    def test_a_tenant_that_is_erased_takes_half_imports_along(self, exported: Path, tmp_path: Path) -> None:
        """
        What a killed import left under a hidden name is the tenant's data as well.
        """
        new = empty_folder(tmp_path / "new")
        killed("import", exported, new, "sql.import.added", 3)
        left = sorted(one.name for one in file_of(new).parent.iterdir())
        list(erase_namespace(new / "databases", NAME.namespace))

        assert left[0] == ".shop.db.importing"
        assert list((new / "databases").iterdir()) == []

    @pytest.mark.fault("erasures-leave-half-schemas")
    def test_on_postgresql_an_erasure_takes_half_imports_along(self, exported: Path, url: str) -> None:
        """
        The schema that nobody finds by a name, its role and the row about it.
        """
        killed("import", exported, url, "sql.import.added", 3)
        [[schema]] = as_administrator(url, "SELECT schema_name FROM onceward_moves")
        named = [f"SELECT 1 FROM {table} WHERE {column} = %s" for table, column in NAMED]
        before = [as_administrator(url, sql, schema) for sql in named]
        list(erase_schemas(url, "acme"))

        assert before == [[(1,)], [(1,)]]
        assert [as_administrator(url, sql, schema) for sql in named] == [[], []]
        assert as_administrator(url, "SELECT 1 FROM onceward_moves") == []

    def test_another_file_does_not_go_on_with_it(self, exported: Path, url: str, tmp_path: Path) -> None:
        """
        It is refused; with --restart what was begun is thrown away, records and all.
        """
        killed("import", exported, url, "sql.import.added", 7)
        with open_shop(tmp_path / "other") as shop:
            shop.query("CREATE TABLE other (n INT)")
        export_database(place_of(tmp_path / "other"), tmp_path / "other.jsonl")
        [[count]] = as_administrator(url, "SELECT count(*) FROM onceward_records")
        [[old]] = as_administrator(url, "SELECT schema_name FROM onceward_moves")

        with pytest.raises(OncewardError, match="an import of another file"):
            import_database(tmp_path / "other.jsonl", url)
        import_database(tmp_path / "other.jsonl", url, ImportOptions(restart=True))
        assert databases(url) == [NAME]
        assert as_administrator(url, "SELECT count(*) FROM onceward_records") < [(count,)]
        left = [as_administrator(url, f"SELECT 1 FROM {table} WHERE {column} = %s", old) for table, column in NAMED]
        assert left == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("point", ["sql.close.marked", "sql.export.written", "sql.export.named"])
@pytest.mark.dose(1)
def test_an_export_that_is_killed_is_typed_again(point: str, folder: Path, tmp_path: Path) -> None:
    """
    A file under the name is always a whole one, and the database is closed from the first step on.
    """
    file = tmp_path / "there.jsonl"
    ended = killed("export", folder, file, point)
    if file.exists():
        ExportFile(file)
    with open_shop(folder) as shop, pytest.raises(SqlError, match="this database is closed"):
        shop.query("DELETE FROM notes")
    report = export_database(place_of(folder), file, close=True)

    assert ended == -signal.SIGKILL
    assert (report.closed, sum(report.totals.rows), report.totals.records) == (True, 20, 20)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["old", "there.jsonl"]


@pytest.mark.slow
def test_closing_on_postgresql_is_killed_and_typed_again(folder: Path, url: str, tmp_path: Path) -> None:
    """
    Closed before the wait for what was under way: the second run waits, and exports everything.
    """
    moved(folder, url, tmp_path / "there.jsonl")
    ended = killed("export", url, tmp_path / "back.jsonl", "sql.close.marked")
    report = export_database(place_of(url), tmp_path / "back.jsonl", close=True)

    assert ended == -signal.SIGKILL
    assert (report.closed, report.totals.records) == (True, 20)
    with pytest.raises(DatabaseUnknown):
        export_database(place_of(url)._replace(database="other"), tmp_path / "other.jsonl")
