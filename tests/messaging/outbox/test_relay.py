"""
The relay: at least once, in order per aggregate, and nothing else is held up by what fails.
"""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import pytest
from outbox_support import Receiver, World

from onceward import ConfigurationError
from onceward.messaging.outbox import (
    Delivered,
    DeliveryFailed,
    DeliveryRefused,
    EndpointGone,
    Message,
    message_queue,
)
from onceward.messaging.outbox.relay import SCHEDULE, Relay

HOUR = 3600.0


@pytest.mark.requirement("E37")
def test_what_was_committed_is_delivered_as_it_was_added(world: World) -> None:
    """
    Every message comes once if nothing goes wrong, with its id, topic, payload and headers; then there is no more.
    """
    receiver = Receiver()
    [first, second] = world.add({"b": 1, "a": 2}, b"\x00raw", headers={"X-Trace": "t"})
    relay = world.relay({"billing": receiver})

    assert [relay.step(), relay.step()] == [2, 0]
    assert [(first, b'{"a":2,"b":1}', "application/json"), (second, b"\x00raw", "application/octet-stream")] == sorted(
        [(one.id, one.payload, one.content_type) for one in receiver.got], key=lambda one: one[1], reverse=True
    )
    assert {(one.to, one.topic, one.aggregate, one.attempt, one.headers["X-Trace"]) for one in receiver.got} == {
        ("billing", "thing.done", None, 1, "t")
    }
    assert world.states() == {"delivered": 2}


@pytest.mark.requirement("E37", "E03")
def test_a_message_that_fails_comes_again_under_the_same_id_later(world: World) -> None:
    """
    Everything but the number of the attempt is the same, byte for byte; and not before its wait is over.
    """
    receiver = Receiver(lambda message: Delivered("ok") if message.attempt > 2 else DeliveryFailed("busy", 40.0))
    world.add({"n": 1})
    relay = world.relay({"billing": receiver})

    tries = [relay.step(), relay.step()]
    world.pass_time(39.9)
    tries.append(relay.step())
    world.pass_time(0.2 + SCHEDULE[0])
    tries.append(relay.step())
    world.pass_time(41 + SCHEDULE[1])
    tries.append(relay.step())

    assert tries == [1, 0, 0, 1, 1]
    assert [one.attempt for one in receiver.got] == [1, 2, 3]
    assert len({one._replace(attempt=0)._replace(headers=()) for one in receiver.got}) == 1  # type: ignore[arg-type]
    assert world.states() == {"delivered": 1}


def test_a_failing_message_holds_back_its_own_aggregate_only(world: World) -> None:
    """
    Order per aggregate: what comes after it there waits; other aggregates, and messages without one, go on.
    """
    failing = [True]
    receiver = Receiver(lambda one: DeliveryFailed("no") if one.payload == b'"a1"' and failing[0] else Delivered("ok"))
    world.add("a1", "a2", "a3", aggregate="a")
    world.add("b1", "b2", aggregate="b")
    world.add("free")
    relay = world.relay({"billing": receiver})

    for _ in range(4):
        relay.step()
    held = receiver.payloads
    failing[0] = False
    world.pass_time(SCHEDULE[0])
    for _ in range(4):
        relay.step()

    assert set(held) == {'"a1"', '"b1"', '"b2"', '"free"'}
    assert held.index('"b1"') < held.index('"b2"')
    assert receiver.payloads[len(held) :] == ['"a1"', '"a2"', '"a3"']


def test_two_endpoints_do_not_wait_for_each_other_in_one_aggregate(world: World) -> None:
    """
    The order is that of one aggregate at one endpoint.
    """
    sick, well = Receiver(lambda _: DeliveryFailed("no")), Receiver()
    for to in ("sick", "well", "well"):
        world.add(to, to=to, aggregate="a")
    relay = world.relay({"sick": sick, "well": well})

    relay.step()
    relay.step()

    assert (len(sick.got), len(well.got)) == (1, 2)


def test_the_schedule_is_kept_with_full_jitter_and_then_it_is_dead(world: World) -> None:
    """
    Each wait is anything up to the published one; after the last try it is a dead letter, with what was said last.
    """
    receiver = Receiver(lambda one: DeliveryFailed(f"no {one.attempt}"))
    [id] = world.add(1)
    relay = world.relay({"billing": receiver}, threshold=1000)
    waits = []
    while world.states() == {"waiting": 1}:
        relay.step()
        waits.append(world.wait_seconds())
        world.pass_time(max(waits[-1], 0) + 1)

    assert 1 + len(SCHEDULE) == len(receiver.got)
    assert all(-1 <= wait <= most for wait, most in zip(waits, SCHEDULE, strict=False))
    assert any(wait < most / 2 for wait, most in zip(waits, SCHEDULE, strict=False))
    [letter] = relay.dead()
    assert (id, 10, "no 10") == (letter.id, letter.attempts, letter.reason)


def test_a_refused_message_is_dead_at_once_and_holds_back_nothing(world: World) -> None:
    """
    Trying again would not help. What comes after it in its aggregate goes on: a poisoned message stops nobody else.
    """
    refused = [True]
    receiver = Receiver(
        lambda one: DeliveryRefused("bad \x00 thing\n\ud800") if one.payload == b"1" and refused[0] else Delivered("ok")
    )
    [id, _] = world.add(1, 2, aggregate="a")
    relay = world.relay({"billing": receiver})

    relay.step()
    relay.step()
    [letter] = relay.dead()
    states = world.states()
    refused[0] = False
    requeued = [relay.requeue(id), relay.requeue(id), relay.requeue("msg_unknown")]
    relay.step()

    assert states == {"dead": 1, "delivered": 1}
    assert (id, "bad   thing  ", 1, "a") == (letter.id, letter.reason, letter.attempts, letter.aggregate)
    assert requeued == [True, False, False]
    assert receiver.payloads == ["1", "2", "1"]
    assert [id, id] == [receiver.got[0].id, receiver.got[2].id]
    assert world.states() == {"delivered": 2}


def test_a_dead_letter_can_be_let_go_of_and_nothing_else_can(world: World) -> None:
    """
    Discarding deletes a dead message; one that waits stays.
    """
    [dead, waiting] = world.add(1, to="billing") + world.add(2, to="elsewhere")
    relay = world.relay({"billing": Receiver(lambda _: DeliveryRefused("no"))})
    relay.step()

    assert [relay.discard(dead), relay.discard(dead), relay.discard(waiting)] == [True, False, False]
    assert world.states() == {"waiting": 1}


def test_an_endpoint_that_is_gone_gets_nothing_more_until_somebody_enables_it(world: World) -> None:
    """
    Durably, for every relay: its messages wait, none is lost and none loses an attempt; others are delivered.
    """
    gone = [True]
    receiver, other = Receiver(lambda _: EndpointGone("410") if gone[0] else Delivered("ok")), Receiver()
    world.add(1, 2, aggregate="a")
    world.add(3, to="other")
    relay = world.relay({"billing": receiver, "other": other})
    relay.step()
    world.pass_time(HOUR)
    second = world.relay({"billing": receiver, "other": other})
    more = second.step()
    told = [(one.endpoint, one.reason) for one in second.disabled()]
    gone[0] = False
    enabled = [second.enable("billing"), second.enable("billing")]
    second.step()
    second.step()

    assert (more, told, enabled) == (0, [("billing", "410")], [True, False])
    assert (receiver.payloads, [one.attempt for one in receiver.got]) == (["1", "1", "2"], [1, 1, 1])
    assert other.payloads == ["3"]


def test_an_endpoint_that_keeps_failing_is_left_alone_for_a_while(world: World) -> None:
    """
    Its breaker opens: no message is taken and none loses an attempt; after the recovery, one try tells.
    """
    failing = [True]
    receiver = Receiver(lambda _: DeliveryFailed("down") if failing[0] else Delivered("ok"))
    world.add(*range(20))
    relay = world.relay({"billing": receiver}, threshold=3, recovery=60.0, concurrency=4)

    relay.step()
    opened = len(receiver.got)
    quiet = [relay.step() for _ in range(3)]
    world.pass_time(61)
    failing[0] = False
    probe = relay.step()
    rest = relay.step()

    assert (opened, quiet, probe, rest) == (4, [0, 0, 0], 1, 4)


def test_two_relays_share_the_work_and_take_nothing_twice(world: World) -> None:
    """
    What one has taken the other does not see, as long as the lease holds.
    """
    one, two = Receiver(), Receiver()
    world.add(*range(20))
    first = world.relay({"billing": one}, concurrency=4)
    second = world.relay({"billing": two}, concurrency=4)

    while first.step() + second.step():
        pass

    assert 20 == len({message.id for message in one.got + two.got}) == len(one.got) + len(two.got)
    assert 0 < len(one.got) < 20


def test_a_relay_whose_lease_ran_out_changes_nothing_any_more(world: World) -> None:
    """
    The fence: it delivers late, the message was taken by another meanwhile, and what the late one says is not written.
    """
    late: list[Any] = []

    def stall(message: Message) -> DeliveryFailed:
        world.pass_time(3600)  # As a stopped process would sleep through it.
        late.append(second.step())
        return DeliveryFailed("a late word")

    second = world.relay({"billing": Receiver()})
    first = world.relay({"billing": Receiver(stall)})
    world.add(1, 2, aggregate="a")

    first.step()

    assert late == [1]
    assert world.states() == {"delivered": 1, "waiting": 1}
    assert world.rows("SELECT attempts, fence FROM onceward_outbox_messages WHERE state = 'delivered'") == [(2, 2)]


@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "control"])
def test_a_late_word_does_not_end_what_another_relay_is_trying(
    world: World, monkeypatch: pytest.MonkeyPatch, fenced: bool
) -> None:
    """
    The late relay was refused; the one that has the message now succeeds. Without the fence it would be dead.
    """
    if not fenced:
        monkeypatch.setattr(message_queue, "_DEAD", message_queue._DEAD.replace("fence = :fence AND", ""))
    second = world.relay({"billing": Receiver()})

    def stall(message: Message) -> DeliveryRefused:
        world.pass_time(3600)
        world.rows("UPDATE onceward_outbox_messages SET fence = fence + 1")  # Another one has just taken it.
        return DeliveryRefused("a late word")

    world.add(1)
    world.relay({"billing": Receiver(stall)}).step()
    second.step()

    assert ({"delivered": 1} if fenced else {"dead": 1}) == world.states()


def test_a_message_that_kills_every_relay_is_given_up(world: World) -> None:
    """
    Attempts count when a message is taken: one whose tries nobody ever ends is dead after as many as any other.
    """
    world.add(1)
    world.rows("UPDATE onceward_outbox_messages SET attempts = 3, fence = 3")
    receiver = Receiver()
    relay = world.relay({"billing": receiver}, schedule=[1, 1])

    relay.step()

    assert (receiver.got, world.states()) == ([], {"dead": 1})
    assert "no relay reported" in relay.dead()[0].reason


def test_delivered_messages_go_after_their_retention_and_others_stay(world: World) -> None:
    """
    The table does not grow for ever; what waits or is dead is never deleted by itself.
    """
    world.add(1, to="billing")
    world.add(2, to="nobody")
    world.add(3, to="strict")
    relay = world.relay({"billing": Receiver(), "strict": Receiver(lambda _: DeliveryRefused("no"))}, retain=HOUR)
    relay.step()
    world.pass_time(HOUR - 1)
    relay.step()
    before = world.states()
    world.pass_time(61)
    relay.step()

    assert before == {"delivered": 1, "waiting": 1, "dead": 1}
    assert world.states() == {"waiting": 1, "dead": 1}
    assert [tuple(one[:3]) for one in relay.message_counts()] == [("nobody", "waiting", 1), ("strict", "dead", 1)]


def test_an_endpoint_that_raises_or_answers_nonsense_has_failed(world: World) -> None:
    """
    A bug in an endpoint costs an attempt, and not the relay. What an exception says may be secret: its type is told.
    """

    class Odd:
        seconds_max = 1.0

        def deliver(self, message: Message) -> Any:
            if message.payload == b"1":
                raise ValueError("odd")
            return "nonsense"

    world.add(1, 2)
    relay = world.relay({"billing": Odd()})

    assert relay.step() == 2
    assert world.rows("SELECT reason FROM onceward_outbox_messages ORDER BY seq") == [
        ("the endpoint raised ValueError",),
        ("the endpoint answered str, and not how the delivery ended",),
    ]


def test_a_relay_runs_until_it_is_stopped_and_writes_down_what_was_under_way(world: World) -> None:
    """
    A slow endpoint holds up no other, a graceful stop waits for tries under way, and every end is written.
    """
    entered, release, fast = threading.Event(), threading.Event(), Receiver()

    def slow(message: Message) -> Delivered:
        entered.set()
        assert release.wait(60)
        return Delivered("at last")

    all_there = threading.Event()
    fast.answer = lambda _: (all_there.set() if len(fast.got) == 40 else None) or Delivered("ok")
    world.add(1, to="slow")
    world.add(*range(40), to="fast", aggregate="a")
    relay = Relay(world.url, {"slow": Receiver(slow), "fast": fast}, idle=0.01)
    running = threading.Thread(target=relay.run)
    running.start()
    assert entered.wait(60)
    assert all_there.wait(60)
    relay.stop()
    still_there = running.is_alive()
    release.set()
    running.join(60)
    relay.close()

    assert still_there
    assert world.states() == {"delivered": 41}
    assert all(int(before) < int(after) for before, after in pairwise(fast.payloads))


class Gated:
    """An endpoint that is fast at first, and then holds every message until it is told what to say."""

    def __init__(self, fast: int) -> None:
        self.seconds_max = 10.0
        self.got: list[str] = []
        self.most = self._now = 0
        self._fast, self._guard = fast, threading.Lock()
        self.go_on = threading.Event()
        self.outcome: Any = Delivered("ok")

    def deliver(self, message: Message) -> Any:
        """Take a message."""
        with self._guard:
            self._now += 1
            self.most = max(self.most, self._now)
            self.got.append(message.id)
            is_held = len(self.got) > self._fast
        if is_held:
            assert self.go_on.wait(60)
        with self._guard:
            self._now -= 1
        return self.outcome if is_held else Delivered("ok")


def taken_ahead(world: World, endpoint: Gated, **options: Any) -> tuple[Relay, threading.Thread]:
    """A relay that runs, has taken more than its threads can try, and whose threads are all held."""
    world.add(*range(200))
    relay = Relay(world.url, {"billing": endpoint}, idle=0.01, concurrency=3, **options)
    running = threading.Thread(target=relay.run)
    running.start()
    patience = threading.Event()
    for _ in range(6000):
        if len(endpoint.got) == 103 and relay._routes["billing"].waiting:
            break
        patience.wait(0.01)
    return relay, running


@pytest.mark.fault("what-was-taken-ahead-counts-as-tried")
def test_what_was_taken_ahead_is_given_back_untried_when_the_relay_stops(world: World) -> None:
    """
    A fast endpoint has more in hand than threads, and never more tries at once than it may have. A stop lets those
    end that are under way; the others are due at once, for whoever comes next, with all of their attempts.
    """
    endpoint = Gated(fast=100)
    relay, running = taken_ahead(world, endpoint)
    ahead = len(relay._routes["billing"].waiting)
    relay.stop()
    endpoint.go_on.set()
    running.join(60)
    relay.close()
    left = world.rows("SELECT attempts, count(*) FROM onceward_outbox_messages WHERE state = 'waiting' GROUP BY 1")
    with Relay(world.url, {"billing": Receiver()}, concurrency=100) as again:
        again.step()

    # A turn that was under way meanwhile may have handed over as many as there are threads.
    assert (ahead > 0, endpoint.most, len(endpoint.got) - 103 in range(4)) == (True, 3, True)
    assert left == [(0, 200 - len(endpoint.got))]
    assert world.states() == {"delivered": 200}
    assert len(set(endpoint.got)) == len(endpoint.got)


@pytest.mark.fault("an-open-breaker-lets-through-what-was-taken-ahead")
def test_what_was_taken_ahead_of_an_endpoint_that_fails_keeps_its_attempts(world: World) -> None:
    """
    The breaker opens with the tries under way: nothing more is tried, and what was taken ahead has lost nothing.
    """
    endpoint = Gated(fast=100)
    endpoint.outcome = DeliveryFailed("down")
    relay, running = taken_ahead(world, endpoint, threshold=1, recovery=3600.0)
    ahead = len(relay._routes["billing"].waiting)
    endpoint.go_on.set()
    patience = threading.Event()
    while relay._routes["billing"].busy:
        patience.wait(0.01)
    relay.stop()
    running.join(60)
    relay.close()

    tried = world.rows("SELECT attempts, count(*) FROM onceward_outbox_messages WHERE state = 'waiting' GROUP BY 1")
    failed = len(endpoint.got) - 100
    # Turns that were under way meanwhile may have handed over as many as there are threads, each.
    assert 3 <= failed < 3 + ahead
    assert sorted(tried) == [(0, 100 - failed), (1, failed)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoints": {"billing": 7}},
        {"endpoints": {"two words": Receiver()}},
        {"schedule": "5"},
        {"schedule": [0]},
        {"retain": -1},
        {"concurrency": 0},
        {"idle": float("nan")},
        {"url": "redis://localhost"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_cannot_work_is_refused_before_anything_starts(tmp_path: Any, wrong: dict[str, Any]) -> None:
    """
    A relay says what is wrong with what it was told.
    """
    given = {"url": f"sqlite:///{tmp_path}/app.db", "endpoints": {"billing": Receiver()}, **wrong}
    with pytest.raises(ConfigurationError):
        Relay(given.pop("url"), given.pop("endpoints"), **given)

    assert list(tmp_path.iterdir()) == []
