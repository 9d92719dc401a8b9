"""A lease and a fence: while one relay tries a message no other does, and whoever was overtaken says nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from outbox_support import Receiver, World

from onceward import Gate
from onceward.messaging.outbox import message_queue
from onceward.messaging.outbox.message import Delivered, DeliveryOutcome, Message

MARGIN = 3_600.0


@pytest.mark.fault("an-outbox-lease-without-margin")
def test_a_try_that_takes_as_long_as_it_may_is_not_overtaken(world: World) -> None:
    """
    A lease is longer than the longest try, by a margin: for a pause of the process, and for a busy database.
    """
    taken: list[int] = []

    def slow(message: Message) -> DeliveryOutcome:
        world.pass_time(receiver.seconds_max + MARGIN / 2)
        taken.append(second.step())
        return Delivered("200")

    receiver = Receiver(slow)
    second = world.relay({"billing": Receiver()}, margin=MARGIN)
    first = world.relay({"billing": receiver}, margin=MARGIN)
    world.add(1)

    first.step()

    assert taken == [0]
    assert (
        world.states(),
        world.rows("SELECT attempts, fence FROM onceward_outbox_messages"),
    ) == ({"delivered": 1}, [(1, 1)])


@pytest.mark.fault("delivered-ignores-the-fence")
def test_a_late_delivery_does_not_end_what_another_relay_is_trying(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """
    It was taken by another meanwhile: the message waits for that one's word, and the late one is told in the log.
    """

    def overtaken(message: Message) -> DeliveryOutcome:
        world.rows("UPDATE onceward_outbox_messages SET fence = fence + 1, attempts = attempts + 1")
        return Delivered("200, too late")

    world.add(1)
    world.relay({"billing": Receiver(overtaken)}).step()

    assert (
        world.states(),
        world.rows("SELECT attempts, fence, coalesce(reason, '') FROM onceward_outbox_messages"),
    ) == ({"waiting": 1}, [(2, 2, "")])
    assert "the lease had run out, and another relay has it" in caplog.text


@pytest.mark.fault("delivered-reads-all-that-waits")
def test_what_was_delivered_is_found_without_reading_all_that_waits(tmp_path: Path) -> None:
    """
    A million messages may wait: those whose tries have ended are looked up one by one.
    """
    with (
        closing(sqlite3.connect(tmp_path / "shop.db")) as database,
        Gate(f"sqlite:///{tmp_path}/shop.db", scope="acme") as gate,
    ):
        gate.outbox(database).add("billing", {}, topic="order.paid")
        database.commit()
        statement = message_queue._DELIVERED.format("1, 2", "(1, 1), (2, 1)")
        asked = database.execute(f"EXPLAIN QUERY PLAN {statement}", {"now": 1, "reason": ""})
        plan = [str(step) for *_, step in asked]

    assert plan[0] == "SEARCH onceward_outbox_messages USING INTEGER PRIMARY KEY (rowid=?)"
    assert [step for step in plan if "SCAN onceward" in step] == []
