"""
How much is read for a page: bounded, whatever the store holds; and for how long a session is good.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from starlette.requests import Request
from starlette.responses import Response

from onceward import Gate
from onceward._core.errors import StoreUnavailable
from onceward._core.record import Record
from onceward._core.store_protocols import Selection
from onceward.audit import DASHBOARD, DecisionLog
from onceward.dashboard import DashboardData, DashboardRole, Principal
from onceward.dashboard.activity import summarize
from onceward.dashboard.glances import COST_FACTOR, FRESH_SECONDS, Glances
from onceward.dashboard.html import element, join
from onceward.dashboard.sampling import SAMPLE_RECORDS, read_sample
from onceward.dashboard.searching import PAGE_RECORDS, ROWS_READ_MAX, RecordQuery, find_page
from onceward.dashboard.sessions import IDLE_SECONDS, SESSION_SECONDS, Reach, Sessions
from onceward.stores.memory import MemoryStore
from onceward.testing.clock import StillEnvironment

SECONDS_MAX = 60


class CountingStore:
    """A store that counts the rows which it hands out."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = sorted(records)
        self.rows = 0

    def scan(self, after: bytes, limit: int, selection: Selection) -> list[Record]:
        found = [one for one in self._records if one.id > after and selection.scope in (None, one.scope)][:limit]
        self.rows += len(found)
        return found


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Ten thousand records, with ids as records have them."""
    store = MemoryStore()
    with Gate(store, scope="live:acme") as gate:
        gate.run("k", lambda: "v", name="charge")
    [one] = store.scan(b"", 1, Selection())
    from hashlib import sha256

    return [one._replace(id=sha256(str(number).encode()).digest(), key=f"live:{number}") for number in range(10_000)]


class TestBounds:
    @pytest.mark.fault("a-search-reads-everything")
    def test_a_search_reads_a_bounded_number_of_rows(self, records: list[Record]) -> None:
        """
        A search for what is rare ends after two thousand rows, says so, and goes on from there: nothing is missed.
        """
        rare = records[7]._replace(operation="rare")
        store = CountingStore([one for one in records if one.id != rare.id] + [rare])
        found, after, pages = [], "", 0
        while True:
            before = store.rows
            page = find_page(store, RecordQuery(operation="rare", after=after), Reach())  # type: ignore[arg-type]
            assert store.rows - before <= ROWS_READ_MAX + 250
            found, pages = [*found, *page.records], pages + 1
            if page.after is None:
                break
            assert page.ended_early
            after = page.after

        assert [one.id for one in found] == [rare.id]
        assert pages >= len(records) / ROWS_READ_MAX

    def test_a_page_reads_what_it_shows(self, records: list[Record]) -> None:
        """
        A list without a filter reads a page or so, however many records there are.
        """
        store = CountingStore(records)

        page = find_page(store, RecordQuery(), Reach())  # type: ignore[arg-type]

        assert len(page.records) == PAGE_RECORDS
        assert store.rows <= 250

    def test_how_many_records_there_are_is_estimated(self, records: list[Record]) -> None:
        """
        A thousand rows say how many there are, to a tenth or so; and a small store is counted.
        """
        store, small = CountingStore(records), CountingStore(records[:300])

        sample, exact = read_sample(store, Selection()), read_sample(small, Selection())  # type: ignore[arg-type]

        assert store.rows == SAMPLE_RECORDS
        assert 9_000 <= sample.estimate(len(sample.records)) <= 11_000
        assert not sample.is_exact
        assert (exact.is_exact, exact.estimate(len(exact.records))) == (True, 300)
        assert sample.states() == {"settled": sample.estimate(len(sample.records))}


class TestGlances:
    @pytest.mark.fault("a-look-is-waited-for")
    def test_a_page_does_not_wait_for_a_slow_look(self) -> None:
        """
        While a look is under way, a page says so; when it is done, the next page shows it.
        """
        glances, go_on = Glances(), threading.Event()
        shown = []

        def look() -> None:
            shown.append(glances.look("slow", lambda: go_on.wait(SECONDS_MAX), patience=0.01))

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        thread.join(SECONDS_MAX / 2)
        try:
            assert not thread.is_alive(), "the page waits for the look"
            assert shown[0].is_pending
        finally:
            go_on.set()

        assert glances.look("slow", lambda: True, patience=SECONDS_MAX).value is True
        glances.close()

    @pytest.mark.fault("a-costly-look-is-made-for-every-page")
    def test_what_costs_much_is_looked_at_rarely(self) -> None:
        """
        A look that took ten seconds is not made again for two hundred; what was seen is shown meanwhile.
        """
        still = StillEnvironment()
        glances, looks = Glances(still), []

        def costly() -> int:
            still.advance(10.0)
            looks.append(1)
            return len(looks)

        first = glances.look("x", costly, patience=SECONDS_MAX)
        still.advance(10.0 * COST_FACTOR - FRESH_SECONDS)
        second = glances.look("x", costly, patience=SECONDS_MAX)
        still.advance(2 * FRESH_SECONDS)
        third = glances.look("x", costly, patience=SECONDS_MAX)
        glances.close()

        assert (first.value, second.value, third.value) == (1, 1, 2)
        assert second.age_seconds > first.age_seconds

    def test_a_look_that_fails_says_why_and_keeps_what_was_seen(self) -> None:
        """
        A store that is away is not an empty store.
        """
        still = StillEnvironment()
        glances = Glances(still)

        def away() -> int:
            raise StoreUnavailable("the store is away")

        glances.look("x", lambda: 7, patience=SECONDS_MAX)
        still.advance(10)
        seen = glances.look("x", away, patience=SECONDS_MAX)
        first = glances.look("y", away, patience=SECONDS_MAX)
        glances.close()

        assert (seen.value, seen.trouble) == (7, "the store is away")
        assert (first.value, first.is_pending, first.trouble) == (None, False, "the store is away")

    def test_a_store_that_is_away_is_not_well(self) -> None:
        """
        Health says so in words, and the queue is not shown as empty.
        """

        class Away(MemoryStore):
            def load(self, id: bytes) -> Record | None:
                raise StoreUnavailable("the store is away")

            def scan(self, after: bytes, limit: int, selection: Selection) -> list[Record]:
                raise StoreUnavailable("the store is away")

        data = DashboardData("memory://", Away(), DecisionLog.open(None))
        health, doubt = data.health(), data.in_doubt(Reach())
        data.close()

        assert health.value is not None
        assert [(one.ok, one.detail) for one in health.value] == [(False, "the store is away")]
        assert (doubt.value, doubt.trouble) == (None, "the store is away")


def request_with(cookie: str) -> Request:
    headers = [(b"cookie", cookie.encode()), (b"host", b"a.example")]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers, "query_string": b""})


class TestSessions:
    @pytest.mark.fault("a-session-never-ends")
    def test_a_session_ends(self) -> None:
        """
        After an hour without a request, and after a working day in any case.
        """
        still = StillEnvironment()
        sessions = Sessions(still)

        def begun() -> Request:
            response = Response()
            sessions.begin(response, Principal("alice", DASHBOARD, DashboardRole.VIEW), secure=False)
            return request_with(response.headers["set-cookie"].partition(";")[0])

        idle, busy = begun(), begun()
        still.advance(IDLE_SECONDS - 1)
        assert sessions.find(busy) is not None
        still.advance(2)
        assert sessions.find(idle) is None
        for _ in range(round(SESSION_SECONDS / (IDLE_SECONDS - 1))):
            still.advance(IDLE_SECONDS - 1)
            last = sessions.find(busy)

        assert last is None

    def test_names_of_sessions_are_not_guessed_or_kept(self) -> None:
        """
        What is remembered is a digest; a cookie that is none of ours, odd or empty finds nothing.
        """
        sessions, response = Sessions(), Response()
        sessions.begin(response, Principal("alice", DASHBOARD, DashboardRole.VIEW), secure=True)
        name = response.headers["set-cookie"].partition(";")[0].partition("=")[2]

        assert name not in repr(vars(sessions))
        for cookie in ("", "onceward_dashboard=", "onceward_dashboard=x", "a;;=\x00", f"other={name}"):
            assert sessions.find(request_with(cookie)) is None


class TestHtml:
    def test_text_is_text(self) -> None:
        """
        Whatever comes as a text is escaped: in elements, in attributes, in lists of lists.
        """
        bad = "<b a='\"'>&"

        made = element("p", bad, [bad, [bad]], title=bad, hidden=True, class_=None)

        assert made.count("&lt;b a=&#x27;&quot;&#x27;&gt;&amp;") == 4
        assert made.startswith('<p title="') and " hidden>" in made
        assert join([None, False, 0, 1.5]) == "01.5"


def test_rates_of_nothing_are_nothing() -> None:
    """
    A journal without attempts has no rate, and no division by nothing.
    """
    from onceward._core.operation import to_datetime

    made = summarize([], to_datetime(0))

    assert set(made.rates.values()) == {0.0}
    assert sum(map(sum, made.counts.values())) == 0
