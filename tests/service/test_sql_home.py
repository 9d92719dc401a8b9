"""The home of a store's databases: the rules, on both databases, with a clock that a test moves."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from onceward import ConfigurationError, StoreUnavailable
from onceward.runtime import failpoints
from onceward.runtime.environment import REAL
from onceward.service.private_folder import make_private_folder
from onceward.service.sql_home import (
    FOLDER,
    IDENTITY,
    SCHEMA,
    SqlHome,
    SqlHomeElsewhere,
    adopt_sql_home,
    find_sql_home,
    folder_home,
    hold_folder,
    hold_sql_home,
)
from onceward.service.sql_home.folder_identity import folder_place, has_store
from onceward.service.sql_home.home_table import HELD_SECONDS
from onceward.service.sql_home.sql_home import RENEW_SECONDS
from onceward.stores.tables import Sql, SqlSteps, open_tables
from onceward.testing.clock import StillEnvironment
from servers import postgres

T = TypeVar("T")
ONE, TWO = SqlHome(FOLDER, "1" * 32, "/one on alpha"), SqlHome(FOLDER, "2" * 32, "/two on beta")
HERE, THERE = "here", "there"
PATIENCE_SECONDS = 120.0


class Still(StillEnvironment):
    """Whoever sleeps sleeps for ever: a test says when time passes, and renews by hand."""

    async def asleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


class HomeStore:
    """A store, and its time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.environment = Still()

    def pass_time(self, seconds: float) -> None:
        """On SQLite the clock is the environment's; of a server's rows every instant is moved into the past."""
        self.environment.advance(seconds)
        if self.url.startswith("postgresql"):
            self._write("UPDATE onceward_sql_holders SET renewed_at = renewed_at - :micros", seconds)

    def _write(self, sql: str, seconds: float) -> None:
        def steps() -> SqlSteps[None]:
            yield Sql(sql, {"micros": round(seconds * 1_000_000)})

        driver = open_tables(self.url, SCHEMA, self.environment, create=False)
        driver.transact("sql_home.renew", steps)
        driver.close()

    def hold(self, home: SqlHome, place: str | None = HERE) -> Any:
        return hold_sql_home(self.url, home, place, self.environment)

    def adopt(self, home: SqlHome, replacing: str | None = None) -> SqlHome | None:
        return adopt_sql_home(self.url, home, replacing, self.environment)

    @property
    def home(self) -> str | None:
        found = find_sql_home(self.url, self.environment)
        return None if found is None else found.id


@pytest.fixture(params=postgres.kinds())
def store(request: pytest.FixtureRequest, tmp_path: Path) -> HomeStore:
    """A store that is new."""
    if request.param == "sqlite":
        return HomeStore(f"sqlite:///{tmp_path}/records.db")
    made: HomeStore = request.getfixturevalue("server_store")
    return made


@pytest.fixture
def server_store() -> Iterator[HomeStore]:
    """One on PostgreSQL."""
    server = postgres.running()
    server.execute("CREATE DATABASE sql_home")
    yield HomeStore(server.url("sql_home"))
    server.execute("DROP DATABASE sql_home WITH (FORCE)")


class TestOneHome:
    """A store's databases are in one place."""

    @pytest.mark.fault("a-second-folder-is-taken")
    def test_the_first_is_remembered_and_another_is_refused(self, store: HomeStore) -> None:
        """
        Also when the first is not there any more. Nothing is changed by the one that is refused.
        """

        async def story() -> None:
            async with store.hold(ONE):
                pass
            with pytest.raises(SqlHomeElsewhere) as refused:
                async with store.hold(TWO):
                    pass
            for words in (str(ONE.label), ONE.id, TWO.label, "--sql postgresql://", "--without-sql"):
                assert words in str(refused.value)
            assert f"onceward store adopt --folder PATH --replacing {ONE.id}" in str(refused.value)

        assert store.home is None
        asyncio.run(story())
        assert store.home == ONE.id

    def test_of_many_that_come_at_once_one_wins(self, store: HomeStore) -> None:
        """
        Each with another folder. Who wins is what the store remembers.
        """
        homes = [SqlHome(FOLDER, f"{number:032x}", "x") for number in range(8)]

        async def claim(home: SqlHome) -> str | None:
            try:
                async with store.hold(home, home.id):
                    return home.id
            except SqlHomeElsewhere:
                return None

        async def story() -> list[str | None]:
            async with store.hold(homes[0], None):  # The tables are there, and nothing is in them.
                pass
            store._write("DELETE FROM onceward_sql_homes WHERE :micros = :micros", 0)
            return await asyncio.gather(*map(claim, homes))

        won = [one for one in asyncio.run(story()) if one is not None]
        assert won == [store.home]

    @pytest.mark.fault("two-folders-start-at-once")
    @pytest.mark.skipif(not postgres.wanted(), reason="STORES leaves postgres out")
    def test_one_that_comes_while_another_claims_waits_for_it(self, server_store: HomeStore) -> None:
        """
        The first has written and not committed; the second cannot see it, and must not believe that there is nobody.
        """
        written, go_on = threading.Event(), threading.Event()

        def pause() -> None:
            if not written.is_set():
                written.set()
                go_on.wait(PATIENCE_SECONDS)

        async def claim(home: SqlHome) -> str:
            try:
                async with server_store.hold(home, home.id):
                    return "won"
            except SqlHomeElsewhere:
                return "refused"

        open_tables(server_store.url, SCHEMA, REAL, create=True).close()
        failpoints.arm("sql_home.claim.written", pause)
        try:
            with ThreadPoolExecutor() as threads:
                first = threads.submit(lambda: asyncio.run(claim(ONE)))
                assert written.wait(PATIENCE_SECONDS)
                second = threads.submit(lambda: asyncio.run(claim(TWO)))
                waits = "SELECT 1 FROM pg_stat_activity WHERE datname = 'sql_home' AND wait_event_type = 'Lock'"
                end = REAL.monotonic() + PATIENCE_SECONDS
                while not postgres.running().execute(waits):
                    assert REAL.monotonic() < end
                    assert not second.done()
                go_on.set()
                assert (first.result(), second.result()) == ("won", "refused")
        finally:
            go_on.set()
            failpoints.disarm()
        assert server_store.home == ONE.id

    def test_a_folder_that_moved_is_the_same_one(self, store: HomeStore) -> None:
        """
        The store notes where it is now, for people.
        """

        async def story() -> None:
            async with store.hold(ONE):
                pass
            async with store.hold(ONE._replace(label="/elsewhere on gamma"), THERE):
                pass

        asyncio.run(story())
        found = find_sql_home(store.url, store.environment)
        assert found is not None
        assert (found.id, found.label) == (ONE.id, "/elsewhere on gamma")


class TestOnePlace:
    """The same databases are open at one place: a copy of a folder says that it is the folder."""

    def test_services_at_one_place_share_them(self, store: HomeStore) -> None:
        """
        SQLite's locks hold between processes of one machine.
        """

        async def story() -> None:
            async with store.hold(ONE), store.hold(ONE):
                pass

        asyncio.run(story())

    @pytest.mark.fault("a-copy-of-a-folder-is-the-folder")
    def test_another_place_is_refused_until_the_first_has_let_go(self, store: HomeStore) -> None:
        """
        And the message says which process it is, and for how long its word holds.
        """

        async def story() -> None:
            async with store.hold(ONE):
                with pytest.raises(SqlHomeElsewhere, match=f"process {os.getpid()}") as refused:
                    async with store.hold(ONE, THERE):
                        pass
                assert f"lapses in {HELD_SECONDS:g} s" in str(refused.value)
            async with store.hold(ONE, THERE):
                pass

        asyncio.run(story())

    def test_one_that_died_is_believed_for_a_while(self, store: HomeStore) -> None:
        """
        A machine that is gone cannot let go.
        """

        async def story() -> None:
            async with store.hold(ONE):
                store.pass_time(HELD_SECONDS - 1)
                with pytest.raises(SqlHomeElsewhere, match="lapses in 1 s"):
                    async with store.hold(ONE, THERE):
                        pass
                store.pass_time(2)
                async with store.hold(ONE, THERE):
                    pass

        asyncio.run(story())

    def test_signs_of_life_keep_it(self, store: HomeStore) -> None:
        """
        For as long as they come.
        """

        async def story() -> None:
            async with store.hold(ONE) as hold:
                for _ in range(5):
                    store.pass_time(RENEW_SECONDS)
                    await hold.renew()
                    with pytest.raises(SqlHomeElsewhere):
                        async with store.hold(ONE, THERE):
                            pass
                assert not hold.is_lost

        asyncio.run(story())

    @pytest.mark.fault("a-lost-hold-is-not-noticed")
    def test_one_that_was_taken_for_dead_stops_when_it_comes_back(self, store: HomeStore) -> None:
        """
        A machine was paused, and another one has begun with a copy: what was paused runs no more SQL.
        """
        stopped: list[str] = []

        async def stop() -> None:
            stopped.append("SQL")

        async def story() -> None:
            async with store.hold(ONE) as paused:
                paused.when_lost(stop)
                store.pass_time(HELD_SECONDS + 1)
                async with store.hold(ONE, THERE) as now:
                    await paused.renew()
                    await paused.renew()
                    await now.renew()
                    assert (paused.is_lost, now.is_lost, stopped) == (True, False, ["SQL"])

        asyncio.run(story())

    def test_one_that_was_only_late_goes_on(self, store: HomeStore) -> None:
        """
        Nobody else came meanwhile.
        """

        async def story() -> None:
            async with store.hold(ONE) as late:
                store.pass_time(HELD_SECONDS + 1)
                async with store.hold(ONE, HERE):  # It has swept the lapsed one away.
                    await late.renew()
                    assert not late.is_lost
                with pytest.raises(SqlHomeElsewhere):
                    async with store.hold(ONE, THERE):
                        pass

        asyncio.run(story())

    def test_bookkeeping_does_no_harm(self, store: HomeStore, caplog: pytest.LogCaptureFixture) -> None:
        """
        A store that cannot be reached, or whatever else is wrong with it, is no reason to stop.
        """

        async def story() -> None:
            async with store.hold(ONE) as hold:
                hold._tables._tables.driver.close()
                await hold.renew()
                await hold._tables.close()
                await hold.renew()
                assert not hold.is_lost

        asyncio.run(story())
        assert [one.levelname for one in caplog.records] == ["WARNING"] * 3


class TestAdopting:
    """An operator says that databases are somewhere else now."""

    @pytest.mark.fault("any-folder-is-adopted")
    def test_what_is_replaced_has_to_be_named(self, store: HomeStore) -> None:
        """
        By its id, which the refusal shows: nobody replaces what somebody else has just replaced.
        """
        assert store.adopt(ONE) is None
        for wrong in (None, "", TWO.id, "3" * 32):
            with pytest.raises(SqlHomeElsewhere, match=f"--replacing {ONE.id}"):
                store.adopt(TWO, wrong)
        assert store.home == ONE.id
        replaced = store.adopt(TWO, ONE.id)
        assert replaced is not None
        assert (replaced.id, store.home) == (ONE.id, TWO.id)
        assert store.adopt(TWO, ONE.id) is None  # Once more does no harm.

    def test_not_while_a_service_has_them_open(self, store: HomeStore) -> None:
        """
        It would go on, and a key would run in both.
        """

        async def story() -> None:
            async with store.hold(ONE):
                with pytest.raises(SqlHomeElsewhere, match="Stop that service"):
                    store.adopt(TWO, ONE.id)
                assert store.home == ONE.id

        asyncio.run(story())
        assert store.adopt(TWO, ONE.id) is not None

    def test_a_service_that_was_away_meanwhile_stops(self, store: HomeStore) -> None:
        """
        It had lapsed, another folder was adopted, and it comes back.
        """

        async def story() -> None:
            async with store.hold(ONE) as away:
                store.pass_time(HELD_SECONDS + 1)
                store.adopt(TWO, ONE.id)
                await away.renew()
                assert away.is_lost

        asyncio.run(story())


class TestTheFolder:
    """Its identity, and its place."""

    def test_it_is_made_once_and_is_private(self, tmp_path: Path) -> None:
        """
        However many make it at once.
        """

        async def story() -> set[str]:
            made = await asyncio.gather(*(asyncio.to_thread(folder_home, tmp_path) for _ in range(16)))
            return {one.id for one in made}

        ids = asyncio.run(story())
        assert ids == {(tmp_path / IDENTITY).read_text().strip()}
        assert (tmp_path / IDENTITY).stat().st_mode & 0o777 == 0o600
        assert [one.name for one in tmp_path.iterdir()] == [IDENTITY]

    @pytest.mark.fault("an-identity-is-not-on-the-disk")
    def test_it_is_on_the_disk_before_the_store_hears_of_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        The file and its name: a store that remembers a folder which the power took away would refuse everybody.
        """
        synced: list[bool] = []
        fsync = os.fsync

        def noted(handle: int) -> None:
            synced.append(Path(f"/proc/self/fd/{handle}").is_dir())
            fsync(handle)

        monkeypatch.setattr(os, "fsync", noted)
        folder_home(tmp_path)
        assert synced == [False, True]

    @pytest.mark.parametrize("text", ["", "x", "0" * 31, "0" * 33, "G" * 32])
    def test_one_that_is_damaged_is_refused_and_left_as_it_is(self, tmp_path: Path, text: str) -> None:
        """
        It is not made anew: the store would take the folder for another one.
        """
        (tmp_path / IDENTITY).touch(mode=0o600)
        (tmp_path / IDENTITY).write_text(text)
        with pytest.raises(ConfigurationError, match="damaged"):
            folder_home(tmp_path)
        assert (tmp_path / IDENTITY).read_text() == text

    def test_links_and_files_that_others_can_read_are_refused(self, tmp_path: Path) -> None:
        """
        Whoever could write it could say which folder this is.
        """
        (tmp_path / "target").touch(mode=0o600)
        (tmp_path / "target").write_text("0" * 32)
        (tmp_path / IDENTITY).symlink_to(tmp_path / "target")
        with pytest.raises(StoreUnavailable, match="no link"):
            folder_home(tmp_path)
        (tmp_path / IDENTITY).unlink()
        (tmp_path / IDENTITY).touch()
        (tmp_path / IDENTITY).chmod(0o644)
        with pytest.raises(ConfigurationError, match="chmod 600"):
            folder_home(tmp_path)

    def test_a_copy_has_its_identity_and_another_place(self, tmp_path: Path) -> None:
        """
        Moved within a file system, it has both.
        """
        (tmp_path / "one").mkdir()
        home, place = folder_home(tmp_path / "one"), folder_place(tmp_path / "one")
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        assert folder_home(tmp_path / "two").id == home.id
        assert folder_place(tmp_path / "two") != place
        (tmp_path / "one").rename(tmp_path / "three")
        assert (folder_home(tmp_path / "three").id, folder_place(tmp_path / "three")) == (home.id, place)

    def test_a_store_inside_goes_with_the_folder(self, tmp_path: Path) -> None:
        """
        A copy has its own store then, and nobody needs to be told that this one is open: a copy starts at once.
        """
        folder = tmp_path / "data"
        make_private_folder(str(folder))
        url = f"sqlite:///{folder}/records.db"

        async def story() -> None:
            async with hold_folder(url, str(folder)):
                shutil.copytree(folder, tmp_path / "copy")
                async with hold_folder(f"sqlite:///{tmp_path}/copy/records.db", str(tmp_path / "copy")):
                    pass

        asyncio.run(story())
        assert has_store(folder, url)
        assert not has_store(folder, f"sqlite:///{tmp_path}/records.db")
        assert not has_store(folder, "postgresql://x@127.0.0.1:1/x")
