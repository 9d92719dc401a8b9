"""Puts: one statement each, asked again when its snapshot was too old, and never waiting for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from postgres_support import COLOURS, Handle, handle, query, session
from psycopg._queries import MAX_CACHED_STATEMENT_LENGTH

from onceward import Gate, StoreUnavailable
from onceward.stores import _postgres_flow as flows
from onceward.stores import _postgres_rows as rows
from onceward.testing.store_suite.rows import reclaimed, row, settled, without_durations
from servers.postgres import PostgresServer, needed
from servers.proxy import Proxy

needed()


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(url: str, colour: str) -> Iterator[Handle]:
    with handle(url, colour) as one:
        one.call("load", bytes(32))
        yield one


def _waiters(admin: psycopg.Connection[Any]) -> int:
    [(count,)] = admin.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall()
    return int(count)


def _until_somebody_waits(admin: psycopg.Connection[Any]) -> None:
    for _ in range(500):
        if _waiters(admin):
            return
        time.sleep(0.01)
    pytest.fail("nobody waits for a lock")


class TestAskingAgain:
    """A statement sees what stood there when it began. If it had to wait, something else stands there now."""

    def test_a_claim_that_met_an_insert_under_way_is_shown_the_winner(
        self, store: Handle, url: str, admin: psycopg.Connection[Any]
    ) -> None:
        """
        The other's insert commits while ours waits for it: ours sees no row and inserts none, so it asks again.
        """
        theirs, ours = row("test:again", operation="theirs"), row("test:again", operation="ours")
        with session(url) as put:
            put(theirs)
            answer = store.start("put", ours, None)
            _until_somebody_waits(admin)
            put.connection.commit()
            standing = answer.result(10)

        assert (False, theirs.version) == (standing.landed, standing.record.version)

    @pytest.mark.fault("an-ending-that-changes-nothing-shows-nothing")
    def test_an_ending_that_comes_late_is_shown_what_stands_there(self, store: Handle) -> None:
        """
        Its statement changes nothing and shows nothing, so the row is read; and where there is none, none is shown.
        """
        held = store.put(row("test:late")).record
        landed = store.put(settled(held), held.version)
        late = store.put(settled(held, result=b'"late"'), held.version)
        store.call("erase", [held.id])
        gone = store.put(settled(held), held.version)

        assert (late.landed, late.record and late.record.version) == (False, landed.record.version)
        assert gone == (False, None)

    def test_a_change_that_met_another_under_way_is_shown_the_winner(
        self, store: Handle, url: str, admin: psycopg.Connection[Any]
    ) -> None:
        """
        Ours saw the version it expects, waited, and changed nothing: what it saw is stale, so it asks again.
        """
        held = store.put(row("test:again")).record
        theirs, ours = settled(held, result=b'"theirs"'), settled(held, result=b'"ours"')
        with session(url) as put:
            put(theirs, held.version)
            answer = store.start("put", ours, held.version)
            _until_somebody_waits(admin)
            put.connection.commit()
            standing = answer.result(10)

        assert (standing.landed, standing.record.result) == (False, b'"theirs"')

    @pytest.mark.parametrize("seconds", [0, 0.3], ids=["at once", "after the batch's patience"])
    def test_what_was_undone_was_never_there(
        self, store: Handle, url: str, admin: psycopg.Connection[Any], seconds: float
    ) -> None:
        """
        The other session rolls back: ours lands.
        """
        ours = row("test:again")
        with session(url) as put:
            put(row("test:again"))
            answer = store.start("put", ours, None)
            _until_somebody_waits(admin)
            time.sleep(seconds)
            put.connection.rollback()
            standing = answer.result(10)

        assert (True, ours.version) == (standing.landed, standing.record.version)
        assert without_durations(standing.record) == without_durations(store.call("load", ours.id))

    @pytest.mark.fault("what-a-claim-has-waited-is-not-taken-off-its-lease")
    def test_what_it_has_waited_is_taken_off_its_lease(
        self, store: Handle, url: str, admin: psycopg.Connection[Any]
    ) -> None:
        """
        The lease began before the claim waited for a lock: the record says how much is left when it lands.
        """
        ours = row("test:again")
        with session(url) as put:
            put(row("test:again"))
            answer = store.start("put", ours, None)
            _until_somebody_waits(admin)
            [(held_until,)] = query(url, f"SELECT {rows.US.format('clock_timestamp()')}")
            put.connection.rollback()
            standing = answer.result(10)

        assert standing.landed
        assert standing.record.lease_left <= ours.lease - (held_until - standing.record.first_at)


class TestWaiting:
    """A row that another session holds."""

    def test_it_is_bounded(self, url: str, colour: str) -> None:
        """
        After the lock timeout the caller hears that the store is away, and when to come back. Nothing was written. (The
        row is held until then: without a limit the call would not end.)
        """
        with handle(f"{url}?onceward_lock_timeout=0.3", colour) as store, session(url) as put:
            held = store.put(row("test:held")).record
            put(settled(held), held.version)
            with pytest.raises(StoreUnavailable, match="onceward_lock_timeout") as told:
                store.put(settled(held), held.version)
            put.connection.rollback()

            assert told.value.retry_after_seconds == 1.0
            assert held.version == store.call("load", held.id).version

    def test_others_do_not_wait_along(self, url: str, colour: str, admin: psycopg.Connection[Any]) -> None:
        """
        While some callers wait for a held row, each on a connection of its own, other keys go on.
        """
        with handle(f"{url}?onceward_lock_timeout=60", colour) as store, session(url) as put:
            held = store.put(row("test:held")).record
            put(settled(held), held.version)
            stuck = [store.start("put", settled(held), held.version) for _ in range(3)]
            _until_somebody_waits(admin)
            landed = [store.put(row("test:held", f"k{n}")).landed for n in range(10)]
            waiting = [not one.done() for one in stuck]
            put.connection.rollback()
            answers = [one.result(10).landed for one in stuck]

        assert landed == [True] * 10
        assert waiting == [True] * 3
        assert sorted(answers) == [False, False, True]

    def test_no_free_connection_is_said_with_a_time_to_come_back(self, url: str, colour: str) -> None:
        """
        When everybody who may wait is waiting, the next is told so.
        """
        with handle(f"{url}?onceward_lock_timeout=0.5&onceward_pool=2", colour) as store, session(url) as put:
            held = [store.put(row("test:held", f"k{n}")).record for n in range(4)]
            for one in held:
                put(settled(one), one.version)
            errors = store.together([(settled(one), one.version) for one in held])
            put.connection.rollback()

        assert [(StoreUnavailable, 1.0)] * 4 == [(type(error), error.retry_after_seconds) for error in errors]
        assert [error for error in errors if "connections" in str(error)] != []


class TestOneStatement:
    """What a put costs and leaves behind."""

    def test_claim_replay_refusal_and_settle_take_one_round_trip_each(
        self, server: PostgresServer, colour: str
    ) -> None:
        """
        Once the statements are prepared, each put is one request and one answer.
        """
        with Proxy(server.port) as proxy, handle(_through(proxy), colour) as store:
            for n in range(4):
                warm = store.put(row("test:warm", f"k{n}")).record
                store.put(row("test:warm", f"k{n}"))
                store.put(settled(warm), warm.version)
            before = proxy.requests
            held = store.put(row("test:one")).record
            store.put(row("test:one"))
            store.put(settled(held), held.version)

            assert proxy.requests - before == 3

    def test_the_clock_is_exact_to_the_microsecond(self, admin: psycopg.Connection[Any]) -> None:
        """
        It is computed in floats: the same as in numerics, for instants all over the years until 2106.
        """
        instant = "timestamptz '1970-01-01 00:00Z' + make_interval(secs => 42949672.95) * n + n * interval '1.234567 s'"
        exact = "(extract(epoch FROM at) * 1000000)::bigint"
        [(different, last)] = admin.execute(
            f"SELECT count(*) FILTER (WHERE {rows.US.format('at')} <> {exact}), max(at)::text "
            f"FROM (SELECT {instant} AS at FROM generate_series(0, 100, 0.01) AS n) AS times"
        ).fetchall()

        assert (different, last[:4]) == (0, "2106")

    def test_statements_are_short_enough_to_be_remembered(self) -> None:
        """
        psycopg takes longer statements apart again for every call. A batch it never sees: that is prepared by its name.
        """
        statements = (rows.CLAIM, rows.SWAP, rows.END, rows.SETTLE, rows.FIND, rows.EXTEND, rows.PURGE)

        assert [one for one in statements if len(one) > MAX_CACHED_STATEMENT_LENGTH] == []

    @pytest.mark.fault("a-claim-is-answered-before-it-is-on-disk", "a-lone-put-waits-for-a-lock-without-end")
    def test_it_commits_durably_whatever_the_default_is_unless_it_is_relaxed(
        self, url: str, colour: str, admin: psycopg.Connection[Any]
    ) -> None:
        """
        A server that is set to lose commits does not lose ours. Only a settle that asks for it may skip the wait. And
        each statement has a limit for locks when it writes.
        """
        admin.execute("CREATE TABLE IF NOT EXISTS told (state text, durability text, locks text)")
        with handle(f"{url}?onceward_settle=relaxed", colour) as store:
            store.call("load", bytes(32))
            admin.execute(
                "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS "
                "$$BEGIN INSERT INTO told VALUES (NEW.state, current_setting('synchronous_commit'), "
                "current_setting('lock_timeout')); RETURN NEW; END$$"
            )
            admin.execute(
                "CREATE TRIGGER tell AFTER INSERT OR UPDATE ON onceward_records FOR EACH ROW EXECUTE FUNCTION tell()"
            )
            admin.execute("ALTER DATABASE onceward SET synchronous_commit = off")
        try:
            with handle(f"{url}?onceward_settle=relaxed", colour) as store:
                held = store.put(row("test:durable")).record
                store.put(settled(held, relaxed=True), held.version)
            with handle(url, colour) as store:
                held = store.put(row("test:durable", "k2")).record
                store.put(settled(held, relaxed=True), held.version)
            told = query(url, "SELECT state, durability FROM told")
            locks = query(url, "SELECT DISTINCT locks FROM told")
        finally:
            admin.execute("DROP TRIGGER tell ON onceward_records; DROP FUNCTION tell; DROP TABLE told")
            admin.execute("ALTER DATABASE onceward RESET synchronous_commit")

        assert told == [("claimed", "on"), ("settled", "off"), ("claimed", "on"), ("settled", "on")]
        assert locks == [(flows.BATCH_LOCK_TIMEOUT,)]

    @pytest.mark.fault("an-atomic-claim-waits-for-a-lock-without-end")
    def test_a_claim_in_the_callers_transaction_has_a_limit_for_locks(
        self, url: str, admin: psycopg.Connection[Any]
    ) -> None:
        """
        That of the store while the claim is written, and the caller's own before and afterwards.
        """
        timeout = "SELECT current_setting('lock_timeout')"
        with Gate(f"{url}?onceward_lock_timeout=7.5", scope="test:limit") as gate, psycopg.connect(url) as connection:
            gate.run("first", lambda: 1)
            admin.execute("CREATE TABLE told (locks text)")
            admin.execute(
                f"CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO told {timeout}; "
                "RETURN NEW; END$$"
            )
            admin.execute("CREATE TRIGGER tell BEFORE INSERT ON onceward_records FOR EACH ROW EXECUTE FUNCTION tell()")
            try:
                connection.execute("SET lock_timeout = '9s'")
                connection.commit()
                within = gate.atomic(connection, "k", lambda: connection.execute(timeout).fetchone())
                told = query(url, "SELECT locks FROM told")
            finally:
                admin.execute("DROP TRIGGER tell ON onceward_records; DROP FUNCTION tell; DROP TABLE told")

        assert told == [("7500ms",)]
        assert within == ["9s"]

    @pytest.mark.fault("a-claim-with-a-result-loses-it")
    def test_what_is_claimed_and_has_a_result_keeps_it(self, store: Handle) -> None:
        """
        The statement for new claims has no place for a result, so it is for those only that have none.
        """
        write = row("test:both", codec="json/1", result=b'"kept"')
        stored = store.put(write).record

        assert (stored.codec, stored.result) == ("json/1", b'"kept"')
        assert store.call("load", write.id).result == b'"kept"'

    @pytest.mark.fault("a-claim-with-attempts-behind-it-loses-them")
    def test_what_is_claimed_and_has_a_past_keeps_it(self, store: Handle) -> None:
        """
        Of a new claim, attempt and first time are not sent: they are the first, and now.
        """
        write = row("test:past", attempt=3, first_at=1_000_000)
        store.put(write)
        stored = store.call("load", write.id)

        assert (stored.attempt, stored.first_at) == (3, 1_000_000)

    def test_nothing_is_left_on_the_connection(self, url: str) -> None:
        """
        Lock timeout and durability end with the statement, so that a pooler can hand the connection to anybody.
        """
        with handle(f"{url}?onceward_bouncer=1", "blocking") as store:
            store.put(row("test:left"))
            connection = store.store._pool._for_batches[-1].connection
            found = connection.execute(
                "SELECT current_setting('lock_timeout'), current_setting('synchronous_commit'), "
                "(SELECT count(*) FROM pg_prepared_statements)"
            ).fetchone()

        assert found == ("0", "on", 0)

    def test_it_is_right_where_transactions_are_serializable_by_default(
        self, url: str, colour: str, admin: psycopg.Connection[Any]
    ) -> None:
        """
        Behind a pooler no level can be chosen: conflicts are tried again, and one of many wins.
        """
        admin.execute("ALTER DATABASE onceward SET default_transaction_isolation = serializable")
        try:
            stores = [Handle(f"{url}?onceward_bouncer=1", colour) for _ in range(4)]
            claims = [row("test:serializable", operation=f"by {n}") for n in range(4)]
            running = [store.start("put", claim, None) for store, claim in zip(stores, claims, strict=True)]
            standings = [one.result(10) for one in running]
            found = standings[0].record
            for _ in range(10):
                running = [store.start("put", reclaimed(found), found.version) for store in stores]
                again = [one.result(10) for one in running]
                assert sum(one.landed for one in again) == 1
                found = again[0].record
            for store in stores:
                store.close()
        finally:
            admin.execute("ALTER DATABASE onceward RESET default_transaction_isolation")

        assert sum(standing.landed for standing in standings) == 1
        assert len({standing.record.version for standing in standings}) == 1


class TestRaces:
    """Many threads, many keys."""

    def test_32_threads_over_16_keys_have_one_winner_each(self, url: str) -> None:
        """
        Every thread claims every key, in an order of its own: each key is won once, and all agree by whom.
        """
        keys, seen, won = 16, list[tuple[str, str]](), list[str]()
        with handle(url, "blocking") as one, handle(url, "blocking") as two:

            def race(number: int) -> None:
                store = (one, two)[number % 2].store
                for n in range(keys):
                    key = f"k{(n * 7 + number) % keys}"
                    standing = store.put(row("test:race", key, operation=f"by {number}"), None)
                    seen.append((key, standing.record.operation))
                    if standing.landed:
                        won.append(key)

            threads = [threading.Thread(target=race, args=(number,)) for number in range(32)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        assert sorted(f"k{n}" for n in range(keys)) == sorted(won)
        assert (32 * keys, keys) == (len(seen), len(set(seen)))


def _through(proxy: Proxy) -> str:
    return f"postgresql://postgres@127.0.0.1:{proxy.port}/onceward"
