"""
A service on a PostgreSQL whose order of texts is that of a language: what is found by a range is found there, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from service_support import INSERT, Served

from onceward.journal import Journal
from onceward.journal.views import CallFilter
from onceward.service.access import Access
from servers import ending
from servers.postgres import DEBIAN_15, needed, throwaway

needed()
pytestmark = [
    pytest.mark.skipif(not DEBIAN_15.is_dir(), reason="PostgreSQL 15, which knows languages, is not installed here"),
    pytest.mark.slow,
]

PEPPER = "p" * 40
NAMES = ["a", "A", "ab", "a-b", "a.b", "a_b", "a1", "a-1", "b", "B-a", "ba", "z", "Z", "a-", "ab-"]


@pytest.fixture(scope="module")
def url() -> str:
    """A database in American English, as many hosts make them."""
    server = throwaway(DEBIAN_15)
    server.execute(
        "CREATE DATABASE english TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'"
    )
    made = server.url("english")
    with psycopg.connect(made) as connection:  # It is another order: the colon and what is behind it come first.
        assert connection.execute("SELECT 'x:y' >= 'x:' AND 'x:y' < 'x;'").fetchone() == (False,)
    return made


@pytest.fixture(scope="module")
def service(url: str) -> Iterator[Served]:
    """One whose keys, and so whose notes, are in scopes of each token's own."""
    folder = ending.folder("onceward-english-")
    made = Served.started(folder, "--store", url, "--scope-by", "token", ONCEWARD_PEPPER=PEPPER)
    try:
        yield made
    finally:
        made.stop()


@pytest.mark.fault("a-journal-is-empty-in-english")
def test_the_journal_of_a_tenant_is_there_in_every_language(service: Served, url: str) -> None:
    """
    Notes are in scopes below the tenant's, which are found by a range of texts.
    """
    path = service.database()
    service.query(path, INSERT, ["e-1", "click"], key="k-1")
    with psycopg.connect(url, autocommit=True) as connection:  # Notes are written behind the calls.
        while connection.execute("SELECT to_regclass('onceward_journal_calls')").fetchone() == (None,):
            continue
        while connection.execute("SELECT count(*) FROM onceward_journal_calls").fetchone() == (0,):
            continue
    found = service.call("GET", "/v1/journal").document["attempts"]

    assert {one["scope"].rpartition(":")[0] for one in found} == {"test:demo:token"}


def test_neighbours_by_name_are_not_within(url: str) -> None:
    """
    `test:acme` and what is below it; not `test:acme-2`, `test:acme.eu`, `test:acme2` or `TEST:ACME`.
    """
    scopes = ["test:acme", "test:acme:token:t1", "test:acme-2", "test:acme.eu", "test:acme2:x", "TEST:ACME:x"]
    for scope in scopes:
        with (
            Journal(url, scope=scope, worker="w-1") as journal,
            journal.run("r") as run,
            run.turn(1) as turn,
            turn.call("charge", key="k"),
        ):
            pass
    with Journal(url, scope="operator:x", worker="w-1") as journal:
        found = {one.scope for one in journal.find(CallFilter(within="test:acme"))}

    assert found == {"test:acme", "test:acme:token:t1"}


@pytest.mark.usefixtures("service")  # First: a service makes its first token where there is no tenant.
def test_pages_of_tenants_show_each_of_them_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A page begins where the one before ended, in whatever order.
    """
    monkeypatch.setenv("ONCEWARD_PEPPER", PEPPER)
    names = [f"t{name.lower()}{number}" for number, name in enumerate(NAMES)]
    with Access.open(url, create=True) as access:
        for name in names:
            access.create_tenant(name)
        seen: list[str] = []
        while page := access.tenants(after=seen[-1] if seen else "", limit=2):
            seen += [one.name for one in page]
            assert len(seen) < 100

    assert sorted(set(seen) - {"demo"}) == sorted(names)
    assert len(seen) == len(set(seen))
