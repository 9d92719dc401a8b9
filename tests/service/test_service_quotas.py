"""Quotas hold to the page, over a real socket: what is on the disk afterwards is what counts."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from service_support import INSERT, TABLE, Heard, Served

from onceward.messaging.inbox import Inbox
from onceward.messaging.inbox.sample_event import signed_sample
from onceward.messaging.inbox.stored_sources import StoredSource
from onceward.messaging.webhooks import StandardWebhooks
from onceward.service.settings import Settings, store_url_of
from onceward.service.sql.database_files import namespace_of
from servers import ending

QUOTA = 200_000
FILL = """INSERT INTO events SELECT lower(hex(randomblob(12))), hex(zeroblob(5000)) FROM
    (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200) SELECT i FROM n)"""
"""Two megabytes, of a hundred and fifty bytes of request."""
LITTLE = "INSERT INTO events VALUES (lower(hex(randomblob(12))), hex(zeroblob(5000)))"


@pytest.fixture(scope="module")
def small() -> Iterator[Served]:
    """A service of its own: what it counts, it counts for few."""
    service = Served.started(ending.folder("onceward-quotas-"), "--flood-burst", "100000")
    yield service
    service.stop()


def tenant(small: Served, name: str, *databases: str, **quota: int) -> tuple[str, list[str]]:
    """A tenant with a quota and databases: a token, and their paths."""
    with small.access() as access:
        access.create_tenant(name, **quota)
    token, paths = small.new_token(name, role="admin"), [f"/v1/db/{name}/{one}" for one in databases]
    for path in paths:
        made = [small.call("PUT", path, token=token), small.query(path, TABLE, token=token)]
        assert [one.status for one in made] == [201, 200]
    return token, paths


def on_disk(small: Served, name: str) -> int:
    """Bytes of a tenant's databases: all pages of their files."""
    size = 0
    for file in (small.folder / "databases" / namespace_of("test", name)).glob("*.db"):
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=60)) as connection:
            pages, page = (connection.execute(f"PRAGMA {one}").fetchone()[0] for one in ("page_count", "page_size"))
            size += pages * page
    return size


class TestGrowth:
    """What a request makes of its few bytes."""

    @pytest.mark.fault("quota-growth-is-not-limited")
    def test_short_requests_cannot_write_much(self, small: Served) -> None:
        """
        A statement of 150 bytes that would write two megabytes, again and again, in databases old and new: what is on
        the disk stays within the quota, and each refusal says what to do.
        """
        token, [shop, crm] = tenant(small, "greedy", "shop", "crm", quota_bytes=QUOTA)
        heard = [
            small.query(path, sql, key=key, token=token)
            for path in (shop, crm)
            for sql in (FILL, *[LITTLE] * 30)
            for key in (None,)
        ]
        refused = [one for one in heard if one.status != 200]

        assert on_disk(small, "greedy") <= QUOTA
        assert on_disk(small, "greedy") > QUOTA - 60_000, "nearly all of it can be used"
        assert {(one.status, one.code, one.document["retry"]) for one in refused} == {
            (429, "quota_exceeded", "same-key")
        }
        assert (refused[0].headers["retry-after"], "Delete" in refused[0].document["detail"]) == ("60", True)

    def test_over_quota_replays_reads_and_deletes_go_on_and_freed_room_is_filled(self, small: Served) -> None:
        """
        The key that ran replays, also byte for byte; SELECT and DELETE run; what was deleted makes room in its file.
        """
        token, [path] = tenant(small, "full", "shop", quota_bytes=QUOTA)
        first = small.query(path, INSERT, ["e-1", "x"], key="k", token=token)
        while small.query(path, LITTLE, token=token).status == 200:
            pass
        replay = small.query(path, INSERT, ["e-1", "x"], key="k", token=token)
        read = small.query(path, "SELECT count(*) FROM events", token=token)
        deleted = small.query(path, "DELETE FROM events WHERE length(name) > 1", token=token)
        before = on_disk(small, "full")
        again = small.query(path, LITTLE, token=token)

        assert (replay.status, replay.body, replay.headers["idempotency-replayed"]) == (200, first.body, "true")
        assert [one.status for one in (read, deleted, again)] == [200] * 3
        assert on_disk(small, "full") <= max(QUOTA, before)

    @pytest.mark.fault("quota-rooms-are-not-set-aside")
    def test_requests_that_run_at_once_share_what_is_left(self, small: Served) -> None:
        """
        Eight databases, each filled by a thread: together they stay within the quota.
        """
        names = [f"d{number}" for number in range(8)]
        token, paths = tenant(small, "many", *names, quota_bytes=4 * QUOTA)
        heard: list[Heard] = []
        barrier = threading.Barrier(len(paths))

        def fill(path: str) -> None:
            barrier.wait(60)
            while (one := small.query(path, LITTLE.replace("5000", "20000"), token=token)).status == 200:
                pass
            heard.append(one)

        threads = [threading.Thread(target=fill, args=(path,)) for path in paths]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)

        assert on_disk(small, "many") <= 4 * QUOTA
        assert {one.code for one in heard} == {"quota_exceeded"}

    def test_a_request_that_needs_more_than_its_share_gets_all_there_is(self, small: Served) -> None:
        """
        Nearly all of what is left, in one statement.
        """
        token, [path] = tenant(small, "once", "shop", quota_bytes=10 * QUOTA)
        most = FILL.replace("< 200", "< 150")

        heard = small.query(path, most, key="k", token=token)

        assert heard.status == 200
        assert 7 * QUOTA < on_disk(small, "once") <= 10 * QUOTA
        assert "bytes-left=" in heard.headers["onceward-usage"]


class TestCounts:
    """How many databases, deltas and events."""

    @pytest.mark.fault("quota-databases-are-not-counted")
    def test_databases_are_counted(self, small: Served) -> None:
        """
        In both environments together; one that is there is made again without harm; a deleted one makes room.
        """
        token, paths = tenant(small, "planner", "one", "two", quota_databases=2)
        live = small.new_token("planner", environment="live", role="admin")
        refused = [small.call("PUT", "/v1/db/planner/three", token=one) for one in (token, live)]
        again = small.call("PUT", paths[0], token=token)
        dropped = small.call("DELETE", paths[1], token=token)
        made = small.call("PUT", "/v1/db/planner/three", token=live)

        assert [one.status for one in refused] == [429, 429]
        assert {one.code for one in refused} == {"quota_exceeded"}
        assert "2 of the 2 databases" in refused[0].document["detail"]
        assert [again.status, dropped.status, made.status] == [200, 200, 201]

    def test_making_databases_takes_room(self, small: Served) -> None:
        """
        Empty ones, too: the quota's bytes end them.
        """
        token, _ = tenant(small, "collector", quota_bytes=QUOTA)
        statuses = [small.call("PUT", f"/v1/db/collector/d{number}", token=token).status for number in range(20)]

        assert set(statuses) == {201, 429}
        assert on_disk(small, "collector") <= QUOTA

    @pytest.mark.fault("quota-deltas-without-a-key-are-free")
    def test_deltas_without_a_key_are_counted_and_known_ones_are_answered(self, small: Served) -> None:
        """
        By their references: ten records are five deltas. Beyond that the known ones are still answered.
        """
        token, _ = tenant(small, "booker", quota_records=10)

        def book(number: int, key: str | None = None) -> Heard:
            delta = {"customerId": "c", "delta": -1, "reason": "r", "referenceId": f"r-{number}"}
            headers = {} if key is None else {"Idempotency-Key": key}
            return small.call("POST", "/api/v1/balance/delta", delta, token=token, headers=headers)

        heard = [book(number) for number in range(8)]
        again = [book(0), book(4)]
        batch = {"deltas": [{"customerId": "c", "delta": -1, "reason": "r", "referenceId": "r-99"}]}
        more = small.call("POST", "/api/v1/balance/delta/batch", batch, token=token)
        derived = small.call("GET", "/api/v1/balance/derive/c", token=token)

        assert [one.status for one in heard] == [200] * 5 + [429] * 3
        assert [(one.status, one.document["duplicate"]) for one in again] == [(200, True)] * 2
        assert (more.status, derived.document["balance"]) == (429, "-5")

    @pytest.mark.fault("quota-events-are-free")
    def test_events_are_counted_for_the_tenant_of_their_source(self, small: Served) -> None:
        """
        Three records are three events. The next is to come later, and its sender learns nothing of quotas.
        """
        tenant(small, "hooked", quota_records=3)
        secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        (small.folder / "secret").write_text(secret)
        url = store_url_of(Settings(folder=str(small.folder)))
        with Inbox(url, stored_sources=True) as inbox:
            inbox.store_source(stored_source("hooked", f"file:{small.folder}/secret"))

        def deliver(id: str) -> Heard:
            headers, body = signed_sample(StandardWebhooks(), secret, id, now=time.time())
            return small.call("POST", "/hooks/hooked", token="", raw=body, headers=dict(headers))

        # A source that was added is known after some seconds.
        assert any(deliver("evt-0").status == 200 for _ in range(5_000))
        heard = [deliver(f"evt-{number}") for number in range(5)]

        assert [one.status for one in heard] == [200] * 3 + [429] * 2
        assert (heard[4].code, heard[4].document["retry"], heard[4].headers["retry-after"]) == (
            "rate_limited",
            "same-key",
            "60",
        )
        assert "quota" not in heard[4].body.decode()


def stored_source(name: str, secret: str) -> StoredSource:
    """A source whose events nobody handles in a hurry."""
    return StoredSource(name, f"live:{name}", StandardWebhooks(), (secret,), "time:sleep", None, 1, None)


class TestUsage:
    """`GET /v1/usage`."""

    def test_every_token_of_a_tenant_sees_its_own_account(self, small: Served) -> None:
        """
        Money, quotas, processor time and what is held; whatever the role. No token sees another tenant's.
        """
        token, [path] = tenant(small, "seen", "shop", quota_bytes=QUOTA, quota_records=10)
        small.query(path, "SELECT 1", key="k", token=token)
        tokens = [token, small.new_token("seen", role="read"), small.new_token("seen", databases=["shop"])]
        heard = [small.call("GET", "/v1/usage", token=one) for one in tokens]
        nobody = small.call("GET", "/v1/usage", token="")

        assert {one.status for one in heard} == {200}
        for one in heard:
            shown = one.document
            assert (shown["tenant"], shown["money"]) == ("seen", None)
            assert shown["quotas"]["bytes"]["limit"] == QUOTA
            assert shown["quotas"]["records"]["left"] == 10 - shown["quotas"]["records"]["used"]
            assert shown["process"]["cpuSecondsLeft"] > 0
            assert shown["process"]["held"]["running"] == 0
        assert nobody.status == 401
