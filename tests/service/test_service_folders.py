"""Services that share a store: which folders they may have, and that no key runs twice whatever they try."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from raw_http import until
from service_support import INSERT, TABLE, Heard, Served, children

from onceward.cli import main
from onceward.runtime.environment import REAL
from onceward.service.access import Access
from onceward.service.sql_home import IDENTITY, SCHEMA, find_sql_home
from onceward.stores.tables import Sql, SqlSteps, open_tables
from servers import postgres, tenants

pytestmark = [pytest.mark.dose(1, of="shared"), pytest.mark.slow]

PEPPER = "a pepper of more than thirty-two characters"
PLACE = "/v1/db/demo/shop"
KEYS = 12
DYING = (
    "import sys, onceward.service.sql_home; from onceward.cli import main; from onceward.runtime import failpoints; "
    "failpoints.arm({at!r}, 'kill'); sys.exit(main(sys.argv[1:]))"
)
"""A service that is killed at a certain point of its start."""
RENEWING = (
    "import sys, onceward.service.sql_home.sql_home as home; from onceward.cli import main; "
    "home.RENEW_SECONDS = 0.2; sys.exit(main(sys.argv[1:]))"
)
"""One that tells the store so often that it is alive: of itself, it would take ten seconds to hear of another."""


class SharedStore:
    """A store, and services in front of it, each with a folder."""

    def __init__(self, url: str, root: Path) -> None:
        self.url = url
        self.root = root
        self.running: list[Served] = []

    def folder(self, name: str) -> Path:
        """One for a service; it is made."""
        made = self.root / name
        made.mkdir(mode=0o700, exist_ok=True)
        return made

    def start(self, name: str, *flags: str, **options: Any) -> Served:
        """A service with that folder; `RuntimeError` with what it said, if it does not start."""
        served = Served.started(self.folder(name), "--store", self.url, *flags, **options)
        self.running.append(served)
        return served

    def refusal(self, name: str, *flags: str) -> str:
        """What a service says that does not start."""
        with pytest.raises(RuntimeError, match="did not start") as refused:
            self.start(name, *flags)
        return str(refused.value)

    def token(self) -> str:
        """For the tenant demo, which the first service has made."""
        with Access.open(self.url) as access:
            made = access.create_token("demo", environment="test", role="admin")
        return "" if made is None else made.issued.text

    def stop(self) -> list[int]:
        """End all of them."""
        codes = [one.stop() for one in self.running]
        self.running.clear()
        return codes

    @property
    def home(self) -> str | None:
        """The folder that the store knows."""
        found = find_sql_home(self.url)
        return None if found is None else found.id

    def write(self, sql: str) -> None:
        """Reach into our own tables."""

        def steps() -> SqlSteps[None]:
            yield Sql(sql, {})

        driver = open_tables(self.url, SCHEMA, REAL, create=False)
        driver.transact("sql_home.renew", steps)
        driver.close()


@pytest.fixture(params=postgres.kinds())
def shared(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedStore]:
    """A store that is in none of the folders."""
    monkeypatch.setenv("ONCEWARD_PEPPER", PEPPER)
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/shared.db"
    else:
        postgres.running().execute("CREATE DATABASE folders")
        url = postgres.running().url("folders")
    made = SharedStore(url, tmp_path)
    try:
        yield made
    finally:
        for one in made.running:
            one.process.kill()
        made.stop()
        if request.param != "sqlite":
            postgres.running().execute("DROP DATABASE folders WITH (FORCE)")


def write_once(served: Served, token: str, key: str = "k") -> Heard:
    """A keyed write, in a database that is made if need be."""
    served.call("PUT", PLACE, token=token)
    served.query(PLACE, TABLE.replace("TABLE", "TABLE IF NOT EXISTS"), token=token)
    return served.query(PLACE, INSERT, [key, "x"], key=key, token=token)


class TestTwoFolders:
    """One store, and a folder for each of two services."""

    @pytest.mark.fault("a-second-folder-is-taken")
    def test_the_second_is_refused_and_no_key_runs_twice(self, shared: SharedStore) -> None:
        """
        Also after the first has ended, and nothing is made in its folder but its identity. The message says what to do.
        """
        first = shared.start("one")
        assert write_once(first, shared.token()).status == 200
        while_it_runs = shared.refusal("two")
        first.stop()
        told = shared.refusal("two")

        identity = (shared.root / "one" / IDENTITY).read_text().strip()
        assert shared.home == identity
        for message in (while_it_runs, told):
            assert str(shared.root / "one") in message
            assert str(shared.root / "two") in message
            assert "one key could run twice" in message
            assert "--without-sql" in message
            assert f"onceward store adopt --folder PATH --replacing {identity}" in message
        assert sorted(one.name for one in (shared.root / "two").iterdir()) == [IDENTITY, "log"]

    def test_of_two_that_start_at_once_one_serves(self, shared: SharedStore) -> None:
        """
        On a store that neither has seen before.
        """
        heard: list[str] = []

        def start(name: str) -> None:
            try:
                shared.start(name)
            except RuntimeError as error:
                heard.append(str(error))

        with ThreadPoolExecutor() as threads:
            list(threads.map(start, ("one", "two", "three")))
        [serves] = shared.running

        assert len(heard) == 2
        assert all("one key could run twice" in one for one in heard)
        assert shared.home == (serves.folder / IDENTITY).read_text().strip()

    @pytest.mark.parametrize("at", ["sql_home.identified", "sql_home.claim.before", "sql_home.claim.written"])
    @pytest.mark.dose(1)
    def test_one_that_dies_before_the_store_knows_it_leaves_the_store_free(self, shared: SharedStore, at: str) -> None:
        """
        Its folder has an identity by then, and keeps it. Whoever starts next is the one, it or another.
        """
        with pytest.raises(RuntimeError, match="did not start"):
            shared.start("one", program=("-c", DYING.format(at=at)))
        identity = (shared.root / "one" / IDENTITY).read_text()
        assert shared.home is None
        shared.start("one").stop()
        assert (shared.root / "one" / IDENTITY).read_text() == identity
        assert shared.home == identity.strip()

    def test_one_that_dies_after_it_starts_again_at_once(self, shared: SharedStore) -> None:
        """
        Killed in the midst of its start, and in the midst of its work: at its own place it waits for nobody.
        """
        with pytest.raises(RuntimeError, match="did not start"):
            shared.start("one", program=("-c", DYING.format(at="sql_home.claim.after")))
        first = shared.start("one")
        token = shared.token()
        write_once(first, token)
        first.process.kill()
        again = shared.start("one")

        assert write_once(again, token).headers.get("idempotency-replayed") == "true"
        assert "one key could run twice" in shared.refusal("two")


class TestOneFolder:
    """Two services on one machine, with one folder and one store."""

    def test_a_key_that_is_sent_to_both_at_once_runs_once(self, shared: SharedStore) -> None:
        """
        Each database decides a key in its own transaction, whichever process asks.
        """
        services = [shared.start("one"), shared.start("one")]
        token = shared.token()
        write_once(services[0], token, "first")

        def send(number: int) -> Heard:
            key = f"key-{number // 4}"
            return services[number % 2].query(PLACE, INSERT, [key, "x"], key=key, token=token)

        with ThreadPoolExecutor(8) as threads:
            heard = list(threads.map(send, range(4 * KEYS)))
        services[0].token = token

        assert {one.status for one in heard} == {200}
        assert sum(one.headers.get("idempotency-replayed") is None for one in heard) == KEYS
        assert services[0].count(PLACE) == KEYS + 1
        assert shared.stop() == [0, 0]


class TestCopies:
    """A copy of a folder says that it is the folder."""

    @pytest.mark.fault("a-copy-of-a-folder-is-the-folder")
    def test_it_is_refused_while_the_folder_is_open(self, shared: SharedStore) -> None:
        """
        Killed or not: for half a minute a service is taken to be alive. When it has ended, the copy is the folder.
        """
        first = shared.start("one")
        token = shared.token()
        write_once(first, token)
        shutil.copytree(shared.root / "one", shared.root / "two")
        while_it_runs = shared.refusal("two")
        first.process.kill()
        first.process.wait()
        when_it_is_killed = shared.refusal("two")
        shared.start("one").stop()
        shared.write("DELETE FROM onceward_sql_holders")  # Half a minute passes.
        second = shared.start("two")

        for message in (while_it_runs, when_it_is_killed):
            assert "is in use elsewhere" in message
            assert f"{shared.root / 'one'}" in message
            assert f"process {first.process.pid} on" in message
        assert write_once(second, token).headers.get("idempotency-replayed") == "true"

    def test_a_folder_that_is_moved_or_restored_starts(self, shared: SharedStore) -> None:
        """
        Its identity goes with it, and keys that ran replay.
        """
        token = ""
        first = shared.start("one")
        token = shared.token()
        write_once(first, token)
        first.stop()
        (shared.root / "one").rename(shared.root / "two")
        moved = shared.start("two")
        assert write_once(moved, token).headers.get("idempotency-replayed") == "true"
        moved.stop()
        shutil.copytree(shared.root / "two", shared.root / "three")
        shutil.rmtree(shared.root / "two")
        restored = shared.start("three")
        assert write_once(restored, token).headers.get("idempotency-replayed") == "true"

    @pytest.mark.fault("a-lost-hold-stops-nothing")
    def test_a_service_whose_databases_are_somebody_elses_runs_no_more_sql(self, shared: SharedStore) -> None:
        """
        It was paused for so long that another place began. It still answers, and refuses SQL as one that shuts down.
        """
        first = shared.start("one", program=("-c", RENEWING))
        token = shared.token()
        write_once(first, token)
        shared.write(
            "INSERT INTO onceward_sql_holders (id, place, label, renewed_at) VALUES ('x', 'there', 'a copy', :now + "
            "3600000000)"
        )
        shared.write("DELETE FROM onceward_sql_holders WHERE id <> 'x'")
        until(lambda: "no longer runs SQL" in first.log)
        refused = until_refused(lambda: first.query(PLACE, INSERT, ["k-2", "x"], key="k-2", token=token))

        assert (refused.status, refused.code) == (503, "engine_closed")
        assert first.call("GET", "/health", token="").status == 200
        assert first.call("GET", "/v1/usage", token=token).status == 200


def until_refused(call: Callable[[], Heard]) -> Heard:
    """The first answer that is none."""
    heard: list[Heard] = []

    def is_refused() -> bool:
        heard.append(call())
        return heard[-1].status != 200

    until(is_refused)
    return heard[-1]


class TestAdopting:
    """The folder is lost, and somebody says so."""

    def test_a_lost_folder_is_replaced_by_a_spoken_word_that_leaves_a_trace(
        self, shared: SharedStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        The command is in the message. Not while a service has the old one open, and not for another one.
        """
        first = shared.start("one")
        token = shared.token()
        write_once(first, token)
        identity = (shared.root / "one" / IDENTITY).read_text().strip()
        monkeypatch.setenv("ONCEWARD_STORE", shared.url)
        command = ["store", "adopt", "--folder", str(shared.folder("two")), "--json", "--reason", "the disk is gone"]
        while_it_runs = main([*command, "--replacing", identity])
        assert "Stop that service" in capsys.readouterr().err
        first.stop()
        shutil.rmtree(shared.root / "one")
        assert "one key could run twice" in shared.refusal("two")
        wrong = main([*command, "--replacing", "0" * 32])
        capsys.readouterr()
        done = main([*command, "--replacing", identity])
        told = json.loads(capsys.readouterr().out)
        main(["audit", "list", "--action", "sql.adopt", "--json"])
        decisions = json.loads(capsys.readouterr().out)["decisions"]
        second = shared.start("two")

        assert (while_it_runs, wrong, done) == (2, 2, 0)
        assert (told["replaced"], told["id"]) == (identity, shared.home)
        assert sorted(one["outcome"] for one in decisions) == ["done", "failed", "failed"]
        [kept] = [one for one in decisions if one["outcome"] == "done"]
        assert (kept["reason"], kept["before"]["id"], kept["after"]["id"]) == ("the disk is gone", identity, told["id"])
        assert write_once(second, token).headers.get("idempotency-replayed") is None  # As the command says.


class TestWithoutSql:
    """A service that shares the store, and no folder."""

    def test_it_offers_everything_else(self, shared: SharedStore) -> None:
        """
        Beside one with SQL: no endpoint, no process, no promise about SQL; its tokens, balances and records are shared.
        """
        first = shared.start("one")
        second = shared.start("two", "--without-sql", "--mcp")
        token = shared.token()
        write_once(first, token)
        delta = {"customerId": "c", "delta": 5, "reason": "r", "referenceId": "ref-1"}
        booked = [one.call("POST", "/api/v1/balance/delta", delta, token=token) for one in (second, first)]
        contract, openapi = second.contract(), second.call("GET", "/openapi.json", token="").document
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        tools = second.call("POST", "/mcp", asked, token=token).document["result"]["tools"]

        assert second.call("PUT", PLACE, token=token).status == 404
        assert second.call("POST", f"{PLACE}/query", {"sql": "SELECT 1"}, token=token).status == 404
        assert "SQL" not in [one["name"] for one in contract["apps"]]
        assert [path for path in openapi["paths"] if path.startswith("/v1/db")] == []
        assert {one["name"] for one in tools} == {"emit", "derive", "records_in_doubt"}
        assert children(second.process.pid) == []
        assert [one.status for one in booked] == [200, 200]
        assert [one.document["duplicate"] for one in booked] == [False, True]
        assert sorted(one.name for one in (shared.root / "two").iterdir()) == ["log"]
        assert (shared.root / "one" / IDENTITY).read_text().strip() == shared.home
        assert shared.stop() == [0, 0]

    def test_it_needs_nobody_with_sql(self, shared: SharedStore) -> None:
        """
        The store then knows of no folder, and one may come later.
        """
        alone = shared.start("two", "--without-sql")
        assert shared.home is None
        assert alone.call("GET", "/v1/usage").status == 200
        shared.start("one")
        assert shared.home == (shared.root / "one" / IDENTITY).read_text().strip()


@pytest.mark.skipif(not postgres.wanted(), reason="STORES leaves postgres out")
class TestDatabasesOnPostgres:
    """One store, and databases on PostgreSQL."""

    @pytest.fixture
    def on_server(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedStore]:
        """A store that is a file, and a prepared database."""
        monkeypatch.setenv("ONCEWARD_PEPPER", PEPPER)
        made = SharedStore(f"sqlite:///{tmp_path}/shared.db", tmp_path)
        try:
            yield made
        finally:
            for one in made.running:
                one.process.kill()
            made.stop()

    @pytest.mark.fault("a-second-folder-is-taken")
    def test_a_folder_is_refused_beside_it_and_it_beside_a_folder(
        self, on_server: SharedStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Several services share the database. Moving to it, or away from it, is said once, and leaves a trace.
        """
        sql = tenants.prepared("adopted")
        on_server.start("one").stop()
        folder = (on_server.root / "one" / IDENTITY).read_text().strip()
        told = on_server.refusal("two", "--sql", sql)
        monkeypatch.setenv("ONCEWARD_STORE", on_server.url)
        monkeypatch.setenv("ONCEWARD_SERVE_SQL", sql)
        assert main(["store", "adopt", "--replacing", folder]) == 0
        monkeypatch.delenv("ONCEWARD_SERVE_SQL")
        capsys.readouterr()
        services = [on_server.start(name, "--sql", sql) for name in ("two", "three")]
        token = on_server.token()
        answers = [write_once(one, token) for one in services]

        assert f"onceward store adopt --sql URL --replacing {folder}" in told
        assert [one.headers.get("idempotency-replayed") for one in answers] == [None, "true"]
        assert "one key could run twice" in on_server.refusal("one")
        assert on_server.home not in (None, folder)
        back = ["store", "adopt", "--folder", str(on_server.root / "one"), "--replacing", on_server.home or ""]
        assert main(back) == 2
        assert "Stop that service" in capsys.readouterr().err


def test_a_folder_and_a_store_from_before_are_adopted_at_the_first_start(shared: SharedStore) -> None:
    """
    There are databases, and neither an identity nor tables for it: as an older version has left them.
    """
    first = shared.start("one")
    token = shared.token()
    write_once(first, token)
    first.stop()
    (shared.root / "one" / IDENTITY).unlink()
    if shared.url.startswith("sqlite"):
        for file in shared.root.glob("shared.sql_home.db*"):
            file.unlink()
    else:
        postgres.running().execute("DROP TABLE onceward_sql_home, onceward_sql_homes, onceward_sql_holders", "folders")
    again = shared.start("one")

    assert write_once(again, token).headers.get("idempotency-replayed") == "true"
    assert shared.home == (shared.root / "one" / IDENTITY).read_text().strip()


def test_a_service_that_ends_lets_go(shared: SharedStore) -> None:
    """
    By SIGTERM: a copy elsewhere can begin at once.
    """
    first = shared.start("one")
    shutil.copytree(shared.root / "one", shared.root / "two")
    first.process.send_signal(signal.SIGTERM)
    first.process.wait(60)
    assert shared.start("two").stop() == 0
