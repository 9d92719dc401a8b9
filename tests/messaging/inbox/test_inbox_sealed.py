"""Events that wait are sealed: their bodies are somebody's requests."""

from __future__ import annotations

from typing import Any

import pytest
from inbox_support import SECRET, World

from colours import COLOURS
from onceward import ConfigurationError
from onceward.gate import Sealed
from onceward.messaging.inbox import Source
from onceward.messaging.webhooks import PacSpace

CARD = "4111-1111-1111-1111"


def _opened(world: World, colour: str, seen: list[Any], seal: Any, **options: Any) -> Any:
    inbox = world.open(colour, seal=seal, **options)
    inbox.add(Source("shop", PacSpace(), [SECRET], lambda event: seen.append(event.body)))
    return inbox


def _received(world: World, inbox: Any, id: str) -> None:
    inbox.receive("shop", *world.signed(id, {"event": id, "card": CARD}))


def _stored(world: World) -> list[bytes]:
    return [bytes(body) for (body,) in world.rows("SELECT body FROM onceward_inbox_events WHERE body IS NOT NULL")]


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.fault("an-events-body-is-not-sealed")
def test_a_body_waits_sealed_and_is_processed_as_it_came(world: World, colour: str) -> None:
    """
    By whoever has the key: another process, under a newer key.
    """
    key, seen = Sealed.new_key(), []
    inbox = _opened(world, colour, seen, Sealed(key))
    _received(world, inbox, "evt-1")
    (stored,) = _stored(world)
    inbox.close()
    another = _opened(world, colour, seen, Sealed(Sealed.new_key(), key))
    another.drain()
    another.close()

    assert CARD.encode() not in stored
    assert [CARD.encode() in body for body in seen] == [True]


def test_without_the_key_an_event_waits(world: World) -> None:
    """
    It is not handed to its handler sealed, not given up, and no attempt is counted; with the key it is processed.
    """
    key, seen = Sealed.new_key(), []
    inbox = _opened(world, "blocking", seen, Sealed(key))
    _received(world, inbox, "evt-1")
    inbox.close()
    for seal in (None, Sealed(Sealed.new_key())):
        blind = _opened(world, "blocking", seen, seal)
        assert blind.drain()["put off"] == 1
        blind.close()
        world.pass_time(60)
    assert (seen, world.rows("SELECT attempts FROM onceward_inbox_events")) == ([], [(0,)])
    again = _opened(world, "blocking", seen, Sealed(key))
    again.drain()
    again.close()

    assert len(seen) == 1


def test_two_bodies_swapped_are_given_up_and_not_processed(world: World) -> None:
    """
    By hand, in the table.
    """
    seen: list[Any] = []
    inbox = _opened(world, "blocking", seen, Sealed(Sealed.new_key()))
    for id in ("evt-1", "evt-2"):
        _received(world, inbox, id)
    one, other = _stored(world)
    for body, was in ((b"x", one), (one, other), (other, b"x")):
        world.change("UPDATE onceward_inbox_events SET body = {} WHERE body = {}", body, was)

    assert inbox.drain()["dead"] == 2
    assert seen == []
    inbox.close()


def test_with_sealed_only_a_plain_body_is_given_up(world: World) -> None:
    """
    Somebody else has written it.
    """
    seen: list[Any] = []
    plain = _opened(world, "blocking", seen, None)
    _received(world, plain, "evt-1")
    plain.close()
    strict = _opened(world, "blocking", seen, Sealed(Sealed.new_key()), sealed_only=True)

    assert strict.drain()["dead"] == 1
    assert seen == []
    strict.close()
    with pytest.raises(ConfigurationError, match="sealed_only"):
        world.open("blocking", sealed_only=True)
