"""What a dead emitter has left in its spool goes out with the next one, at once."""

from __future__ import annotations

import atexit
from typing import Any

import pytest
from holder_support import Desk, Gone

from onceward import AsyncEmitter, Emitter, Gate, Retry
from onceward.messaging.emitter import Cadence, Item
from onceward.runtime.environment import REAL

OPTIONS: dict[str, Any] = {"reference": "usage:{number}", "cadence": Cadence(size=2, seconds=3_600), "timer": False}


def emitter(desk: Desk, sent: list[str], **options: Any) -> Any:
    """An emitter of the desk's colour that notes what it sends."""

    def send(items: list[Item]) -> None:
        sent.extend(item.reference for item in items)

    async def awaiting(items: list[Item]) -> None:
        send(items)

    gate = desk.gate(**options)
    if desk.awaits:
        return AsyncEmitter(gate, "usage", awaiting, retry=Retry(1), **OPTIONS)
    return Emitter(gate, "usage", send, retry=Retry(1), **OPTIONS)


def left(desk: Desk, who: Any, *numbers: int) -> None:
    """Items that an emitter has spooled and never sent."""
    gate = Gate(desk.url, scope=desk.scope, environment=who)
    dead = Emitter(gate, "usage", lambda items: None, retry=Retry(1), **OPTIONS)
    atexit.unregister(dead.close)
    for number in numbers:
        dead.emit({"number": number})
    gate.close()


@pytest.mark.fault("a-dead-emitters-items-are-waited-for")
def test_a_restarted_emitter_sends_what_the_dead_one_held(desk: Desk) -> None:
    """
    Its leases last for more than an hour, and nobody waits for them.
    """
    left(desk, Gone(), 1, 2)
    sent: list[str] = []
    restarted = emitter(desk, sent)
    done = desk.do(restarted.flush())
    desk.do(restarted.close())

    assert (sorted(sent), done.waiting) == (["usage:1", "usage:2"], 0)


@pytest.mark.fault("a-dead-emitters-item-is-not-taken-when-emitted")
def test_an_item_of_a_dead_emitter_that_is_emitted_again_is_sent(desk: Desk) -> None:
    """
    It is a duplicate, and it is ours now.
    """
    left(desk, Gone(), 1)
    sent: list[str] = []
    restarted = emitter(desk, sent)
    emitted = desk.do(restarted.emit({"number": 1}))
    waiting = restarted.waiting
    desk.do(restarted.flush())
    desk.do(restarted.close())

    assert (emitted.duplicate, waiting, sent) == (True, 1, ["usage:1"])


@pytest.mark.parametrize(("who", "options"), [(REAL, {}), (Gone(), {"takeover": "lease"})], ids=["alive", "by-lease"])
def test_what_a_living_emitter_holds_is_left_alone(desk: Desk, who: Any, options: dict[str, Any]) -> None:
    """
    Another emitter of this process has it; or the gate waits for leases.
    """
    left(desk, who, 1)
    sent: list[str] = []
    other = emitter(desk, sent, **options)
    emitted = desk.do(other.emit({"number": 1}))
    desk.do(other.flush())
    desk.do(other.close())

    assert (emitted.duplicate, sent) == (True, [])
