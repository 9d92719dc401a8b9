"""Two services on one PostgreSQL and one folder, side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_support import INSERT, Served

from onceward.service.access import Access
from servers import postgres

pytestmark = [pytest.mark.skipif(not postgres.wanted(), reason="STORES leaves postgres out"), pytest.mark.slow]
PEPPER = "a pepper of more than thirty-two characters"


def test_tokens_and_keys_are_the_same_whichever_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A token made beside one is believed by both; a key that ran through one replays through the other; one row.
    """
    server = postgres.running()
    server.execute("CREATE DATABASE replicas")
    url = server.url("replicas")
    monkeypatch.setenv("ONCEWARD_PEPPER", PEPPER)
    first = Served.started(tmp_path, "--store", url)
    second = Served.started(tmp_path, "--store", url)
    try:
        with Access.open(url) as access:
            made = access.create_token("demo", environment="test", role="admin")
        token = "" if made is None else made.issued.text
        path = "/v1/db/demo/shop"
        created = [one.call("PUT", path, token=token).status for one in (first, second)]
        first.query(path, "CREATE TABLE events (id TEXT PRIMARY KEY, name TEXT)", token=token)
        answers = [one.query(path, INSERT, ["e-1", "x"], key="k", token=token) for one in (first, second)]
        second.token = token
        rows = second.count(path)
    finally:
        codes = [one.stop() for one in (first, second)]
        server.execute("DROP DATABASE replicas WITH (FORCE)")

    assert second.token != "" and first.token != ""
    assert created == [201, 200]
    assert [(one.status, one.headers.get("idempotency-replayed")) for one in answers] == [(200, None), (200, "true")]
    assert len({one.body for one in answers}) == 1
    assert (rows, codes) == (1, [0, 0])
