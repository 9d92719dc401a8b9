"""A store of another package, from nothing but a URL: in gates, in every command and in the service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import shelf
from packages import install, install_shelf

from onceward import AsyncGate, ConfigurationError, Gate
from onceward.service.settings import load_settings
from onceward.stores import StoreKind, _store_kinds, open_async_store, open_store, tables_url

BLOCKING_ONLY = """
from onceward.stores import StoreKind
from onceward.stores.memory import MemoryStore

KIND = StoreKind(open=lambda url, *, environment: MemoryStore(environment=environment), local=True, processes=False)
"""
THIEF = """
from onceward.stores import StoreKind

class Thief:
    pass

KIND = StoreKind(open=lambda url, *, environment: Thief())
"""
AWAITING_ONLY = BLOCKING_ONLY.replace("open=", "open_async=").replace("MemoryStore", "AsyncMemoryStore")


class Desk:
    """A folder with that package installed, and a way to run programs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = str(install_shelf(folder / "site"))
        self.url = "shelf:///agent.db"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": self.path, "ONCEWARD_STORE": self.url}

    def python(self, *arguments: str, code: int = 0) -> str:
        """What a program prints."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert code == done.returncode, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr

    def onceward(self, *typed: str, code: int = 0) -> Any:
        """What a command says, as a document."""
        return json.loads(self.python("-m", "onceward", *typed, "--json", code=code))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that packages are found in, by this process."""
    folder = tmp_path / "site"
    folder.mkdir(mode=0o700)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(_store_kinds, "_loaded", {})
    return folder


GATES = """
import asyncio, sys
from onceward import AsyncGate, Gate

assert "shelf" not in sys.modules, "it is imported when its scheme is asked for"
Gate("memory://", scope="test:acme").run("k", lambda: 1)
assert "shelf" not in sys.modules, "and for no other"

def charge():
    print("charged")
    return "ch_17"

async def later():
    async with AsyncGate(sys.argv[1], scope="test:acme") as gate:
        return await gate.run("charge:o-17", charge)

with Gate(sys.argv[1], scope="test:acme") as gate:
    print(gate.run("charge:o-17", charge), gate.run("charge:o-17", charge), type(gate.store).__module__)
print(asyncio.run(later()))
"""


@pytest.mark.slow
def test_both_gates_open_it_and_it_happens_once_in_all_processes(desk: Desk) -> None:
    """
    By URL; the module is imported for that and for nothing else. The second process replays what the first one did.
    """
    first, second = (desk.python("-c", GATES, desk.url).split() for _ in range(2))

    assert first == ["charged", "ch_17", "ch_17", "shelf", "ch_17"]
    assert second == ["ch_17", "ch_17", "shelf", "ch_17"]


DOUBT = """
import sys
from onceward import Gate

def break_down():
    raise SystemExit

with Gate(sys.argv[1], scope="live:acme", lease=60) as gate:
    gate.run("settled", lambda: 1)
    gate.run("in-doubt", break_down)
"""


@pytest.mark.slow
def test_commands_that_look_and_decide_work_on_it(desk: Desk) -> None:
    """
    Made ready, looked over, listed, decided and purged, as every other store.
    """
    ready = desk.onceward("store", "init")
    desk.python("-c", DOUBT, desk.url)
    listed = desk.onceward("records", "list")
    checked = desk.onceward("store", "check", code=1)  # Somebody has to decide.
    decided = desk.onceward("records", "reconcile", "--scope", "live:acme", "--key", "in-doubt", "--did-not-happen")
    after = desk.onceward("records", "list")
    purged = desk.onceward("records", "purge")
    moved = desk.onceward("store", "migrate")

    assert True is ready["ready"]
    assert {one["state"] for one in listed["records"]} == {"settled", "in_doubt"}
    assert (checked["healthy"], checked["inDoubt"]) == (False, 1)
    assert "released" in json.dumps(decided)
    assert {one["state"] for one in after["records"]} == {"settled", "released"}
    assert {name: purged[name] for name in ("forgotten", "shrunk")} == {"forgotten": 0, "shrunk": 0}
    assert False is moved["moved"]


JOURNAL = """
import sys
from onceward.journal import Journal

with Journal(sys.argv[1], scope="live:acme", worker="w-1") as journal, journal.run("march") as run, run.turn(1) as turn:
    with turn.call("book", key="k", arguments={}) as call:
        call.wrote(1)
"""


@pytest.mark.slow
def test_commands_about_what_is_no_record_work_beside_it(desk: Desk) -> None:
    """
    Tenants, tokens, dead letters, messages, webhooks and the journal: in the database that `StoreKind.tables` names.
    """
    desk.onceward("tenant", "create", "acme")
    token = desk.onceward("token", "create", "--tenant", "acme")
    desk.python("-c", JOURNAL, desk.url)

    assert "acme" in json.dumps(desk.onceward("tenant", "list"))
    assert token["tenant"] == "acme"
    assert desk.onceward("dead", "list")["letters"] == []
    assert desk.onceward("relay", "init") and desk.onceward("relay", "status")
    assert desk.onceward("hooks", "list")["sources"] == []
    assert "w-1" in json.dumps(desk.onceward("journal", "list", "--scope", "live:acme"))
    assert {"agent.access.db", "agent.journal.db"} <= {one.name for one in desk.folder.iterdir()}


@pytest.mark.slow
def test_the_service_keeps_its_records_there(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It starts with the URL alone; its records API shows what a gate has written there, a tenant's balance and databases
    work, and whoever is erased has no records left in the store.
    """
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "service")
    from service_support import Served

    for name, value in desk.environment.items():
        monkeypatch.setenv(name, value)
    (folder := desk.folder / "data").mkdir(mode=0o700)
    url = f"shelf:///{desk.folder}/agent.db"
    write = "import sys; from onceward import Gate; print(Gate(sys.argv[1], scope='test:demo').run('k', lambda: 1))"
    desk.python("-c", write, url)
    desk.url = url
    served = Served.started(folder, "--store", url)
    try:
        shown = served.call("GET", "/v1/records").document
        database = served.database()
        rows = [served.query(database, "INSERT INTO events VALUES ('e', 'n')", key="once").status for _ in range(2)]
        counted = served.count(database)
        ready = served.call("GET", "/ready").status
    finally:
        served.stop()
    before = desk.onceward("records", "list")["records"]
    desk.onceward("tenant", "erase", "demo", "--yes", "demo", "--folder", str(folder))
    after = desk.onceward("records", "list")["records"]

    assert [one["key"] for one in shown["records"] if one["scope"] == "test:demo"] == ["test:k"]
    assert (rows, counted, ready) == ([200, 200], 1, 200)
    assert "test:demo" in {one["scope"] for one in before}
    assert "test:demo" not in {one["scope"] for one in after}


@pytest.mark.slow
def test_the_folder_of_the_page_can_be_built(tmp_path: Path) -> None:
    """
    With the files that the page has a reader make, the test beside the store: its module goes in, and its entry point.
    """
    pytest.importorskip("setuptools", reason="pip brings it to its own builds, where it is not installed")
    for name, text in (("shelf.py", shelf.SOURCE), ("pyproject.toml", shelf.PROJECT), ("test_shelf.py", shelf.TEST)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    build = [sys.executable, "-c", "import setuptools; setuptools.setup()", "egg_info"]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    told = {one.name: one.read_text(encoding="utf-8") for one in tmp_path.glob("*.egg-info/*")}

    assert done.returncode == 0, done.stderr
    assert (told["top_level.txt"], "shelf = shelf:KIND" in told["entry_points.txt"]) == ("shelf\n", True)


class TestFinding:
    """Which package a scheme belongs to."""

    @pytest.mark.fault("a-scheme-of-ours-is-taken-over")
    def test_a_scheme_of_ours_cannot_be_taken_over(self, site: Path) -> None:
        """
        A package that calls itself sqlite or memory is not asked, and not even imported.
        """
        install(site, "thief", dict.fromkeys(("memory", "SQLite"), "thief:KIND"), {"thief": THIEF})

        assert type(open_store("memory://")).__module__ == "onceward.stores.memory"
        assert None is tables_url("memory://")
        assert "thief" not in sys.modules

    def test_an_unknown_scheme_is_told_what_is_installed(self, site: Path) -> None:
        """
        Ours, and those of other packages with their names; or the one that was probably meant.
        """
        install_shelf(site)

        with pytest.raises(ConfigurationError, match=r"sqlite://.*shelf:// \(the package onceward-shelf 1\.0\)"):
            open_store("mysql://localhost/shop")
        with pytest.raises(ConfigurationError, match="did you mean shelf://"):
            Gate("shelv:///agent.db", scope="test:acme")

    @pytest.mark.fault("a-broken-package-is-not-named")
    def test_a_package_that_cannot_be_loaded_is_named(self, site: Path) -> None:
        """
        With what went wrong; its own error is the cause.
        """
        install(site, "broken-store", {"broken": "broken_store:KIND"}, {"broken_store": "raise OSError('no driver')"})

        with pytest.raises(ConfigurationError, match=r"broken-store 1\.0.*OSError: no driver") as raised:
            open_store("broken://host/name")
        assert isinstance(raised.value.__cause__, OSError)

    @pytest.mark.fault("an-entry-point-may-name-anything")
    def test_an_entry_point_that_names_something_else_is_refused(self, site: Path) -> None:
        """
        It names a `StoreKind`, and nothing that is guessed from.
        """
        install(site, "odd-store", {"odd": "odd_store:open"}, {"odd_store": "def open(url): ..."})

        try:
            open_store("odd://host/name")
            told = ""
        except Exception as error:  # Whichever: it has to be ours.
            told = f"{type(error).__name__}: {error}"

        assert told.startswith("ConfigurationError: odd:// comes from the package odd-store 1.0")
        assert told.endswith("names a function, not an onceward.stores.StoreKind")

    @pytest.mark.fault("a-package-that-exits-ends-the-program")
    def test_a_package_that_ends_the_program_when_it_is_imported_is_named(self, site: Path) -> None:
        """
        A command that ends without a word helps nobody.
        """
        install(site, "exit-store", {"exits": "exit_store:KIND"}, {"exit_store": "raise SystemExit(3)"})

        try:
            open_store("exits://")
            told = ""
        except (ConfigurationError, SystemExit) as error:
            told = repr(error)

        assert "exit-store 1.0" in told

    @pytest.mark.fault("an-openers-own-errors-get-out")
    @pytest.mark.parametrize(
        ("opener", "told"),
        [("1 / 0", "raised ZeroDivisionError"), ("None", "returned None"), ("open(url)", "raised FileNotFoundError")],
    )
    def test_what_an_opener_owes_is_told(self, site: Path, opener: str, told: str) -> None:
        """
        It raises our errors and gives a store; otherwise its scheme is named, and its URL is not.
        """
        text = f"from onceward.stores import StoreKind\nKIND = StoreKind(open=lambda url, *, environment: {opener})"
        install(site, "odd-store", {"odd": "odd_opener:KIND"}, {"odd_opener": text})

        try:
            open_store("odd://user:secret@host")
            heard = ""
        except Exception as error:  # Whichever: it has to be ours.
            heard = f"{type(error).__name__}: {error}"
        finally:
            sys.modules.pop("odd_opener", None)

        assert heard.startswith(f"ConfigurationError: odd:// cannot be opened: its opener {told}")
        assert "secret" not in heard

    @pytest.mark.fault("a-kind-opens-nothing")
    @pytest.mark.parametrize(
        ("fields", "told"),
        [({}, "needs open, open_async or both"), ({"open": "shelf:open"}, "open is a function, not str")],
    )
    def test_a_kind_that_can_open_nothing_is_refused(self, fields: dict[str, Any], told: str) -> None:
        """
        Where it is written down, and not at somebody's first call.
        """
        try:
            StoreKind(**fields)
            heard = ""
        except ConfigurationError as error:
            heard = str(error)

        assert told in heard

    def test_what_cannot_be_a_scheme_is_told_what_can(self) -> None:
        """
        An underscore, say, which no URL has there.
        """
        with pytest.raises(ConfigurationError, match=r"letters, digits, .* 'my_store' is none"):
            open_store("my_store:///agent.db")

    @pytest.mark.fault("one-of-two-packages-is-chosen")
    def test_of_two_packages_with_one_scheme_neither_is_chosen(self, site: Path) -> None:
        """
        Where records are must not depend on the order of folders.
        """
        for name in ("one", "other"):
            install(site, f"{name}-store", {"twice": f"{name}_store:KIND"}, {f"{name}_store": BLOCKING_ONLY})

        with pytest.raises(ConfigurationError, match=r"one-store 1\.0 and the package other-store 1\.0"):
            open_store("twice://host/name")

    def test_a_colour_that_is_not_offered_is_refused_with_the_other_one(self, site: Path) -> None:
        """
        Whichever is missing.
        """
        install(site, "blocking", {"blocks": "blocks_only:KIND"}, {"blocks_only": BLOCKING_ONLY})
        install(site, "awaiting", {"awaits": "awaits_only:KIND"}, {"awaits_only": AWAITING_ONLY})

        open_store("blocks://").close()
        assert open_async_store("awaits://") is not None
        with pytest.raises(ConfigurationError, match="works with Gate only"):
            AsyncGate("blocks://", scope="test:acme")
        with pytest.raises(ConfigurationError, match="works with AsyncGate only"):
            Gate("awaits://", scope="test:acme")

    def test_a_service_needs_a_place_for_its_tables(self, site: Path) -> None:
        """
        Said before it starts, and without the URL, which may hold a password.
        """
        install(site, "blocking", {"blocks": "blocks_only:KIND"}, {"blocks_only": BLOCKING_ONLY})

        for url in ("blocks://user:secret@host", "mysql://user:secret@host", "redis://user:secret@host"):
            with pytest.raises(ConfigurationError, match="--store") as raised:
                load_settings({"store": url}, {})
            assert "secret" not in str(raised.value)

    def test_tables_can_only_be_where_we_have_a_driver(self, site: Path) -> None:
        """
        A kind that sends them elsewhere is told so.
        """
        text = BLOCKING_ONLY.replace("local=True", "local=True, tables=lambda url: 'mysql://host'")
        install(site, "lost-store", {"lost": "lost_store:KIND"}, {"lost_store": text})

        with pytest.raises(ConfigurationError, match="they can only be on sqlite:// or postgresql://"):
            tables_url("lost://")
