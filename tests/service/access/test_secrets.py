"""Secrets stay secret: on the disk, in the log, in errors; and so does the pepper's file."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from access_support import PEPPER, World, admin

from onceward import ConfigurationError, OncewardError
from onceward.errors import StoreCorrupt, TokenInvalid
from onceward.runtime.environment import REAL
from onceward.service.access import Access
from onceward.service.access.peppers import Peppers, load_peppers

pytestmark = pytest.mark.dose(1, of=("kind", "colour"))


def secret_of(text: str) -> bytes:
    """The secret part of a token."""
    return text[21:54].encode()


@pytest.mark.requirement("A39")
def test_no_secret_and_no_pepper_is_on_the_disk(world: World, blocking: Any, caplog: Any, capfd: Any) -> None:
    """
    After making, using, rotating and revoking tokens: in no file of the database, no log, no output, no error.
    """
    caplog.set_level(logging.DEBUG)
    blocking.create_tenant("acme")
    tokens = [blocking.create_token("acme").issued.text for _ in range(3)]
    tokens.append(blocking.rotate_token(tokens[0][8:20]).issued.text)
    errors = []
    for text in (*tokens, tokens[1][:-1], tokens[1] + "x", tokens[1].swapcase()):
        try:
            blocking.authenticate(text)
        except OncewardError as error:
            errors.append(repr(error) + str(error))
    blocking.revoke_token(tokens[1][8:20])
    with pytest.raises(TokenInvalid) as refused:
        blocking.authenticate(tokens[1])
    errors.append(repr(refused.value))

    kept = on_disk(world) + caplog.text.encode() + "".join([*errors, *capfd.readouterr()]).encode()

    assert [kept.count(one) for one in (*map(secret_of, tokens), PEPPER.encode())] == [0] * 5
    assert len(errors) >= 4
    # The check itself: the ids, which are public, are found in the same bytes.
    assert [text for text in tokens if text[8:20].encode() not in kept] == []


def on_disk(world: World) -> bytes:
    """Every byte that the database has written."""
    if world.kind == "postgres":
        admin().execute("CHECKPOINT")
        from servers import postgres

        files = [one for one in (postgres.running().folder).rglob("*") if one.is_file()]
    else:
        files = list(world.folder.iterdir())
    return b"".join(file.read_bytes() for file in files)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and no pepper in the environment."""
    monkeypatch.delenv("ONCEWARD_PEPPER", raising=False)
    return tmp_path


def opened(folder: Path, **options: Any) -> Access:
    """What belongs to a store in a folder."""
    return Access.open(f"sqlite:///{folder}/agent.db", **{"create": True, **options})


def made(folder: Path) -> str:
    """A token of a tenant, in a folder."""
    with opened(folder) as access:
        access.create_tenant("acme")
        new = access.create_token("acme")
        assert new is not None
        return new.issued.text


class TestTheFile:
    """The pepper beside a SQLite store."""

    def test_it_is_made_once_and_for_its_owner_alone(self, folder: Path) -> None:
        """
        With the first tenant, also under a careless umask; whoever opens it later finds the same.
        """
        before = os.umask(0)
        try:
            text = made(folder)
        finally:
            os.umask(before)
        pepper = (folder / "agent.access.pepper").read_bytes()

        with opened(folder) as access:
            assert access.authenticate(text).tenant == "acme"
        assert pepper == (folder / "agent.access.pepper").read_bytes()
        assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
        assert sorted(file.name for file in folder.iterdir()) == ["agent.access.db", "agent.access.pepper"]

    @pytest.mark.parametrize("mode", [0o644, 0o640, 0o606])
    def test_one_that_others_can_read_is_refused(self, folder: Path, mode: int) -> None:
        """
        With what to do about it.
        """
        made(folder)
        (folder / "agent.access.pepper").chmod(mode)

        with pytest.raises(ConfigurationError, match="chmod 600"):
            opened(folder)

    def test_a_link_is_refused(self, folder: Path) -> None:
        """
        Whoever can put a link there could choose the pepper.
        """
        made(folder)
        file = folder / "agent.access.pepper"
        file.rename(folder / "elsewhere")
        file.symlink_to(folder / "elsewhere")

        with pytest.raises(ConfigurationError, match="no link"):
            opened(folder)

    def test_without_it_nothing_is_believed_and_nothing_is_made(self, folder: Path) -> None:
        """
        A service that starts says so; a new pepper would only hide it.
        """
        text = made(folder)
        (folder / "agent.access.pepper").unlink()

        with opened(folder, create=False) as access:
            with pytest.raises(TokenInvalid):
                access.authenticate(text)
            with pytest.raises(ConfigurationError, match="pepper that is not known here"):
                access.check()
        with opened(folder) as access, pytest.raises(ConfigurationError, match="pepper that is not known here"):
            access.create_token("acme")

    def test_several_that_make_it_at_once_make_one(self, folder: Path) -> None:
        """
        And nobody ever reads half of one.
        """
        import threading

        file, found = folder / "pepper", []
        start = threading.Barrier(8)

        def make() -> None:
            start.wait()
            found.append(load_peppers(file, REAL.random, create=True).current)

        crowd = [threading.Thread(target=make) for _ in range(8)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join()

        assert (len(found), len(set(found))) == (8, 1)
        assert [file] == list(folder.iterdir())


class TestTheVariable:
    """The pepper from the environment."""

    def test_it_can_be_replaced(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        New,old: old tokens go on, new ones have the new pepper; when the last old one is gone, so is the need for it.
        """
        monkeypatch.setenv("ONCEWARD_PEPPER", "a" * 40)
        old = made(folder)
        monkeypatch.setenv("ONCEWARD_PEPPER", f"{'b' * 40}, {'a' * 40}")
        with opened(folder) as access:
            assert access.authenticate(old)
            new = access.rotate_token(old[8:20], overlap=0)
            access.revoke_token(old[8:20])
        monkeypatch.setenv("ONCEWARD_PEPPER", "b" * 40)
        with opened(folder) as access:
            access.check()
            assert new is not None
            assert access.authenticate(new.issued.text)

    def test_to_do_without_has_to_be_spoken(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        And tokens without a pepper are believed only where that is said.
        """
        monkeypatch.setenv("ONCEWARD_PEPPER", "none")
        text = made(folder)
        with opened(folder) as access:
            assert access.authenticate(text)
        monkeypatch.setenv("ONCEWARD_PEPPER", "b" * 40)
        with opened(folder) as access, pytest.raises(TokenInvalid):
            access.authenticate(text)

    @pytest.mark.parametrize("value", ["brief", "a" * 31, "a" * 40 + ",", "ä" * 40, "a\x00" * 40])
    def test_a_poor_one_is_refused(self, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        And not repeated.
        """
        monkeypatch.setattr(os, "environ", {"ONCEWARD_PEPPER": value})

        with pytest.raises(ConfigurationError) as refused:
            load_peppers(None, REAL.random, create=True)
        assert value not in str(refused.value)

    def test_on_a_server_there_has_to_be_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        There is no folder beside it. Looking and revoking need none.
        """
        monkeypatch.delenv("ONCEWARD_PEPPER", raising=False)

        with pytest.raises(ConfigurationError, match="ONCEWARD_PEPPER=none"):
            load_peppers(None, REAL.random, create=True)
        assert load_peppers(None, REAL.random, create=False).current == ""

    def test_two_purposes_have_two_digests(self) -> None:
        """
        What is a tenant's tombstone can be nobody's token.
        """
        peppers = Peppers([PEPPER])

        assert peppers.digest(b"token", b"x") != peppers.digest(b"tenant", b"x")
        assert peppers.fits(b"token", b"x", peppers.current, peppers.digest(b"token", b"x"))
        assert not peppers.fits(b"token", b"x", "unknown", peppers.digest(b"token", b"x", "unknown"))


class TestOpening:
    """Where it is kept."""

    @pytest.mark.parametrize("url", ["memory://", "redis://localhost"])
    def test_other_stores_are_refused(self, url: str) -> None:
        """
        With which ones will do.
        """
        with pytest.raises(ConfigurationError, match="SQLite or PostgreSQL"):
            Access.open(url)

    def test_nothing_is_made_by_looking(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Only the first tenant makes it.
        """
        if world.kind == "postgres":
            tables = (
                "tenants, onceward_tokens, onceward_reservations, onceward_topups, onceward_erasures, onceward_access"
            )
            world.rows(f"DROP TABLE IF EXISTS onceward_{tables}")

        with pytest.raises(ConfigurationError, match="tenant create"):
            world.open(create=False)
        if world.kind == "sqlite":
            assert list(world.folder.glob("*.access.*")) == []
        world.open().close()
        world.open(create=False).close()

    def test_a_later_schema_is_refused(self, world: World) -> None:
        """
        It was written by a version that knows more.
        """
        world.open().close()
        world.rows("UPDATE onceward_access SET value = 99 WHERE name = 'schema_version'")
        try:
            with pytest.raises(OncewardError, match="schema version 99") as refused:
                world.open()
            assert refused.value.code == "schema_mismatch"
        finally:
            world.rows("UPDATE onceward_access SET value = 1 WHERE name = 'schema_version'")

    def test_tables_that_do_not_say_their_version_are_not_guessed_about(self, world: World) -> None:
        """
        Somebody deleted the row: that is told, with what to do.
        """
        world.open().close()
        world.rows("DELETE FROM onceward_access WHERE name = 'schema_version'")
        try:
            with pytest.raises(StoreCorrupt, match="restore onceward_access"):
                world.open()
        finally:
            world.rows("INSERT INTO onceward_access (name, value) VALUES ('schema_version', 2)")

    def test_several_that_open_it_first_make_it_once(self, world: World) -> None:
        """
        Replicas that start together.
        """
        import threading

        if world.kind == "postgres":
            tables = (
                "tenants, onceward_tokens, onceward_reservations, onceward_topups, onceward_erasures, onceward_access"
            )
            world.rows(f"DROP TABLE IF EXISTS onceward_{tables}")
        ended: list[Any] = []

        def start() -> None:
            try:
                world.open().close()
                ended.append(None)
            except OncewardError as error:
                ended.append(error)

        crowd = [threading.Thread(target=start) for _ in range(4)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join()

        assert ended == [None] * 4
