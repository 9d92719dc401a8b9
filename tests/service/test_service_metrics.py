"""`/metrics` of a real service: for the networks that are named, about the service and no tenant."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from service_support import Served

from servers import ending


@pytest.fixture(scope="module")
def watched() -> Iterator[Served]:
    """A service whose metrics this machine may read, behind a proxy on this machine."""
    options = ("--metrics", "127.0.0.1,10.1.0.0/16", "--trusted-proxies", "127.0.0.1", "--flood-burst", "100000")
    made = Served.started(ending.folder("onceward-metrics-"), *options)
    try:
        yield made
    finally:
        made.stop()


def test_without_the_setting_there_is_no_such_page(served: Served) -> None:
    """
    "none: there is no such page": 404, with and without a token.
    """
    assert [served.call("GET", "/metrics", token=token).status for token in ("", served.token)] == [404, 404]


@pytest.mark.fault("metrics-are-for-everybody")
def test_only_the_networks_that_are_named_may_read_it(watched: Served) -> None:
    """
    Behind the proxy the caller's own address counts. A tenant's token, even an administrator's, opens nothing: the
    figures are about everybody.
    """
    statuses = {
        address: watched.call("GET", "/metrics", headers={"X-Forwarded-For": address}).status
        for address in ("10.1.2.3", "10.2.0.1", "192.0.2.1", "::ffff:10.1.2.3", "2001:db8::1")
    }

    assert statuses == {
        "10.1.2.3": 200,
        "10.2.0.1": 404,
        "192.0.2.1": 404,
        "::ffff:10.1.2.3": 200,
        "2001:db8::1": 404,
    }


def test_calls_are_counted_by_how_they_ended(watched: Served) -> None:
    """
    A statement, its replay, a refusal; and the store's figures beside them. No database and no tenant is named.
    """
    database = watched.database()
    insert = [watched.query(database, "CREATE TABLE one (id INTEGER)", key="m:1").status for _ in range(2)]
    shown = watched.call("GET", "/metrics", token="").body.decode()

    assert insert == [200, 200]
    assert 'onceward_service_calls_total{method="POST",outcome="replayed"} 1\n' in shown
    assert "onceward_store_up 1\n" in shown
    assert "onceward_store_in_doubt 0\n" in shown
    assert database.rsplit("/", 1)[1] not in shown
