"""Opening: a server that may forget is refused, a wrong URL is explained, and no password is shown."""

from __future__ import annotations

import builtins
import importlib.util
import re
import time
from pathlib import Path
from typing import Any

import pytest
from redis_support import SCOPE, looking, opened, put_claim, put_settled

from onceward import AsyncGate, ConfigurationError, Gate, StoreUnavailable
from onceward.stores import Selection, open_async_store, open_store
from onceward.stores._redis_url import parse
from onceward.stores.redis import AsyncRedisStore, RedisStore
from onceward.testing.store_suite.rows import row, settled
from servers.redis import RedisServer, needed, running, started

needed()

OPENERS = [RedisStore.from_url, AsyncRedisStore.from_url]
FORGETFUL = {
    "no append-only file": ("--appendonly", "no"),
    "eviction of any key": ("--appendonly", "yes", "--maxmemory-policy", "allkeys-lru"),
    "eviction of keys that expire": ("--appendonly", "yes", "--maxmemory-policy", "volatile-ttl"),
}


class TestAServerThatMayForget:
    """It would forget a claim, and the operation would run twice."""

    @pytest.mark.parametrize("settings", FORGETFUL.values(), ids=FORGETFUL.keys())
    def test_it_is_refused_unless_the_url_accepts_it(self, settings: tuple[str, ...]) -> None:
        """
        The refusal says what is wrong and how to mend or accept it; `durability=volatile` opens the store.
        """
        with started(*settings) as server:
            refusals = []
            for opener in OPENERS:
                with pytest.raises(ConfigurationError) as refusal:
                    opener(server.url())
                refusals.append(str(refusal.value))
            with opened(server.url(durability="volatile")) as store:
                landed = store.put(row(SCOPE), None).landed

        assert True is landed
        for words in refusals:
            assert "run twice" in words
            assert "Set " in words
            assert "durability=volatile" in words

    def test_one_that_does_not_say_is_refused(self) -> None:
        """
        If INFO is forbidden, nobody knows; and what nobody knows is not promised.
        """
        with started() as server, looking(server) as client:
            client.acl_setuser("shy", enabled=True, passwords=["+s3cret"], keys="*", commands=["+@all", "-info"])
            shy = server.url().replace("redis://", "redis://shy:s3cret@")
            with pytest.raises(ConfigurationError) as refusal:
                RedisStore.from_url(shy)
            with opened(f"{shy}&durability=volatile") as store:
                landed = store.put(row(SCOPE), None).landed

        assert "does not say" in str(refusal.value)
        assert True is landed

    def test_it_is_refused_also_when_it_changes_later(self) -> None:
        """
        Every new connection asks again: a server that came back with other settings is not written to.
        """
        with started() as server, opened(server.url()) as store:
            put_claim(store)
            server.kill()
            changed = RedisServer(server.folder, "--appendonly", "no", port=server.port).start()
            try:
                with pytest.raises(ConfigurationError):
                    store.put(row(SCOPE, "other"), None)
            finally:
                changed.kill()

    def test_a_gate_refuses_to_start(self) -> None:
        """
        In both colours, before anything is asked of it.
        """
        with started("--appendonly", "no") as server:
            for gate in (Gate, AsyncGate):
                with pytest.raises(ConfigurationError):
                    gate(server.url(), scope=SCOPE)


class TestAServerThatIsAway:
    """Not there, or not for us."""

    def test_a_store_opens_and_works_when_the_server_comes(self) -> None:
        """
        A program may start before its server does; until then a call says that the store is away.
        """
        with started() as server:
            server.kill()
            with opened(server.url()) as store:
                with pytest.raises(StoreUnavailable):
                    store.put(row(SCOPE), None)
                server.start()

                assert True is store.put(row(SCOPE), None).landed

    @pytest.mark.parametrize("password", ["", "wr0ng-s3cret"])
    def test_a_wrong_password_is_told_and_never_shown(self, password: str) -> None:
        """
        Neither in the error, nor in what it came from, nor in the store's name.
        """
        with (
            started("--appendonly", "yes", "--requirepass", "r1ght-s3cret") as server,
            opened(server.url(password=password)) as store,
        ):
            with pytest.raises(StoreUnavailable) as refusal:
                store.load(bytes(32))
            with opened(server.url(password="r1ght-s3cret")) as right:
                found = right.load(bytes(32))

        assert None is found
        assert "password" in str(refusal.value)
        for words in (str(refusal.value), repr(refusal.value.__cause__), repr(refusal.value.__context__), repr(store)):
            assert "s3cret" not in words


class TestTheUrl:
    """Which server, and how."""

    def test_its_options_are_ours_or_the_drivers(self) -> None:
        """
        Ours are taken out before redis-py sees the URL; its own are handed on.
        """
        address = parse("rediss://u:p@h:1/2?prefix=shop&durability=volatile&timeout=2&ssl_cert_reqs=none&client_name=x")

        assert address.options[:4] == (False, "shop", 2.0, False)
        assert tuple(address.driver[name] for name in ("host", "port", "db", "ssl_cert_reqs", "client_name")) == (
            "h",
            1,
            2,
            "none",
            "x",
        )
        assert address.name == "h:1"

    @pytest.mark.parametrize(
        "url",
        [
            "redis://h/0?durability=maybe",
            "redis://h/0?prefix={x}",
            "redis://h/0?prefix=",
            "redis://h/0?timeout=0",
            "redis://h/0?timeout=soon",
            "redis://h/0?decode_responses=true",
            "redis://h/0?cluster=yes",
            "redis://h/zero",
            "redis://h:port/0",
            "redis://h/1?cluster=1",
        ],
    )
    def test_a_wrong_one_is_explained(self, url: str) -> None:
        """
        What cannot be meant is refused when the store is opened, without a word of its secrets.
        """
        with pytest.raises(ConfigurationError) as refusal:
            open_store(url.replace("//h", "//user:s3cret@h"))

        assert "s3cret" not in str(refusal.value)

    def test_two_prefixes_are_two_stores(self) -> None:
        """
        Several stores may live on one server.
        """
        with opened(running().url()) as ours, opened(running().url()) as theirs:
            found = put_claim(ours)

            assert None is theirs.load(found.id)

    def test_without_the_driver_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Whoever has not installed redis-py is told what to install.
        """
        real = importlib.util.find_spec
        absent: Any = lambda name, *rest: None if name == "redis" else real(name, *rest)  # noqa: E731
        monkeypatch.setattr("onceward.stores._store_kinds.find_spec", absent)

        for opener in (open_store, open_async_store):
            with pytest.raises(ConfigurationError) as refusal:
                opener("redis://localhost:6379/0")
            assert "onceward[redis]" in str(refusal.value)

    def test_a_user_with_few_rights_is_enough(self) -> None:
        """
        The rights that the documentation lists are those that are needed.
        """
        page = " ".join((Path(__file__).parents[3] / "docs" / "how-to" / "run-redis.md").read_text().split())
        rights = page.split("few rights needs")[1].split("in a Cluster")[0]
        commands = re.findall(r"\+[a-z|]+", rights)
        with started() as server, looking(server) as client:
            # Subcommands are rights of their own since Redis 7.
            client.execute_command("ACL", "SETUSER", "few", "on", ">s3cret", "~{shop:*", *commands)
            url = server.url(prefix="shop").replace("redis://", "redis://few:s3cret@")
            with opened(url) as store:
                held = put_claim(store, family=bytes(32))
                store.put(settled(held, replay=1_000_000, forget=1_500_000), held.version)
                extended = store.extend(bytes(32), 1, 1)
                put_settled(store, "stale", replay=1)
                put_settled(store, "gone", replay=1, forget=1)
                time.sleep(0.01)
                purged = store.purge(10)
                page_of_records = store.scan(b"", 10, Selection())

        assert (extended, tuple(purged), len(page_of_records)) == (1, (1, 1), 2)

    def test_a_user_without_a_right_is_told_and_nothing_runs(self) -> None:
        """
        Which one is missing, and where to look; the server is not half written to.
        """
        with started() as server, looking(server) as client:
            client.execute_command("ACL", "SETUSER", "poor", "on", ">s3cret", "~*", "+info", "+script", "+select")
            url = server.url().replace("redis://", "redis://poor:s3cret@")
            told = pytest.raises(StoreUnavailable, match=r"evalsha.*what the user may do")
            with opened(url) as store, Gate(store, scope=SCOPE, wait=0) as gate, told:
                gate.run("k", lambda: pytest.fail("it ran"))

            assert client.dbsize() == 0

    def test_opening_a_store_prints_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        The driver is quiet, and so are we.
        """
        monkeypatch.setattr(builtins, "print", lambda *_, **__: pytest.fail("printed"))

        with opened(running().url()) as store:
            assert None is store.load(bytes(32))
