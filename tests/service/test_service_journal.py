"""The service notes every call that may change something; an admin of the tenant sees its own, and nobody else's."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from service_support import INSERT, Served
from starlette.requests import Request
from starlette.responses import Response

from onceward.journal.views import CallFilter
from onceward.service.access import Caller, Role
from onceward.service.journal.journal_observer import JournalObserver, open_service_journal
from onceward.service.settings import Settings, store_url_of
from onceward.service.web.calls import ApiCall
from onceward.service.web.problems import RequestMalformed

pytestmark = pytest.mark.slow

CALLER = Caller("tok1", "tok1", "acme", "test", Role.ADMIN, None, prepaid=False, scope_by="tenant")


@pytest.fixture(scope="module")
def noted() -> Iterator[Served]:
    """A service with a journal, which is the default."""
    with tempfile.TemporaryDirectory(prefix="onceward-serve-") as folder:
        service = Served.started(Path(folder))
        try:
            yield service
        finally:
            service.stop()


def journal(served: Served, token: str | None = None, **query: str) -> list[dict[str, Any]]:
    """What the journal shows, the latest first; once everything that was called is there."""
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    heard = served.call("GET", f"/v1/journal?{asked}", token=token)
    assert heard.status == 200, heard.body
    return list(heard.document["attempts"])


def until_ended(served: Served, key: str, attempts: int) -> list[dict[str, Any]]:
    """The attempts at a key, once so many have ended: notes are written behind the calls."""
    digest = sha256(key.encode()).hexdigest()[:12]
    while True:
        found = [one for one in journal(served, digest=digest) if one["outcome"] is not None]
        if len(found) >= attempts:
            return found[::-1]


@pytest.mark.fault("service-journal-what-is-under-way-is-not-noted")
@pytest.mark.fault("service-journal-notes-a-call-twice")
def test_a_call_is_one_note_and_one_under_way_is_in_the_journal(tmp_path: Path) -> None:
    """
    A call that ends before the journal is written is noted once; one that is still under way is there without an end.
    """

    async def observed() -> tuple[int, list[str | None], list[str | None]]:
        async with open_service_journal(f"sqlite:///{tmp_path}/agent.db") as journal:
            observer, put = JournalObserver(journal), journal.put
            notes: list[Any] = []

            def counted(some: list[Any]) -> None:
                notes.extend(some)
                put(some)

            journal.put = counted  # type: ignore[method-assign]
            first, second = (observer.begun(CALLER, _request(path)) for path in ("/v1/one", "/v1/two"))
            first(Response(status_code=200), None)
            await journal.flush()
            before = await journal.find(CallFilter(None, oldest_first=True))
            second(Response(status_code=200), None)
            await journal.flush()
            after = await journal.find(CallFilter(None, oldest_first=True))
        return len(notes), [one.outcome for one in before], [one.outcome for one in after]

    assert asyncio.run(observed()) == (2, ["executed", None], ["executed", "executed"])


@pytest.mark.fault("service-journal-notes-what-only-read", "service-journal-forgets-the-end-of-a-long-read")
def test_what_has_only_read_is_left_out_unless_it_is_there_already(tmp_path: Path) -> None:
    """
    A read that ends before the journal is written leaves no note; one that took longer gets its end, and one that
    failed is noted.
    """

    async def observed() -> list[tuple[str, str | None]]:
        async with open_service_journal(f"sqlite:///{tmp_path}/agent.db") as journal:
            unwritten = Unwritten()
            observer = JournalObserver(unwritten)  # type: ignore[arg-type]
            asked = {name: _request(f"/v1/{name}") for name in ("short", "long", "failed")}
            ends = {name: observer.begun(CALLER, request) for name, request in asked.items()}
            for request in asked.values():
                ApiCall(request, CALLER, None, None).note_read()  # type: ignore[arg-type]
            ends["short"](Response(status_code=200), None)
            unwritten.put(unwritten.more())
            ends["long"](Response(status_code=200), None)
            ends["failed"](Response(status_code=400), RequestMalformed("no"))
            journal.put(unwritten.notes)
            await journal.flush()
            return [(one.tool, one.outcome) for one in await journal.find(CallFilter(None, oldest_first=True))]

    assert sorted(asyncio.run(observed())) == [("POST /v1/failed", "refused"), ("POST /v1/long", "executed")]


@pytest.mark.fault("service-journal-notes-every-query")
def test_queries_are_not_in_the_journal_and_writes_are(noted: Served) -> None:
    """
    Of SQL without a key: what only reads is nobody's effect. One that is under way when the journal is written is noted
    all the same, which cannot be so for all of them.
    """
    path = noted.database()
    for _ in range(30):
        assert noted.query(path, "SELECT count(*) FROM events").status == 200
    noted.query(path, INSERT, ["e-9", "click"])
    noted.query(path, INSERT, ["e-10", "click"], key="after-the-reads")
    until_ended(noted, "after-the-reads", 1)

    calls = [one["call"] for one in journal(noted)].count(f"POST {path}/query")
    assert 3 <= calls < 30  # The table, the two rows, and perhaps a few that took long.


class Unwritten:
    """What a journal is told, before anything is written: no thread asks for more, but the test."""

    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.more: Any = None

    def put(self, notes: list[Any]) -> None:
        self.notes += notes

    def ask_for_more(self, source: Any) -> None:
        self.more = source


def _request(path: str) -> Request:
    return Request({"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""})


@pytest.mark.requirement("B43")
def test_a_retry_is_two_attempts_and_one_effect(noted: Served) -> None:
    """
    The first executed, the second replayed, a third of another request refused, a statement that is wrong failed.
    """
    path = noted.database()
    for _ in range(2):
        noted.query(path, INSERT, ["e-1", "click"], key="secret-key-1")
    noted.query(path, INSERT, ["e-2", "other"], key="secret-key-1")
    noted.query(path, "INSERT INTO nowhere VALUES (1)", key="secret-key-2")

    first = until_ended(noted, "secret-key-1", 3)
    second = until_ended(noted, "secret-key-2", 1)
    assert [(one["outcome"], one["detail"]) for one in first] == [
        ("executed", "200"),
        ("replayed", "200"),
        ("refused", "key_reused"),
    ]
    assert [(one["outcome"], one["detail"]) for one in second] == [("failed", "sql_error")]
    assert {one["call"] for one in first} == {f"POST {path}/query"}
    assert {noted.token.split("_")[2][:12]} == {one["token"] for one in first}
    assert noted.count(path) == 1


def test_neither_keys_nor_secrets_are_in_the_journal(noted: Served) -> None:
    """
    Not in what is shown, and not in the files.
    """
    path = noted.database()
    noted.query(path, INSERT, ["e-1", "canary-value"], key="canary-key-3")
    until_ended(noted, "canary-key-3", 1)

    kept = b"".join(file.read_bytes() for file in noted.folder.glob("records.journal.db*"))
    assert b"POST /v1/db/demo" in kept
    assert not [text for text in (b"canary-key-3", b"canary-value", noted.token.encode()) if text in kept]


def test_only_an_admin_sees_it_and_only_of_the_own_tenant_and_environment(noted: Served) -> None:
    """
    A writer is refused; another tenant, whose name begins alike, and the other environment see nothing of it.
    """
    path = noted.database()
    noted.query(path, INSERT, ["e-1", "click"], key="mine")
    until_ended(noted, "mine", 1)
    writer = noted.new_token(role="write")
    other = noted.new_token("demo-2", role="admin")
    live = noted.new_token(environment="live", role="admin")

    assert noted.call("GET", "/v1/journal", token=writer).status == 403
    assert noted.call("GET", "/v1/journal", token="").status == 401
    assert journal(noted, token=other) == []
    assert journal(noted, token=live) == []


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=101", "limit=x", "digest=xyz", "after=1", "outcome=good", "whatever=1", "limit=1&limit=2"],
)
def test_what_the_endpoint_does_not_take_is_a_400(query: str, noted: Served) -> None:
    """
    With a code, and never a 500.
    """
    heard = noted.call("GET", f"/v1/journal?{query}")

    assert (heard.status, heard.code) == (400, "request_invalid")


def test_pages_follow_each_other(noted: Served) -> None:
    """
    `after` of a page is where the next one begins.
    """
    path = noted.database()
    for number in range(3):
        noted.query(path, INSERT, [f"e-{number}", "click"], key=f"page-{number}")
    until_ended(noted, "page-2", 1)

    first = noted.call("GET", "/v1/journal?limit=2").document
    second = noted.call("GET", f"/v1/journal?limit=2&after={first['after']}").document
    ids = [one["id"] for one in first["attempts"] + second["attempts"]]
    assert sorted(set(ids), reverse=True) == ids
    assert len(ids) == 4


def test_the_command_line_shows_it_and_erasing_a_tenant_erases_it(noted: Served) -> None:
    """
    An operator sees all tenants; of one that is erased nothing is left.
    """
    gone = noted.new_token("gone", role="admin")
    noted.call("PUT", "/v1/db/gone/shop", token=gone)
    while not [one for one in journal(noted, token=gone) if one["outcome"]]:
        continue
    store = store_url_of(Settings(folder=str(noted.folder)))

    def typed(*words: str) -> str:
        command = [sys.executable, "-m", "onceward", *words, "--store", store]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    before = typed("journal", "list", "--scope", "test:gone")
    typed("tenant", "erase", "gone", "--yes", "gone")
    after = typed("journal", "list", "--scope", "test:gone")

    assert "PUT /v1/db/gone/shop" in before
    assert after == ""


def test_after_a_kill_the_service_begins_again_with_its_journal(tmp_path: Path) -> None:
    """
    What was written stays; whatever the last moments lost, the next start goes on.
    """
    first = Served.started(tmp_path)
    path = first.database()
    first.query(path, INSERT, ["e-1", "click"], key="before")
    until_ended(first, "before", 1)
    first.process.send_signal(signal.SIGKILL)
    first.stop()
    second = first.again()
    second.query(path, INSERT, ["e-1", "click"], key="before")
    found = until_ended(second, "before", 2)
    second.stop()

    assert [one["outcome"] for one in found] == ["executed", "replayed"]


@pytest.mark.requirement("B44")
@pytest.mark.parametrize("how", ["off", "broken"])
def test_without_a_journal_the_service_still_holds(how: str, tmp_path: Path) -> None:
    """
    Off: there is none, and no file of one. Broken: a warning is in the log. The key is honoured either way.
    """
    if how == "broken":
        (tmp_path / "records.journal.db").mkdir()
    served = Served.started(tmp_path, *(["--journal", "off"] if how == "off" else []))
    path = served.database()
    heard = [served.query(path, INSERT, ["e-1", "click"], key="k") for _ in range(3)]
    status = served.call("GET", "/v1/journal").status
    count = served.count(path)
    assert served.stop() == 0

    assert ([one.status for one in heard], count) == ([200] * 3, 1)
    assert (404 if how == "off" else 503) == status
    assert ("the journal could not be written" in served.log) is (how == "broken")
    if how == "off":
        assert not list(tmp_path.glob("*journal*"))


@pytest.mark.fault("a-journal-believes-the-header-host")
@pytest.mark.parametrize("host", ["evil.example/v1/db/other/shop?x=", "evil.example#", "x/../../", "[::1", "a b"])
def test_the_header_host_says_nothing_about_the_path(noted: Served, host: str) -> None:
    """
    What was called is the path of the request, whatever else the sender writes.
    """
    path, key = noted.database(), f"host-{host}"
    heard = noted.query(path, INSERT, ["e-1", "click"], key=key.replace(" ", "-"), headers={"Host": host})
    if heard.status == 200:
        [only] = until_ended(noted, key.replace(" ", "-"), 1)
        assert only["call"] == f"POST {path}/query"
    else:
        assert (heard.status, noted.count(path)) == (400, 0)
