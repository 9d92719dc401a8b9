"""
What a tenant gets who has broken out of SQLite: a process that has given up everything but the databases.

The probes run inside real workers (`probe_worker.py`). Each layer is also switched off, and then its probes get
through: what they report is the layer's doing.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import OncewardError
from onceward.errors import ConfigurationError
from onceward.service.sql import Keyed, LocalDatabase, SqliteEngine
from onceward.service.sql.asked_database import AskedDatabase
from onceward.service.sql.landlock import landlock_version
from onceward.service.sql.sqlite_version import LEAST, REFUSED, check_sqlite_version
from onceward.service.sql.worker_sandbox import LAYERS, SandboxOptions, worker_environment
from onceward.service.sql.worker_user import WorkerUser, find_worker_user, hand_over

COMMAND = [sys.executable, str(Path(__file__).with_name("probe_worker.py"))]
VARIABLE = "ONCEWARD_PEPPER"
LINUX = sys.platform.startswith("linux") and os.uname().machine in ("x86_64", "aarch64")
ROOT = os.geteuid() == 0

pytestmark = [
    pytest.mark.skipif(not LINUX or not landlock_version(), reason="this system has no Landlock and seccomp"),
    pytest.mark.slow,
]


@pytest.fixture
def port() -> Iterator[int]:
    """Somebody who listens on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def probes(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """What each probe comes to in a worker with these layers."""
    monkeypatch.setenv(VARIABLE, "a secret of the service")
    (tmp_path / "records.db.pepper").write_text("a secret of the service")

    def ask(*layers: str, user: str = "same", mode: str = "auto") -> dict[str, str]:
        folder = tmp_path / "databases"
        (folder / "acme").mkdir(parents=True, exist_ok=True)
        given = {
            "secret": str(tmp_path / "records.db.pepper"),
            "port": port,
            "service": os.getpid(),
            "variable": VARIABLE,
        }
        (folder / "acme" / "other.db").write_text(json.dumps(given))
        return asyncio.run(_asked(folder, "probe", SandboxOptions(mode, user, layers)))

    return ask


async def _asked(folder: Path, what: str, options: SandboxOptions, *before: str) -> Any:
    async with SqliteEngine(folder, worker_command=COMMAND, sandbox=options, writers=1, readers=1) as engine:
        return await _ask(engine, what, "other")


async def _ask(engine: SqliteEngine, what: str, database: str, mode: str = "read") -> Any:
    """Have a worker do something that only the one with a door can."""
    return (await engine._ask(AskedDatabase("acme", database, None), what, mode=mode))[0]


EVERYTHING = {
    "read /etc/passwd",
    "read the service's file",
    "write the service's file",
    "list /",
    "make a symbolic link",
    "connect over TCP",
    "connect over UDP",
    "make a Unix socket",
    "run a program",
    "fork",
    "signal the service",
    "trace a process",
    "read the service's memory",
    "write new code",
    "read the service's environment",
    "read another tenant's database",
}
"""What gets through where nothing holds a worker in. (Root is root already.)"""

STOPPED = {
    "environment": {"read the service's environment"},
    "landlock": {
        "read /etc/passwd",
        "read the service's file",
        "write the service's file",
        "list /",
        "make a symbolic link",
        "connect over TCP",
        "run a program",
        "signal the service",
        "read the service's memory",
    },
    "seccomp": {
        "make a symbolic link",
        "connect over TCP",
        "connect over UDP",
        "make a Unix socket",
        "run a program",
        "fork",
        "signal the service",
        "trace a process",
        "write new code",
    },
}
"""What each layer stops by itself, on a system with the newest Landlock."""


def _through(told: dict[str, str]) -> set[str]:
    return {name for name, what in told.items() if what == "through"}


@pytest.mark.fault("workers-are-not-confined")
@pytest.mark.fault("workers-inherit-the-environment")
def test_whoever_breaks_out_of_sqlite_reaches_nothing_but_the_databases(
    probes: Callable[..., dict[str, str]],
) -> None:
    """
    No file, no socket, no program, no process, no secret. What is left: the databases, which are all in one folder.
    """
    held = probes(*LAYERS)
    assert _through(held) - {"become root"} == {"read another tenant's database"}


def test_without_any_of_it_every_probe_gets_through(probes: Callable[..., dict[str, str]]) -> None:
    """
    The control: probes that fail by themselves would prove nothing.
    """
    assert _through(probes(mode="off")) >= EVERYTHING


@pytest.mark.parametrize("layer", STOPPED)
def test_each_layer_stops_its_part_by_itself(probes: Callable[..., dict[str, str]], layer: str) -> None:
    """
    Alone it stops what is listed for it, and nothing else of what would get through.
    """
    version = landlock_version()
    if layer == "landlock" and version < 6:
        pytest.skip("an older Landlock knows neither TCP nor signals")
    alone = _through(probes(layer))
    assert alone & STOPPED[layer] == set()
    assert alone >= EVERYTHING - STOPPED[layer]


@pytest.mark.skipif(not ROOT, reason="only root can start workers as another user")
@pytest.mark.fault("workers-stay-root")
def test_workers_of_root_are_nobody_in_a_root_of_their_own(probes: Callable[..., dict[str, str]]) -> None:
    """
    Files, the service's process and root itself are out of reach without Landlock and seccomp, too.
    """
    alone = probes("user", user="nobody")
    reached = _through(alone)
    assert reached & {"read /etc/passwd", "read the service's file", "write the service's file", "list /"} == set()
    assert reached & {"run a program", "signal the service", "become root"} == set()
    assert reached >= {"connect over TCP", "fork", "write new code", "read another tenant's database"}


@pytest.mark.skipif(not ROOT, reason="only root can start workers as another user")
def test_a_service_of_root_hands_its_databases_to_the_workers(tmp_path: Path) -> None:
    """
    Databases that root has made before are written by workers that are not root; links and files with a second name
    keep their owner.
    """
    folder = tmp_path / "databases"
    (folder / "acme").mkdir(parents=True)
    (tmp_path / "outside").write_text("root's")
    (folder / "acme" / "link.db").symlink_to(tmp_path / "outside")
    os.link(tmp_path / "outside", folder / "acme" / "hard.db")

    async def play() -> Any:
        async with SqliteEngine(folder, writers=1, readers=1) as engine:
            await engine.create("acme", "shop")
            await engine.query("acme", "shop", "CREATE TABLE t (a)")
        async with SqliteEngine(
            folder, writers=1, readers=1, sandbox=SandboxOptions("required", "nobody"), worker_command=COMMAND
        ) as engine:
            pid = await _ask(engine, "identity", "shop")
            threads = [one.read_text().splitlines() for one in Path(f"/proc/{pid}/task").glob("*/status")]
            who = [dict(line.split(":\t") for line in thread) for thread in threads]
            await engine.query("acme", "shop", "INSERT INTO t VALUES (1)", identity=Keyed("live:acme", "k"))
            return who, (await engine.query("acme", "shop", "SELECT count(*) FROM t")).document["rows"]

    who, rows = asyncio.run(play())
    user = find_worker_user("nobody")
    assert user is not None
    assert rows == [[1]]
    assert {two for one in who for two in one["Uid"].split()} == {str(user.uid)}
    assert {two for one in who for two in one["Gid"].split()} == {str(user.gid)}
    assert {(one["Groups"].strip(), int(one["CapEff"], 16), one["NoNewPrivs"], one["Seccomp"]) for one in who} == {
        ("", 0, "1", "2")
    }
    assert (folder / "acme" / "shop.db").stat().st_uid == user.uid
    assert (tmp_path / "outside").stat().st_uid == 0


def test_a_worker_needs_no_more_modules_once_it_is_confined(tmp_path: Path) -> None:
    """
    It cannot read any: whatever it needs was imported before.
    """

    async def play() -> Any:
        told = []
        async with SqliteEngine(tmp_path, worker_command=COMMAND, writers=1, readers=1) as engine:
            await engine.create("acme", "shop")
            statements = ("CREATE TABLE t (a UNIQUE)", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (1)", "SELEC")
            for number, sql in enumerate(statements):
                for key in (None, f"k{number}", f"k{number}"):
                    try:
                        identity = None if key is None else Keyed("live:acme", key)
                        await engine.query("acme", "shop", sql, identity=identity)
                    except OncewardError as error:
                        told.append(error.code)
            more = [await _ask(engine, "imported", "shop", mode) for mode in ("read", "write")]
            await engine.drop("acme", "shop")
            return set(told), more

    assert asyncio.run(play()) == ({"sql_error"}, [[], []])


def test_the_environment_of_a_worker_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Seen from outside, while it runs: only what Python needs, two handles, and a folder of its own.
    """
    monkeypatch.setenv(VARIABLE, "a secret of the service")

    async def play(options: SandboxOptions) -> tuple[bytes, dict[str, str], str]:
        async with SqliteEngine(tmp_path, worker_command=COMMAND, sandbox=options, writers=1, readers=1) as engine:
            pid = await _ask(engine, "identity", "other")
            proc = Path(f"/proc/{pid}")
            files = {one.name: str(one.readlink()) for one in (proc / "fd").iterdir()}
            return (proc / "environ").read_bytes(), files, str((proc / "cwd").readlink())

    environ, files, folder = asyncio.run(play(SandboxOptions()))
    names = {one.partition(b"=")[0].decode() for one in environ.split(b"\0") if one}
    assert names <= set(worker_environment()) <= {"LD_LIBRARY_PATH", "PYTHONHOME", "TZ", "PYTHONPATH", "PYTHONSAFEPATH"}
    assert {one for one in files.values() if one != os.devnull and not one.startswith("socket:")} == {
        one
        for one in files.values()
        if "deleted" in one  # The page that it shares with the engine.
    }
    assert folder == str(tmp_path)
    assert b"a secret of the service" in asyncio.run(play(SandboxOptions("off")))[0]


class TestWhatIsInForceIsKnown:
    def test_a_worker_says_what_holds_it_in(self, tmp_path: Path) -> None:
        """
        One line, for the log and the terminal; with nothing switched on it says none.
        """

        async def line(options: SandboxOptions) -> str:
            async with SqliteEngine(tmp_path, sandbox=options) as engine:
                return (await engine.start()).line()

        version = landlock_version()
        assert asyncio.run(line(SandboxOptions())) == f"environment, privileges, landlock {version}, seccomp"
        assert asyncio.run(line(SandboxOptions("off"))) == "none"

    @pytest.mark.fault("a-required-sandbox-is-optional")
    def test_what_is_required_and_missing_starts_no_worker(self, tmp_path: Path) -> None:
        """
        Here it is Landlock that is missing, as on an older system: `required` refuses, `auto` says so and goes on.
        """
        without = tmp_path / "without.py"
        without.write_text(
            "import sys\n"
            "from onceward.service.sql import landlock, worker\n"
            "landlock.landlock_version = lambda: 0\n"
            "worker.main(sys.argv[1:])\n"
        )

        async def start(mode: str) -> str:
            command = [sys.executable, str(without)]
            async with SqliteEngine(tmp_path, worker_command=command, sandbox=SandboxOptions(mode)) as engine:
                return (await engine.start()).line()

        assert "not in force: landlock (this system has no Landlock)" in asyncio.run(start("auto"))
        with pytest.raises(ConfigurationError, match=r"cannot be confined as required.*landlock"):
            asyncio.run(start("required"))

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (SandboxOptions("on"), "auto, required, off"),
            (SandboxOptions(user="nobody-of-that-name"), "there is no user"),
            (SandboxOptions(user="-1"), "there is no user"),
        ],
    )
    def test_options_that_cannot_work_are_refused(self, tmp_path: Path, options: SandboxOptions, words: str) -> None:
        """
        When the engine is made, with what may be said instead.
        """
        with pytest.raises(ConfigurationError, match=words):
            SqliteEngine(tmp_path, sandbox=options)


class TestUsers:
    def test_nothing_named_means_nobody_for_root_and_no_change_for_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        And only root may name another user.
        """
        monkeypatch.setattr("os.geteuid", lambda: 0)
        assert find_worker_user("") == find_worker_user("nobody") != None  # noqa: E711 - both, and somebody
        assert find_worker_user("same") is None
        assert find_worker_user("54321") == WorkerUser(54_321, 54_321)
        monkeypatch.setattr("os.geteuid", lambda: 1_000)
        assert find_worker_user("") is None
        with pytest.raises(ConfigurationError, match="only root"):
            find_worker_user("nobody")

    @pytest.mark.skipif(not ROOT, reason="only root can give files away")
    def test_a_folder_that_cannot_be_given_away_is_left_as_it_is_unless_a_user_was_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        A container without CAP_CHOWN: workers run as the service does, and say so.
        """

        def refuse(*_: Any) -> None:
            raise PermissionError(1, "Operation not permitted")

        async def line(user: str) -> str:
            async with SqliteEngine(tmp_path, sandbox=SandboxOptions(user=user)) as engine:
                return (await engine.start()).line()

        monkeypatch.setattr("onceward.service.sql.worker_sandbox.hand_over", refuse)
        assert "not in force: user (the databases cannot be given away" in asyncio.run(line(""))
        with pytest.raises(ConfigurationError, match="CAP_CHOWN"):
            asyncio.run(line("nobody"))

    @pytest.mark.skipif(not ROOT, reason="only root can give files away")
    def test_handing_over_twice_changes_nothing(self, tmp_path: Path) -> None:
        """
        Every start does it.
        """
        (tmp_path / "acme").mkdir()
        (tmp_path / "acme" / "shop.db").write_text("")
        for _ in range(2):
            hand_over(tmp_path, WorkerUser(54_321, 54_322))
        found = (tmp_path / "acme" / "shop.db").stat()
        assert (found.st_uid, found.st_gid) == (54_321, 54_322)


class TestSqlite:
    @pytest.mark.parametrize("version", [(3, 37, 2), (3, 39, 1), *sorted(REFUSED)])
    def test_a_version_with_known_faults_does_not_run_strangers_sql(self, version: tuple[int, ...]) -> None:
        """
        The refusal says which version it is and what to do.
        """
        with pytest.raises(ConfigurationError, match=r"SQLite 3\.\d+\.\d+ .*Update the library"):
            check_sqlite_version(version)

    def test_other_versions_and_this_ones_are_fine(self) -> None:
        """
        The least one, the one after the faulty ones, and the one that is here.
        """
        for version in (LEAST, (3, 43, 2), sqlite3.sqlite_version_info):
            check_sqlite_version(version)

    @pytest.mark.fault("a-faulty-sqlite-runs-strangers-sql")
    def test_an_engine_looks_at_the_version_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Before any worker starts.
        """
        monkeypatch.setattr("onceward.service.sql.sqlite_version.LEAST", (4, 0, 0))
        with pytest.raises(ConfigurationError, match="cannot be used to run other people's SQL"):
            SqliteEngine(tmp_path)

    @pytest.mark.parametrize(
        "sql",
        [
            "PRAGMA writable_schema = ON",
            "PRAGMA writable_schema = RESET",
            "UPDATE sqlite_schema SET sql = 'x'",
            "DELETE FROM sqlite_master",
            "INSERT INTO sqlite_schema VALUES ('table', 't', 't', 0, 'CREATE TABLE t (a)')",
            "PRAGMA journal_mode = OFF",
            "PRAGMA schema_version = 7",
            "SELECT * FROM sqlite_dbpage",
            "UPDATE sqlite_dbpage SET data = zeroblob(4096) WHERE pgno = 1",
            "CREATE VIRTUAL TABLE f USING fts5(a)",
        ],
    )
    def test_what_defensive_mode_would_refuse_is_refused_without_it(
        self, database: LocalDatabase, place: Path, sql: str
    ) -> None:
        """
        Python 3.11 cannot set SQLITE_DBCONFIG_DEFENSIVE. Its list (the schema as a table, its version, a journal that
        is switched off, pages as a table; without virtual tables there are no shadow tables) is refused by the
        authorizer.
        """
        before = place.read_bytes()
        with pytest.raises(OncewardError):
            database.query(sql)
        assert place.read_bytes() == before
