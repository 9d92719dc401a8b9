"""A header that was let in just now is let in again without being judged anew; for as long as its token would be."""

from __future__ import annotations

from typing import Any

import pytest
from access_support import World

from onceward.errors import QuotaExceeded, TokenInvalid
from onceward.service.access import FloodControl
from onceward.service.access.peppers import Peppers
from onceward.service.access.token_verifier import REMEMBERED_SECONDS

pytestmark = pytest.mark.dose(1, of=("kind", "colour"))


def entered(access: Any, world: World, text: str) -> Any:
    """As the service's door asks: by memory, then by judging."""
    header = [f"Bearer {text}"]
    known = access.known_caller(header)
    return known or access.enter(FloodControl(world.environment.monotonic), header, "192.0.2.7")


@pytest.fixture
def token(blocking: Any) -> Any:
    """A token of acme's."""
    blocking.create_tenant("acme")
    return blocking.create_token("acme").issued


def test_a_burst_is_judged_once(blocking: Any, world: World, token: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The same caller each time, and one digest for all of them. Another secret is judged, however well the id is known.
    """
    judged: list[int] = []
    fits = Peppers.fits
    monkeypatch.setattr(Peppers, "fits", lambda *given: judged.append(1) or fits(*given))

    callers = {entered(blocking, world, token.text) for _ in range(100)}
    count = len(judged)
    other = token.text[:-7] + ("A" if token.text[-7] != "A" else "B") + token.text[-6:]

    assert (len(callers), count) == (1, 1)
    assert blocking.known_caller([f"Bearer {other}"]) is None
    with pytest.raises(TokenInvalid):
        entered(blocking, world, other)


@pytest.mark.fault("a-known-caller-outlives-its-token")
def test_a_token_that_is_revoked_is_not_known_any_more(blocking: Any, world: World, token: Any) -> None:
    """
    At once in this process, as ever: what is known hangs on the row that is remembered.
    """
    entered(blocking, world, token.text)
    blocking.revoke_token(token.id)

    assert blocking.known_caller([f"Bearer {token.text}"]) is None
    with pytest.raises(TokenInvalid):
        entered(blocking, world, token.text)


@pytest.mark.fault("a-known-caller-is-known-for-ever")
def test_a_revocation_elsewhere_is_seen_as_soon_as_ever(blocking: Any, world: World, token: Any) -> None:
    """
    Half a second after the row was read, and not after it was last used.
    """
    there = world.open()
    entered(blocking, world, token.text)
    there.revoke_token(token.id)
    world.environment.advance(REMEMBERED_SECONDS - 0.001)
    assert entered(blocking, world, token.text).tenant == "acme"
    world.environment.advance(0.001)

    assert blocking.known_caller([f"Bearer {token.text}"]) is None
    with pytest.raises(TokenInvalid):
        entered(blocking, world, token.text)
    there.close()


@pytest.mark.fault("a-known-caller-does-not-expire")
def test_a_known_caller_expires_on_time(world: World) -> None:
    """
    Also within the half second.
    """
    if world.kind == "postgres":
        pytest.skip("the server's own clock cannot be moved")
    access = world.open()
    access.create_tenant("acme")
    text = access.create_token("acme", expires=0.4).issued.text
    entered(access, world, text)
    world.environment.advance(0.4)

    assert access.known_caller([f"Bearer {text}"]) is None
    access.close()


def test_two_headers_are_nobodys(blocking: Any, world: World, token: Any) -> None:
    """
    Though each of them is known.
    """
    entered(blocking, world, token.text)

    assert blocking.known_caller([f"Bearer {token.text}"] * 2) is None
    assert blocking.known_caller([]) is None


@pytest.mark.fault("room-that-is-taken-at-once-is-not-counted")
def test_room_that_is_taken_at_once_counts(blocking: Any) -> None:
    """
    The quota is known after the first request; the others are let through without a look, and no more of them than it
    allows.
    """
    blocking.create_tenant("acme", quota_records=3)
    for _ in range(3):
        room = blocking.reserve("acme", records=1)
        blocking.settle_room(room, records=1)

    with pytest.raises(QuotaExceeded):
        blocking.reserve("acme", records=1)
