"""Processing: each event once, under the gate; a failing handler is tried again, and then somebody is told."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from inbox_support import SCOPE, SECRET, World, ignored, pacspace

from onceward import NOT_FOUND, Found, Gate, InDoubt
from onceward.errors import IllegalMove, NothingHappened, RateLimitError
from onceward.messaging.inbox import Inbox, Source, WebhookEvent, event_table, handler, workers
from onceward.messaging.inbox.event_processor import LEASE_SECONDS, UNREADY_SECONDS, key_of, scope_of
from onceward.messaging.inbox.handlers import import_handler
from onceward.messaging.inbox.sample_event import signed_sample
from onceward.messaging.inbox.source import BACKOFF, KEEP_SECONDS
from onceward.messaging.webhooks import GitHub
from onceward.stores.tables import transact


class Recorder:
    """A handler that notes what it is given, and raises what it is told to."""

    def __init__(self, *errors: Exception | None, **options: Any) -> None:
        self.seen: list[WebhookEvent] = []
        self._errors = list(errors)

        @handler(**{"guarantee": "repeatable", **options})
        def note(event: WebhookEvent) -> None:
            self.seen.append(event)
            error = self._errors.pop(0) if self._errors else None
            if error is not None:
                raise error

        self.handle = note

    @property
    def ids(self) -> list[str]:
        return [event.id for event in self.seen]


def gate_of(world: World, source: str = "pac") -> Gate:
    """The gate of a source's events."""
    return Gate(world.url, scope=scope_of(SCOPE, source), environment=world.environment)


class TestOnce:
    """However often it is delivered."""

    @pytest.mark.requirement("C49", "E03", "E38")
    def test_a_redelivery_is_not_processed_again(self, inbox: Any, world: World) -> None:
        """
        Before it was processed, and after.
        """
        recorder = Recorder()
        inbox.add(pacspace(recorder.handle))
        headers, body = world.signed("e-1")

        for _ in range(2):
            inbox.receive("pac", headers, body)
        assert inbox.drain()["done"] == 1
        assert inbox.receive("pac", headers, body).duplicate
        assert inbox.drain()["done"] == 0

        assert recorder.ids == ["e-1"]
        assert world.state("e-1") == ("done", 1, 3)

    @pytest.mark.requirement("C48", "C49", "C60")
    def test_a_redelivery_while_it_is_processed_is_a_duplicate(self, inbox: Any, world: World) -> None:
        """
        A handler that takes as long as it likes holds up no answer, and runs once.
        """
        began, go_on = threading.Event(), threading.Event()
        ran: list[str] = []

        @handler(guarantee="repeatable")
        def slow(event: WebhookEvent) -> None:
            ran.append(event.id)
            began.set()
            assert go_on.wait(60)

        inbox.add(pacspace(slow))
        headers, body = world.signed("e-1")
        first = inbox.receive("pac", headers, body)
        with inbox.working(1):  # One that is idle would let the still clock run on, past the signature's time.
            assert began.wait(60)
            again = inbox.receive("pac", headers, body)
            go_on.set()

        assert (first.duplicate, again.duplicate) == (False, True)
        assert (ran, world.state("e-1")[0]) == (["e-1"], "done")

    def test_a_handler_sees_the_first_delivery_as_it_came(self, inbox: Any, world: World) -> None:
        """
        Bytes, times, the sender's own headers.
        """
        recorder = Recorder()
        inbox.add(pacspace(recorder.handle, number_at="member:n"))
        headers, body = world.signed("e-1", b'{"n": 7,  "odd":"spelling"}')
        inbox.receive("pac", {**headers, "X-Webhook-Event": "delta.verified"}, body)
        inbox.drain()

        [event] = recorder.seen
        assert (
            event.source, event.id, event.body, event.number, event.attempt
        ) == ("pac", "e-1", b'{"n": 7,  "odd":"spelling"}', 7, 1)  # fmt: skip
        assert datetime.fromtimestamp(world.environment.wall_us() // 10**6, UTC) == event.signed_at
        assert event.headers["x-webhook-event"] == "delta.verified"
        assert "x-pacspace-signature" not in event.headers

    @pytest.mark.parametrize("id", ["live:e-1", "test:e-1", "x" * 255, "x" * 250, "event:e-1"])
    def test_no_id_is_taken_for_another(self, inbox: Any, world: World, id: str) -> None:
        """
        Also one that looks like a key of an environment, or is as long as ids may be.
        """
        recorder = Recorder()
        inbox.add(pacspace(recorder.handle))
        for one in ("e-1", id):
            inbox.receive("pac", *world.signed(one))

        assert inbox.drain()["done"] == 2
        assert sorted(["e-1", id]) == sorted(recorder.ids)
        assert key_of("e-1") != key_of(id)

    def test_several_workers_share_the_events(self, world: World) -> None:
        """
        Two inboxes with threads each, on one database: every event once.
        """
        ran: list[str] = []
        everything = threading.Event()

        @handler(guarantee="repeatable")
        def note(event: WebhookEvent) -> None:
            ran.append(event.id)
            if len(ran) == 20:
                everything.set()

        inboxes = [world.open() for _ in range(2)]
        # The clock is moved by whoever waits. So while the file is busy, attempts come at once and would run out, and a
        # patience of seconds may be over before a thread has had its turn.
        for one in inboxes:
            one.add(pacspace(note, attempts=1_000))
        for number in range(20):
            inboxes[0].receive("pac", *world.signed(f"e-{number}"))
        with inboxes[0].working(2, stop_seconds=1e6), inboxes[1].working(2, stop_seconds=1e6):
            assert everything.wait(60)
        world.pass_time(LEASE_SECONDS)
        inboxes[0].drain()  # If a busy file refused to note an end, the event waits, and its next attempt is a replay.
        for one in inboxes:
            one.close()

        assert sorted(f"e-{number}" for number in range(20)) == sorted(ran)
        assert world.rows("SELECT state, count(*) FROM onceward_inbox_events GROUP BY state") == [("done", 20)]

    def test_events_of_sources_that_are_not_known_here_are_left_alone(self, world: World) -> None:
        """
        Two applications may share a database; each takes its own.
        """
        recorder = Recorder()
        mine, other = world.open(), world.open(scope="live:other")
        for one in (mine, other):
            one.add(pacspace(recorder.handle))
            one.receive("pac", *world.signed("e-1"))

        assert mine.drain()["done"] == 1
        assert world.rows("SELECT scope, state FROM onceward_inbox_events ORDER BY scope") == [
            ("live:acme", "done"),
            ("live:other", "waiting"),
        ]
        for one in (mine, other):
            one.close()


class TestFailing:
    """A failing handler does not use its event up."""

    def test_a_handler_that_fails_is_tried_again_after_a_pause(self, inbox: Any, world: World) -> None:
        """
        Full jitter: somewhere between nothing and a ceiling that doubles. Then it succeeds, and nobody is told.
        """
        recorder = Recorder(ValueError("no"), ValueError("no"))
        inbox.add(pacspace(recorder.handle))
        inbox.receive("pac", *world.signed("e-1"))

        found = []
        for retries in range(3):
            counts = inbox.drain()
            found.append({name: count for name, count in counts.items() if count})
            world.pass_time(BACKOFF.ceiling(retries))

        if world.kind != "postgres":  # A server's clock does not wait for a busy machine: two may come in one drain.
            assert found == [{"retried": 1}, {"retried": 1}, {"done": 1}]
        assert sum(map(Counter, found), Counter()) == {"retried": 2, "done": 1}
        assert [event.attempt for event in recorder.seen] == [1, 2, 3]
        with gate_of(world) as gate:
            assert gate.dead_letters().list() == ()

    def test_it_is_not_tried_sooner(self, inbox: Any, world: World) -> None:
        """
        Not while it waits; and when the other side asked for a pause, not before that, either.
        """
        recorder = Recorder(RateLimitError(retry_after_seconds=100))
        inbox.add(pacspace(recorder.handle))
        inbox.receive("pac", *world.signed("e-1"))
        inbox.drain()

        world.pass_time(90)
        assert inbox.drain() == {"done": 0, "retried": 0, "dead": 0, "put off": 0}
        world.pass_time(90)
        assert inbox.drain()["done"] == 1

    @pytest.mark.requirement("C60")
    def test_after_the_last_try_it_is_a_dead_letter_and_can_be_requeued(self, inbox: Any, world: World) -> None:
        """
        With its evidence, under the event's own key. Requeued, it is processed once, and the letter is gone.
        """
        recorder = Recorder(*[ValueError("the bank says no")] * 3)
        inbox.add(pacspace(recorder.handle, attempts=3))
        inbox.receive("pac", *world.signed("e-1"))
        for _ in range(4):
            inbox.drain()
            world.pass_time(300)

        assert world.state("e-1") == ("dead", 3, 1)
        with gate_of(world) as gate:
            [letter] = gate.dead_letters().list()
            assert (letter.name, letter.key, letter.attempts) == ("hooks:pac", "live:event:e-1", 3)
            assert letter.message == "the bank says no"
            assert inbox.receive("pac", *world.signed("e-1")).duplicate

            inbox.requeue("pac", "e-1")
            assert inbox.drain()["done"] == 1

            assert gate.dead_letters().list() == ()
        with pytest.raises(IllegalMove):
            inbox.requeue("pac", "e-1")
        assert len(recorder.seen) == 4

    def test_a_blind_handler_that_raises_is_in_doubt_and_not_run_again(self, inbox: Any, world: World) -> None:
        """
        Nobody knows whether it had its effect: a letter at once. Requeued only when somebody has looked.
        """
        recorder = Recorder(ConnectionResetError("gone"), guarantee="blind")
        inbox.add(pacspace(recorder.handle))
        inbox.receive("pac", *world.signed("e-1"))

        assert inbox.drain()["dead"] == 1
        with pytest.raises(InDoubt):
            inbox.requeue("pac", "e-1")
        with gate_of(world) as gate:
            [letter] = gate.dead_letters().list()
            assert letter.may_have_happened
            gate.reconcile(key_of("e-1"), NOT_FOUND)

        inbox.requeue("pac", "e-1")
        assert inbox.drain()["done"] == 1
        assert len(recorder.seen) == 2

    def test_what_was_found_to_have_happened_is_done_without_running(self, inbox: Any, world: World) -> None:
        """
        The operator's answer is the event's.
        """
        recorder = Recorder(ConnectionResetError("gone"), guarantee="blind")
        inbox.add(pacspace(recorder.handle))
        inbox.receive("pac", *world.signed("e-1"))
        inbox.drain()
        with gate_of(world) as gate:
            gate.reconcile(key_of("e-1"), Found(None))

        inbox.requeue("pac", "e-1")

        assert inbox.drain()["done"] == 1
        assert len(recorder.seen) == 1

    def test_a_blind_handler_that_says_that_nothing_happened_is_tried_again(self, inbox: Any, world: World) -> None:
        """
        Or that raises before the effect that it marks.
        """
        recorder = Recorder(NothingHappened("later"), guarantee="blind")
        effects: list[int] = []

        @handler()
        def marked(event: WebhookEvent, operation: Any) -> None:
            if event.attempt == 1:
                raise ValueError("before the effect")
            with operation.effect():
                effects.append(event.attempt)

        inbox.add(pacspace(recorder.handle))
        inbox.add(pacspace(marked, name="marks"))
        for name in ("pac", "marks"):
            inbox.receive(name, *world.signed("e-1"))

        counts = Counter(inbox.drain())
        world.pass_time(1)
        counts.update(inbox.drain())  # On a busy machine the first one outlasts a pause by the server's clock.

        assert (counts["retried"], counts["done"]) == (2, 2)
        assert (len(recorder.seen), effects) == (2, [2])

    def test_an_event_that_kills_its_worker_every_time_is_given_up(self, world: World, kind: str) -> None:
        """
        A try is counted when it begins: one that never ends cannot go on for ever.
        """
        opened = world.open()
        opened.add(pacspace(attempts=2))
        opened.receive("pac", *world.signed("e-1"))
        for _ in range(2):  # Claimed and never heard of again, before the gate was asked.
            assert opened._processor.claim(opened._known()) is not None
            world.pass_time(LEASE_SECONDS)

        assert opened.drain()["dead"] == 1
        opened.close()


class TestClaims:
    """Two workers, one event."""

    def test_whoever_was_overtaken_changes_nothing(self, world: World) -> None:
        """
        Its lease is over, another worker has the event under a higher fence.
        """
        recorder = Recorder()
        opened = world.open()
        opened.add(pacspace(recorder.handle))
        opened.receive("pac", *world.signed("e-1"))
        slow = opened._processor.claim(opened._known())
        assert opened._processor.claim(opened._known()) is None
        world.pass_time(LEASE_SECONDS)
        fast = opened._processor.claim(opened._known())

        assert fast.fence > slow.fence
        opened._processor._put_off(slow, 0.0, "late", counted=True)
        assert world.state("e-1") == ("waiting", 2, 1)
        assert opened._processor.process(fast) == "done"
        assert opened._processor.process(slow) == "done"
        opened.close()

        assert recorder.ids == ["e-1"]

    @pytest.mark.fault("done-ignores-the-fence")
    @pytest.mark.parametrize("move", ["done", "put_off", "buried"])
    def test_the_word_of_whoever_was_overtaken_is_not_written(self, world: World, move: str) -> None:
        """
        While another worker has the event: not that it is done, nor when it is due, nor that it was given up.
        """
        opened = world.open()
        opened.add(pacspace())
        opened.receive("pac", *world.signed("e-1"))
        late = opened._processor.claim(opened._known())
        world.pass_time(LEASE_SECONDS)
        assert opened._processor.claim(opened._known()) is not None
        before = world.rows("SELECT * FROM onceward_inbox_events")
        moves: dict[str, Any] = {
            "done": partial(event_table.mark_done, late, None),
            "put_off": partial(event_table.put_off, late, 0, "late", counted=True),
            "buried": partial(event_table.mark_dead, late, "late"),
        }

        written = opened._tables.run(transact("inbox.settle", moves[move]))
        opened.close()

        assert (False, before) == (written, world.rows("SELECT * FROM onceward_inbox_events"))

    def test_an_event_that_somebody_is_at_is_put_off_and_not_counted(self, world: World) -> None:
        """
        The lease of its row is over and its handler still runs: the gate says so, and nobody runs it twice.
        """
        inner: list[str] = []
        opened = world.open()

        @handler(guarantee="repeatable")
        def slow(event: WebhookEvent) -> None:
            claim = opened._processor.claim(opened._known())
            if claim is None:
                world.pass_time(LEASE_SECONDS)
                claim = opened._processor.claim(opened._known())
            assert claim is not None
            inner.append(opened._processor.process(claim))

        opened.add(pacspace(slow))
        opened.receive("pac", *world.signed("e-1"))
        if world.kind == "sqlite":
            # On one clock the record's own lease would be over, too; its holder renews it.
            opened._gate._renewer.close()
            slow = handler(guarantee="repeatable", lease=10 * LEASE_SECONDS)(slow)
        opened.drain()
        world.pass_time(3_600)
        opened.drain()
        opened.close()

        assert inner == ["put off"]
        assert world.state("e-1")[0] == "done"


class TestHandlersByName:
    """What a row may name."""

    @pytest.fixture
    def shop(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
        """Write a module that can be imported."""
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "hook_shop", raising=False)
        return lambda text: (tmp_path / "hook_shop.py").write_text(text) and None  # type: ignore[func-returns-value]

    def test_only_marked_functions_are_run(self, shop: Callable[[str], None], world: World) -> None:
        """
        Anything else that can be imported is not: whoever can write a row must not choose what runs.
        """
        shop("def bare(event): raise SystemExit")
        opened = world.open()
        opened.add(pacspace("os:system"))
        opened.add(pacspace("hook_shop:bare", name="bare"))
        opened.add(pacspace("hook_shop:nothing", name="nothing"))
        opened.add(pacspace("no_such_module_here:x", name="absent"))
        for name in ("pac", "bare", "nothing", "absent"):
            opened.receive(name, *world.signed("e-1"))

        assert opened.drain()["put off"] == 4
        assert set(world.rows("SELECT state, attempts FROM onceward_inbox_events")) == {("waiting", 0)}
        opened.close()

    def test_an_event_waits_until_its_handler_is_there(self, shop: Callable[[str], None], world: World) -> None:
        """
        Received is received: a deployment that is late costs time, and no event.
        """
        opened = world.open()
        opened.add(pacspace("hook_shop:paid"))
        opened.receive("pac", *world.signed("e-1"))
        assert opened.drain()["put off"] == 1
        shop("from onceward.messaging.inbox import handler\n@handler(guarantee='keyed')\ndef paid(event): ...\n")
        world.pass_time(UNREADY_SECONDS)

        assert opened.drain()["done"] == 1
        assert import_handler("hook_shop:paid").guarantee == "keyed"
        opened.close()


class TestForgetting:
    """What is left of an event that is done."""

    def test_the_content_goes_and_the_id_stays_for_a_month(self, world: World) -> None:
        """
        A redelivery is known by its id; nobody needs the body any more. Where no time is signed, it stays for ever.
        """
        opened = world.open()
        opened.add(pacspace())
        opened.add(Source("hub", GitHub(), [SECRET], ignored))
        opened.receive("pac", *world.signed("e-1", b'{"canary": 1}'))
        opened.receive("hub", *signed_sample(GitHub(), SECRET, "d-1", now=0))
        opened.drain()

        assert world.rows("SELECT body, headers FROM onceward_inbox_events") == [(None, None)] * 2
        crew = workers.Workers(opened._processor, opened._tables, opened._known, world.environment, 1)
        for seconds, left in ((KEEP_SECONDS - 100, 2), (200, 1)):
            world.pass_time(seconds)
            crew._forget()
            assert left == world.count()
        opened.close()


def test_an_idle_inbox_ends_at_once(world: World) -> None:
    """
    Its threads wait for a bell, and hear it.
    """
    with Inbox(world.url, scope=SCOPE) as opened, opened.working(3, stop_seconds=60) as workers:
        pass

    assert not any(thread.is_alive() for thread in workers._threads)
