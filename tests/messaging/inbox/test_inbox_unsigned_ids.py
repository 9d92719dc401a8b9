"""Where an event's id is not signed: one signed message is one event, whatever ids it is sent with."""

from __future__ import annotations

import logging
import sqlite3
import threading
from hashlib import sha256
from importlib.resources import files
from typing import Any

import pytest
from inbox_support import SCOPE, TEXT, World, admin, ignored

from onceward.messaging.inbox import Source, event_table, handler, workers
from onceward.messaging.inbox.source import KEEP_SECONDS
from onceward.messaging.webhooks import GitHub, PacSpace, PlainHmac, Scheme, StandardWebhooks
from onceward.stores.tables import TablesRunner, open_tables
from onceward.stores.tables.scope_eraser import erase_scopes

PLACES = {GitHub: "x-github-delivery", PacSpace: "x-event-id", PlainHmac: "x-id"}
UNSIGNED = [GitHub(), PacSpace(), PlainHmac(header="X-Sig", id_header="X-Id")]
BODY = b'{"paid": true}'


@pytest.fixture(params=UNSIGNED, ids=lambda scheme: type(scheme).__name__)
def scheme(request: pytest.FixtureRequest) -> Any:
    """A scheme that does not sign the event's id."""
    return request.param


class Captured:
    """A message that somebody has seen, and can send with any id."""

    def __init__(self, scheme: Any, world: World, id: str = "first", body: bytes = BODY) -> None:
        self._place = PLACES[type(scheme)]
        self.headers = scheme.sign(id, body, [TEXT], now=world.environment.wall_us() / 1e6)
        self.body = body

    def named(self, id: str) -> tuple[dict[str, str], bytes]:
        return {**self.headers, self._place: id}, self.body


def noting(seen: list[str]) -> Any:
    """A handler that notes ids."""

    @handler(guarantee="repeatable")
    def note(event: Any) -> None:
        seen.append(event.id)

    return note


def messages(world: World) -> int:
    """How many signed messages are known."""
    return int(world.rows("SELECT count(*) FROM onceward_inbox_messages")[0][0])


@pytest.mark.fault("an-unsigned-id-is-believed")
def test_one_captured_message_with_fifty_ids_is_processed_once(
    inbox: Any, world: World, scheme: Scheme, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Before it is processed and afterwards; each is answered as a duplicate, counted, and logged with the first id.
    """
    seen: list[str] = []
    inbox.add(Source("src", scheme, [TEXT], noting(seen)))
    captured = Captured(scheme, world)

    with caplog.at_level(logging.WARNING):
        found = [inbox.receive("src", *captured.named(f"id-{number}")) for number in range(25)]
        inbox.drain()
        found += [inbox.receive("src", *captured.named(f"id-{number}")) for number in range(25, 50)]
        inbox.drain()

    assert seen == ["id-0"]
    assert [(one.duplicate, one.first_id) for one in found] == [(False, None)] + [(True, "id-0")] * 49
    assert world.rows("SELECT deliveries, renamed FROM onceward_inbox_events") == [(50, 49)]
    assert "with another id (id-49)" in caplog.text
    assert inbox.answer("src", *captured.named("id-50")).body == b'{"received": true, "duplicate": true}'


@pytest.mark.fault("an-unsigned-id-is-believed")
def test_of_a_crowd_with_different_ids_one_is_first(world: World, scheme: Scheme) -> None:
    """
    Sent at once: the unique constraint decides, and nobody looks first.
    """
    opened = world.open()
    opened.add(Source("src", scheme, [TEXT], ignored))
    captured = Captured(scheme, world)
    together = threading.Barrier(8)
    found: list[Any] = []

    def deliver(id: str) -> None:
        together.wait(60)
        found.append(opened.receive("src", *captured.named(id)))

    threads = [threading.Thread(target=deliver, args=(f"id-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    opened.close()

    firsts = [one for one in found if not one.duplicate]
    assert len(firsts) == 1
    first = firsts[0]
    assert {first.id} == {one.first_id for one in found if one.duplicate}
    assert [(first.id, 8)] == world.rows("SELECT id, deliveries FROM onceward_inbox_events")


def test_a_redelivery_under_its_own_id_is_what_it_always_was(inbox: Any, world: World, scheme: Scheme) -> None:
    """
    The same id and the same bytes: a duplicate, and nothing to warn of.
    """
    inbox.add(Source("src", scheme, [TEXT], ignored))
    captured = Captured(scheme, world)

    found = [inbox.receive("src", *captured.named("id-1")) for _ in range(3)]

    assert [one.duplicate for one in found] == [False, True, True]
    assert world.rows("SELECT deliveries, altered, renamed FROM onceward_inbox_events") == [(3, 0, 0)]


@pytest.mark.fault("only-the-first-delivery-is-bound")
def test_a_redelivery_that_was_signed_anew_is_bound_to_its_event_too(inbox: Any, world: World) -> None:
    """
    PacSpace signs a time: each delivery of an event is another message, and any of them may be captured.
    """
    seen: list[str] = []
    inbox.add(Source("src", PacSpace(), [TEXT], noting(seen)))
    inbox.receive("src", *Captured(PacSpace(), world).named("id-1"))
    world.environment.advance(60)
    later = Captured(PacSpace(), world)

    own = inbox.receive("src", *later.named("id-1"))
    other = inbox.receive("src", *later.named("id-2"))
    inbox.drain()

    assert (own.duplicate, own.first_id) == (True, None)
    assert (other.duplicate, other.first_id) == (True, "id-1")
    assert seen == ["id-1"]


@pytest.mark.fault("a-known-id-keeps-another-message-out")
def test_a_known_id_on_another_message_does_not_keep_that_message_out(inbox: Any, world: World, scheme: Scheme) -> None:
    """
    Whoever captures a message before we have it, and sends it with an id that is known, does not use it up.
    """
    seen: list[str] = []
    inbox.add(Source("src", scheme, [TEXT], noting(seen)))
    inbox.receive("src", *Captured(scheme, world, body=b'{"paid": 1}').named("id-1"))
    second = Captured(scheme, world, body=b'{"paid": 2}')

    under_a_known_id = inbox.receive("src", *second.named("id-1"))
    under_its_own = inbox.receive("src", *second.named("id-2"))
    inbox.drain()

    assert (under_a_known_id.duplicate, under_a_known_id.altered) == (True, True)
    assert (under_its_own.duplicate, under_its_own.first_id) == (False, None)
    assert sorted(seen) == ["id-1", "id-2"]


def test_if_it_is_said_each_id_is_an_event_of_its_own(inbox: Any, world: World, scheme: Scheme) -> None:
    """
    For senders whose different events can be equal byte for byte. The price is in the option's name.
    """
    seen: list[str] = []
    inbox.add(Source("src", scheme, [TEXT], noting(seen), trust_unsigned_id=True))
    captured = Captured(scheme, world)

    for id in ("id-1", "id-2", "id-1"):
        inbox.receive("src", *captured.named(id))
    inbox.drain()

    assert (sorted(seen), messages(world)) == (["id-1", "id-2"], 0)


def test_where_the_id_is_signed_equal_bodies_are_different_events(inbox: Any, world: World) -> None:
    """
    Nobody but the sender can give such a message another id.
    """
    inbox.add(Source("src", StandardWebhooks(), [TEXT], ignored))
    now = world.environment.wall_us() / 1e6

    found = [
        inbox.receive("src", StandardWebhooks().sign(id, BODY, [TEXT], now=now), BODY).duplicate for id in ("a", "b")
    ]

    assert (found, messages(world)) == ([False, False], 0)


def test_two_sources_and_two_tenants_may_get_equal_messages(world: World, scheme: Scheme) -> None:
    """
    A message is its source's, and its tenant's.
    """
    captured = Captured(scheme, world)
    for scope in (SCOPE, "live:other"):
        opened = world.open(scope=scope)
        for name in ("one", "two"):
            opened.add(Source(name, scheme, [TEXT], ignored))
            assert not opened.receive(name, *captured.named(f"{scope}-{name}")).duplicate
        opened.close()

    assert messages(world) == 4


def test_a_message_is_known_as_long_as_its_event(world: World) -> None:
    """
    After a restart and after it is done. With the event it is forgotten, and a tenant that is erased leaves none.
    """
    captured = Captured(GitHub(), world)
    for number in range(2):
        opened = world.open()
        opened.add(Source("src", GitHub(), [TEXT], ignored, keep=KEEP_SECONDS))
        assert bool(number) is opened.receive("src", *captured.named(f"id-{number}")).duplicate
        opened.drain()
        opened.close()
    opened = world.open()
    opened.add(Source("src", GitHub(), [TEXT], ignored))
    opened.receive("src", *Captured(GitHub(), world, body=b"{}").named("kept"))
    crew = workers.Workers(opened._processor, opened._tables, opened._known, world.environment, 1)
    world.pass_time(KEEP_SECONDS)
    crew._forget()
    opened.close()

    assert world.rows("SELECT id FROM onceward_inbox_messages") == [("kept",)]
    driver = open_tables(world.url, event_table.SCHEMA, world.environment, create=False)
    assert TablesRunner(driver).run(erase_scopes("inbox.erase", event_table.TABLES, lambda scope: scope == SCOPE)) == 2
    driver.close()
    assert (messages(world), world.count()) == (0, 0)


@pytest.mark.fault("events-of-the-version-before-are-not-bound")
def test_events_of_the_version_before_are_known_by_their_bytes(world: World) -> None:
    """
    The table of version 1 knew the digest of each body, which is what GitHub and plain HMAC sign.
    """
    make_version_1(world)
    opened = world.open()
    opened.add(Source("src", GitHub(), [TEXT], ignored))

    again = opened.receive("src", *Captured(GitHub(), world).named("id-2"))
    opened.close()

    assert (again.duplicate, again.first_id) == (True, "id-1")
    assert world.rows("SELECT value FROM onceward_inbox WHERE name = 'schema_version'") == [(2,)]


def make_version_1(world: World) -> None:
    """The tables as the first version made them, with one event that is done."""
    dialect = "postgres" if world.kind == "postgres" else "sqlite"
    script = files("onceward.messaging.inbox").joinpath("sql", f"{dialect}_0001_inbox.sql").read_text(encoding="utf-8")
    row = (
        "INSERT INTO onceward_inbox_events (scope, source, id, digest, received_at, state, due_at, done_at) "
        f"VALUES ('{SCOPE}', 'src', 'id-1', {{digest}}, 1, 'done', 1, 1)"
    )
    if world.kind == "postgres":
        tables = "messages", "sources", "gaps", "marks", "events"
        drop = "".join(f"DROP TABLE IF EXISTS onceward_inbox_{table};" for table in tables)
        admin().execute(f"{drop} DROP TABLE IF EXISTS onceward_inbox; {script}".encode())
        admin().execute(row.format(digest=f"sha256('{BODY.decode()}'::bytea)").encode())
        return
    connection = sqlite3.connect(world.folder / "agent.inbox.db")
    connection.executescript(script)
    connection.execute(row.format(digest=f"x'{sha256(BODY).hexdigest()}'"))
    connection.commit()
    connection.close()
