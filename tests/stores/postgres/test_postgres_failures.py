"""Failures: what goes wrong between us and the server is said in our words, and an answer that was lost is found."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from postgres_support import COLOURS, Handle, handle, query

from onceward import ConfigurationError, StoreUnavailable
from onceward.errors import SchemaMismatch
from onceward.runtime.environment import REAL
from onceward.stores import Selection, open_store
from onceward.stores._postgres_flow import LATEST
from onceward.stores._postgres_url import parse
from onceward.testing.clock import StillEnvironment
from onceward.testing.store_suite.rows import row, settled
from servers.postgres import PostgresServer, needed
from servers.proxy import Proxy

needed()

DAY_US = 24 * 3_600 * 1_000_000


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(server.port) as one:
        yield one


@pytest.fixture
def far(proxy: Proxy, colour: str) -> Iterator[Handle]:
    """A store on the other side of the proxy, opened and warm."""
    with handle(f"postgresql://postgres@127.0.0.1:{proxy.port}/onceward", colour) as one:
        one.put(row("test:far", "warm"))
        yield one


class TestALostAnswer:
    """The connection breaks while a write is on its way."""

    def test_a_claim_that_landed_unheard_is_recognised(self, far: Handle, proxy: Proxy) -> None:
        """
        The server commits, and the answer is lost: the same write is sent again and finds itself.
        """
        write = row("test:far")
        proxy.lose_answers(1)
        standing = far.put(write)

        assert (True, write.version, 0) == (standing.landed, standing.record.version, proxy.to_lose)

    def test_a_settle_that_landed_unheard_is_recognised(self, far: Handle, proxy: Proxy) -> None:
        """
        Sent again, it no longer finds the version it expects, but its own.
        """
        held = far.put(row("test:far")).record
        ending = settled(held, result=b'"once"')
        proxy.lose_answers(1)
        standing = far.put(ending, held.version)

        assert (standing.landed, standing.record.result, proxy.to_lose) == (True, b'"once"', 0)

    def test_a_write_that_never_arrived_is_sent_again(self, far: Handle, proxy: Proxy) -> None:
        """
        From here it looks the same. It lands now.
        """
        write = row("test:far")
        proxy.lose_requests(1)

        assert True is far.put(write).landed
        assert write.version == far.call("load", write.id).version

    @pytest.mark.parametrize("lose", ["lose_answers", "lose_requests"])
    def test_a_crowd_whose_answer_was_lost_lands_once_each(self, far: Handle, proxy: Proxy, lose: str) -> None:
        """
        Everybody of the batch asks again for itself, and is told that it landed.
        """
        writes = [row("test:far", f"k{n}") for n in range(20)]
        getattr(proxy, lose)(1)
        answers = far.together([(write, None) for write in writes])

        assert [answer.landed for answer in answers] == [True] * 20
        assert [write.version for write in writes] == [far.call("load", write.id).version for write in writes]

    def test_it_gives_up_after_a_few_tries(self, far: Handle, proxy: Proxy) -> None:
        """
        Whoever is cut off for good hears that the store is away. What had landed is found by the next caller.
        """
        write = row("test:far")
        proxy.lose_answers(1_000)
        with pytest.raises(StoreUnavailable) as told:
            far.put(write)
        proxy.lose_answers(0)
        standing = far.put(write)

        assert told.value.retry_after_seconds is not None
        assert write.version == standing.record.version

    def test_connections_that_died_while_idle_are_replaced(self, far: Handle, proxy: Proxy) -> None:
        """
        After a restart of the server or a firewall's clean-up, nobody notices anything.
        """
        for n in range(3):
            proxy.cut()
            assert True is far.put(row("test:far", f"k{n}")).landed
            proxy.cut()
            assert far.call("load", row("test:far", f"k{n}").id).key == f"k{n}"
        proxy.cut()

        assert len(far.call("scan", b"", 10, Selection(kind="key"))) - 1 == 3


class TestRefusals:
    """A server that says no."""

    def test_a_wrong_password_is_a_mistake_in_the_declaration(self, server: PostgresServer, colour: str) -> None:
        """
        It says what to check, and never shows the password.
        """
        url = server.url("onceward", user="locked:wr0ng-s3cret")
        with server.role("locked", "LOGIN PASSWORD 'right'"), handle(url, colour) as store:
            with pytest.raises(ConfigurationError, match="password") as told:
                store.put(row("test:refused"))

            assert "wr0ng-s3cret" not in f"{told.value} {told.value!r} {told.value.__cause__}"

    def test_a_database_that_is_not_there_is_one_too(self, server: PostgresServer, colour: str) -> None:
        """
        It says which.
        """
        with handle(server.url("nowhere"), colour) as store, pytest.raises(ConfigurationError, match="nowhere"):
            store.put(row("test:refused"))

    def test_a_server_that_is_not_there_is_away(self, colour: str) -> None:
        """
        It may come back: the same key, after a pause.
        """
        with handle("postgresql://postgres@127.0.0.1:1/onceward", colour) as store:
            with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1") as told:
                store.put(row("test:refused"))

            assert told.value.retry_after_seconds == 1.0

    def test_of_several_hosts_the_one_that_answers_is_used(self, server: PostgresServer, colour: str) -> None:
        """
        The first is not there: the next is asked, and nobody notices.
        """
        url = f"postgresql://postgres@127.0.0.1:1,127.0.0.1:{server.port}/onceward"
        with handle(url, colour) as store:
            assert True is store.put(row("test:hosts")).landed

    def test_a_role_without_rights_is_told_which_it_needs(
        self, server: PostgresServer, url: str, colour: str, admin: psycopg.Connection[Any]
    ) -> None:
        """
        First to read the tables, then to write to them.
        """
        with handle(url, colour) as store:
            store.call("load", bytes(32))
        with server.role("poor"), handle(server.url("onceward", user="poor"), colour) as store:
            admin.execute("GRANT SELECT ON onceward_meta TO poor")
            with pytest.raises(StoreUnavailable, match="needs SELECT, INSERT, UPDATE and DELETE"):
                store.put(row("test:refused"))
            admin.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON onceward_records TO poor")

            assert True is store.put(row("test:refused")).landed

    def test_a_role_that_may_not_create_the_tables_is_told_so(self, server: PostgresServer, colour: str) -> None:
        """
        The tables are missing, and making them is not allowed.
        """
        database = f"bare_{colour}"
        server.execute(f"DROP DATABASE IF EXISTS {database}")
        server.execute(f"CREATE DATABASE {database}")
        told = pytest.raises(StoreUnavailable, match="the first time CREATE on the schema")
        with server.role("poor"), handle(server.url(database, user="poor"), colour) as store, told:
            store.put(row("test:refused"))

    def test_a_schema_from_the_future_is_left_alone(
        self, url: str, colour: str, admin: psycopg.Connection[Any]
    ) -> None:
        """
        An older library neither reads nor writes what it does not understand.
        """
        with handle(url, colour) as store:
            store.call("load", bytes(32))
        admin.execute("UPDATE onceward_meta SET value = 99 WHERE name = 'schema_version'")
        try:
            with handle(url, colour) as store, pytest.raises(SchemaMismatch, match="version 99"):
                store.put(row("test:refused"))
        finally:
            admin.execute("UPDATE onceward_meta SET value = %s WHERE name = 'schema_version'", (LATEST,))

        assert query(url, "SELECT count(*) FROM onceward_records") == [(0,)]

    @pytest.mark.parametrize("options", ["", "?target_session_attrs=any"], ids=["at connecting", "at writing"])
    def test_a_standby_is_not_written_to(
        self, url: str, colour: str, admin: psycopg.Connection[Any], options: str
    ) -> None:
        """
        Read-only: we say so and where to go, and nobody takes a replica's answer for the truth.
        """
        with handle(url, colour) as store:
            store.call("load", bytes(32))
        admin.execute("ALTER DATABASE onceward SET default_transaction_read_only = on")
        try:
            with handle(f"{url}{options}", colour) as store, pytest.raises(StoreUnavailable, match="read-only"):
                store.put(row("test:refused"))
        finally:
            admin.execute("SET default_transaction_read_only = off")
            admin.execute("ALTER DATABASE onceward RESET default_transaction_read_only")

    def test_without_the_driver_the_extra_is_named(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Whoever opens a PostgreSQL URL without psycopg is told what to install.
        """
        monkeypatch.setattr("onceward.stores._store_kinds.find_spec", lambda name: None)

        with pytest.raises(ConfigurationError, match=r"onceward\[postgres\]"):
            open_store(url)


class TestUrls:
    """What a URL says."""

    def test_options_of_ours_are_taken_out_and_libpqs_go_through(self) -> None:
        """
        What the URL says beats what we add.
        """
        target = parse(
            "postgres://u:p@a:1,b:2/shop?onceward_pool=3&onceward_lock_timeout=2.5&connect_timeout=9&options=-csearch_path%3Dx"
        )

        assert (target.pool_size, target.lock_seconds, target.lock_timeout) == (3, 2.5, "2500ms")
        assert tuple(target.parameters[name] for name in ("host", "connect_timeout", "target_session_attrs")) == (
            "a,b",
            "9",
            "read-write",
        )
        assert target.parameters["options"].startswith("-csearch_path=x -c default_transaction_isolation=")
        assert [name for name in target.parameters if "onceward" in name] == []
        assert target.name == "PostgreSQL at a,b:1,2, database shop"

    def test_behind_a_pooler_nothing_is_sent_at_startup(self) -> None:
        """
        PgBouncer refuses startup parameters that it does not know.
        """
        assert "options" not in parse("postgresql://u@h/d?onceward_bouncer=1").parameters

    @pytest.mark.parametrize(
        "query",
        [
            "onceward_pool=1",
            "onceward_pool=x",
            "onceward_lock_timeout=0",
            "onceward_poll=3",
            "onceward_settle=maybe",
            "onceward_batches=3",
        ],
    )
    def test_an_option_we_do_not_have_is_refused(self, query: str) -> None:
        """
        With those that there are.
        """
        with pytest.raises(ConfigurationError, match="onceward_bouncer"):
            parse(f"postgresql://u@h/d?{query}")

    def test_an_unreadable_url_does_not_show_its_password(self) -> None:
        """
        Neither in the error nor in what it came from.
        """
        with pytest.raises(ConfigurationError) as told:
            parse("postgresql://u:s3cret@h:5432/d?no_such_option=1")

        assert "s3cret" not in f"{told.value} {told.value.__cause__}"


class TestClocks:
    """Whose time it is."""

    @pytest.mark.parametrize("skew", [timedelta(days=-1), timedelta(days=1)], ids=["behind", "ahead"])
    def test_a_callers_clock_plays_no_role(self, url: str, colour: str, skew: timedelta) -> None:
        """
        Instants, leases and fences are the server's, whatever a caller's clock says.
        """
        skewed = StillEnvironment(wall_us=REAL.wall_us())
        skewed.jump(skew)
        with handle(url, colour, environment=skewed) as store:
            record = store.put(row("test:clock")).record

        assert abs(REAL.wall_us() - record.first_at) < DAY_US // 2
        assert record.first_at == record.fence
