"""Threats of SECURITY.md that are no other file's subject: planted keys, pages, members, lines in the log."""

from __future__ import annotations

import http.client
import json
import re
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from service_support import INSERT, ON_BOTH, Served

ROW = ["e-1", "click"]
PAGES = ("/", "/.well-known/idempotency/key_reused", "/.well-known/idempotency/sql_error")


@pytest.fixture
def database(served: Served) -> str:
    """A database with a table."""
    return served.database()


LONG = f"{INSERT} -- {'x' * 5_000}"
"""Too long to be looked at before it reaches its database."""


@pytest.mark.fault("who-may-only-read-plants-a-key")
@ON_BOTH
def test_a_key_that_others_used_first_is_still_its_owners(served: Served, database: str) -> None:
    """
    A stranger, and a token of the same tenant that may only read, send the key that the owner is about to use. The
    owner's write runs, and its answer is its own.
    """
    stranger, reader = served.new_token("planter", role="admin"), served.new_token("demo", role="read")
    theirs = database.replace("/demo/", "/planter/")
    served.call("PUT", theirs, token=stranger)
    served.query(theirs, "CREATE TABLE events (id TEXT, name TEXT)", token=stranger)

    planted = served.query(theirs, INSERT, ["e-9", "planted"], key="charge:1", token=stranger)
    tried = [(INSERT, ROW), (INSERT, ["e-9", "planted"]), (LONG, ROW)]
    refused = [served.query(database, sql, row, key="charge:1", token=reader) for sql, row in tried]
    own = served.query(database, INSERT, ROW, key="charge:1")

    assert planted.status == 200
    assert [one.status for one in refused] == [403, 403, 403]
    assert (own.status, own.headers.get("idempotency-replayed"), served.count(database)) == (200, None, 1)
    assert served.query(database, "SELECT name FROM events").document["rows"] == [["click"]]


@pytest.mark.fault("a-page-without-a-policy")
@pytest.mark.parametrize("page", PAGES)
def test_no_page_can_load_or_run_anything(served: Served, page: str) -> None:
    """
    A policy that allows no frame and no script but a file of our own, and a type that is not guessed.
    """
    heard = served.call("GET", page, token="")
    policy = heard.headers.get("content-security-policy", "")

    assert heard.status == 200
    assert heard.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert re.findall(r"script-src [^;]*", policy) in ([], ["script-src 'self'"])
    assert heard.headers.get("x-content-type-options") == "nosniff"


@pytest.mark.fault("a-member-too-many-is-ignored")
@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("query", {"sql": INSERT, "params": ROW, "readonly": False}),
        ("query", {"sql": INSERT, "params": ROW, "tenant": "stranger"}),
        ("batch", {"statements": [{"sql": INSERT, "params": ROW}], "price": 0}),
        ("batch", {"statements": [{"sql": INSERT, "params": ROW, "role": "admin"}]}),
    ],
)
def test_a_member_too_many_is_refused_and_nothing_runs(
    served: Served, database: str, path: str, document: dict[str, Any]
) -> None:
    """
    What a request may not set is not silently left out: a 400, no row, and the key is free.
    """
    headers = {"Idempotency-Key": "k"}

    refused = served.call("POST", f"{database}/{path}", document, headers=headers)

    assert refused.status == 400
    assert (refused.code, served.count(database)) == ("request_invalid", 0)
    assert served.query(database, INSERT, ROW, key="k").headers.get("idempotency-replayed") is None


@pytest.mark.fault("a-line-of-the-log-is-text")
def test_nobody_writes_a_line_into_the_log(served: Served) -> None:
    """
    Line feeds, escapes of a terminal and quotes in a path: each call is one line of JSON, and no byte of it is a
    control character.
    """
    forged = '{"at": 1, "level": "error", "message": "planted"}'
    mark = f"mark-{time.monotonic_ns()}"
    paths = ["%0a" + forged.replace(" ", "%20").replace('"', "%22"), "%1b%5b2J", "%22%7d%0d%0a", "%e2%80%ae"]
    connection = http.client.HTTPConnection(urlsplit(served.address).netloc, timeout=30)
    for path in [*paths, mark]:
        connection.request("GET", f"/v1/{path}", headers={"Authorization": f"Bearer {served.token}"})
        connection.getresponse().read()
    connection.close()
    deadline = time.monotonic() + 60
    while mark not in served.log and time.monotonic() < deadline:
        time.sleep(0.01)  # A line is written when its answer is on its way.

    raw = (served.folder / "log").read_bytes()
    assert [line for line in raw.splitlines() if not line.startswith(b"{") or not line.endswith(b"}")] == []
    lines = [json.loads(line) for line in raw.splitlines()]
    assert [line for line in lines if line.get("message") == "planted"] == []
    assert len([line for line in lines if line.get("path", "").startswith("/v1/\n")]) == 1
    assert {byte for byte in raw if byte < 32 or byte > 126} == {10}
