"""Receiving: believed or refused on the raw bytes, written once, answered at once."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import odd_deliveries
import pytest
from inbox_support import OTHER, SCOPE, SECRET, TEXT, World, ignored, pacspace

from onceward import ConfigurationError
from onceward.errors import BodyTooLarge, EventInvalid, SignatureInvalid, SourceUnknown, SourceUnready
from onceward.messaging.inbox import Source, event_receiver, handler
from onceward.messaging.inbox.source import headers_by_name, headers_to_keep
from onceward.messaging.webhooks import GitHub, PacSpace, PlainHmac, StandardWebhooks, Stripe


class TestAnswers:
    """What a sender is told."""

    @pytest.mark.requirement("C52", "C53")
    def test_the_first_delivery_and_a_repeat_have_their_exact_answers(self, inbox: Any, world: World) -> None:
        """
        Byte for byte, with status 200.
        """
        inbox.add(pacspace())
        headers, body = world.signed("e-1")

        first, again = (inbox.answer("pac", headers, body) for _ in range(2))

        assert (first.status, first.body) == (200, b'{"received": true}')
        assert (again.status, again.body) == (200, b'{"received": true, "duplicate": true}')
        assert first.headers[0] == ("content-type", "application/json")

    @pytest.mark.requirement("C51", "E38")
    def test_an_event_is_known_after_a_restart(self, world: World) -> None:
        """
        Ids are in the database, and nowhere else.
        """
        headers, body = world.signed("e-1")
        for expected in (False, True, True):
            opened = world.open()
            opened.add(pacspace())
            assert expected is opened.receive("pac", headers, body).duplicate
            opened.close()

        assert world.state("e-1") == ("waiting", 0, 3)

    def test_a_crowd_delivers_one_event_once(self, world: World) -> None:
        """
        The unique constraint decides: one is the first, whoever that is.
        """
        opened = world.open()
        opened.add(pacspace())
        headers, body = world.signed("e-1")
        found: list[bool] = []

        def deliver() -> None:
            found.append(opened.receive("pac", headers, body).duplicate)

        threads = [threading.Thread(target=deliver) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        opened.close()

        assert sorted(found) == [False] + [True] * 11

    @pytest.mark.requirement("C47")
    @pytest.mark.fault("the-answer-waits-for-the-handler")
    def test_the_answer_is_there_before_the_handler_begins(self, inbox: Any, world: World) -> None:
        """
        Nobody works yet, and the answer comes: whoever answers runs no handler. Then somebody works, and it is handled.
        """
        done = threading.Event()
        order: list[str] = []

        @handler(guarantee="repeatable")
        def handle(event: Any) -> None:
            order.append("handled")
            done.set()

        inbox.add(pacspace(handle))
        order.append(inbox.answer("pac", *world.signed("e-1")).body.decode())
        order.append("answered")
        with inbox.working(1):
            assert done.wait(60)

        assert order == ['{"received": true}', "answered", "handled"]

    @pytest.mark.requirement("C47", "C48")
    @pytest.mark.fault("the-answer-waits-for-the-handler")
    def test_a_handler_that_never_ends_holds_no_answer_up(self, inbox: Any, world: World) -> None:
        """
        It is let go on only by what comes after the answers: an answer that waited for it would find it given up.
        """
        began, go_on = threading.Event(), threading.Event()
        gave_up: list[str] = []

        @handler(guarantee="repeatable")
        def stuck(event: Any) -> None:
            began.set()
            if not go_on.wait(30):
                gave_up.append(event.id)

        inbox.add(pacspace(stuck))
        # Before anybody works: a worker that is idle would let the still clock run on, past the signature's time.
        answers = [inbox.answer("pac", *world.signed("e-1"))]
        with inbox.working(1):
            assert began.wait(60)
            answers += [inbox.answer("pac", *world.signed(id)) for id in ("e-1", "e-2")]
            go_on.set()

        assert gave_up == []
        assert [one.body for one in answers] == [
            b'{"received": true}',
            b'{"received": true, "duplicate": true}',
            b'{"received": true}',
        ]

    def test_refusals_are_problems_with_a_stable_code(self, inbox: Any, world: World) -> None:
        """
        For any framework: status, headers and body.
        """
        inbox.add(pacspace())
        headers, body = world.signed("e-1")
        found = {
            "signature_invalid": inbox.answer("pac", headers, body + b" "),
            "event_invalid": inbox.answer("pac", {**headers, "x-event-id": ""}, body),
            "source_unknown": inbox.answer("nobody", headers, body),
            "body_too_large": inbox.answer("pac", headers, b"x" * (event_receiver.BODY_BYTES_MAX + 1)),
        }

        assert [one.status for one in found.values()] == [401, 400, 404, 413]
        assert list(found) == [json.loads(one.body)["code"] for one in found.values()]
        assert world.count() == 0


class TestIdentity:
    """What makes two deliveries one event."""

    def test_two_sources_and_two_tenants_may_have_equal_ids(self, world: World) -> None:
        """
        An id is its source's own, and its tenant's.
        """
        headers, body = world.signed("e-1")
        for scope in (SCOPE, "live:other"):
            opened = world.open(scope=scope)
            for name in ("one", "two"):
                opened.add(pacspace(name=name))
                assert not opened.receive(name, headers, body).duplicate
            opened.close()

        assert world.count() == 4

    def test_the_same_id_with_another_body_is_a_duplicate_and_is_noted(
        self, inbox: Any, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        The first body stands, and is what is processed. It is signed, so refusing would only bring it back again.
        """
        seen: list[Any] = []

        @handler(guarantee="repeatable")
        def note(event: Any) -> None:
            seen.append(event.json())

        inbox.add(pacspace(note))
        inbox.receive("pac", *world.signed("e-1", {"n": 1}))

        with caplog.at_level(logging.WARNING):
            again = inbox.receive("pac", *world.signed("e-1", {"n": 2}))
        inbox.drain()

        assert (again.duplicate, again.altered) == (True, True)
        assert world.rows("SELECT deliveries, altered FROM onceward_inbox_events") == [(2, 1)]
        assert "a different body" in caplog.text
        assert seen == [{"n": 1}]

    @pytest.mark.requirement("C50")
    def test_headers_are_found_however_they_are_spelled(self, inbox: Any, world: World) -> None:
        """
        As a mapping or as pairs, in any case.
        """
        inbox.add(pacspace())
        headers, body = world.signed("e-1")

        assert inbox.receive("pac", {name.title(): value for name, value in headers.items()}, body).id == "e-1"
        assert inbox.receive("pac", [(name.upper(), value) for name, value in headers.items()], body).duplicate

    @pytest.mark.requirement("C50")
    @pytest.mark.parametrize("id", [None, "", "a b", "x" * 2049, "ä"])
    def test_an_event_without_an_id_is_refused(self, inbox: Any, world: World, id: str | None) -> None:
        """
        A redelivery could not be told from another event: 400, and nothing written.
        """
        inbox.add(pacspace())
        headers, body = world.signed("e-1")
        del headers["x-event-id"]

        with pytest.raises(EventInvalid):
            inbox.receive("pac", headers if id is None else {**headers, "x-event-id": id}, body)

        assert world.count() == 0

    def test_a_header_that_came_twice_is_not_chosen_from(self, inbox: Any, world: World) -> None:
        """
        Two ids or two times could be read in two ways.
        """
        inbox.add(pacspace())
        headers, body = world.signed("e-1")
        for name in ("x-event-id", "x-pacspace-timestamp"):
            with pytest.raises(SignatureInvalid):
                inbox.receive("pac", [*headers.items(), (name.title(), headers[name])], body)

        assert world.count() == 0


class TestBelieving:
    """Who really sent it."""

    @pytest.mark.requirement("C59")
    def test_a_changed_body_and_an_old_time_are_refused(self, inbox: Any, world: World) -> None:
        """
        On the bytes as they came; five minutes either way. Nothing is written.
        """
        inbox.add(pacspace())
        headers, body = world.signed("e-1")
        with pytest.raises(SignatureInvalid):
            inbox.receive("pac", headers, body.replace(b"1", b"2"))
        world.environment.advance(301)
        with pytest.raises(SignatureInvalid, match="300 seconds"):
            inbox.receive("pac", headers, body)

        assert world.count() == 0

    def test_while_a_secret_is_replaced_either_is_right(self, inbox: Any, world: World) -> None:
        """
        A source has two secrets for a while; a sender may sign with one or with both.
        """
        inbox.add(Source("pac", PacSpace(), [SECRET, OTHER], ignored))
        for number, secrets in enumerate([(SECRET,), (OTHER,), (OTHER, SECRET)]):
            assert not inbox.receive("pac", *world.signed(f"e-{number}", secrets=secrets)).duplicate

    @pytest.mark.parametrize("kind", ["sqlite"])
    @pytest.mark.parametrize("name", odd_deliveries.NAMES)
    def test_odd_deliveries_are_refused_and_nothing_is_written(self, name: str, world: World) -> None:
        """
        Times, signatures, ids and bodies of every odd kind: a refusal with a code, and never an accident.
        """
        [one] = [one for one in odd_deliveries.odd(TEXT, world.environment.wall_us() // 10**6) if one.name == name]
        opened = world.open()
        opened.add(Source("odd", one.scheme, [TEXT], ignored))

        with pytest.raises(SignatureInvalid) as refused:
            opened.receive("odd", one.headers, one.body)
        opened.close()

        assert one.code == refused.value.code
        assert world.count() == 0

    def test_an_unknown_source_and_a_long_body_are_refused(self, inbox: Any, world: World) -> None:
        """
        Before anything is looked at.
        """
        with pytest.raises(SourceUnknown):
            inbox.receive("pac", *world.signed("e-1"))
        inbox.add(pacspace())
        with pytest.raises(BodyTooLarge):
            inbox.receive("pac", *world.signed("e-1", b"x" * (event_receiver.BODY_BYTES_MAX + 1)))

        assert world.count() == 0

    def test_without_a_secret_nothing_is_believed(self, inbox: Any, world: World) -> None:
        """
        Not even an empty signature under an empty secret; the sender is asked to come again.
        """
        inbox.add(Source("pac", PacSpace(), [], ignored))

        with pytest.raises(SourceUnready):
            inbox.receive("pac", *world.signed("e-1"))
        assert (inbox.answer("pac", *world.signed("e-1")).status, world.count() == 0) == (503, True)


class TestDeclaring:
    """A source says everything before the first event."""

    @pytest.mark.parametrize(
        "wrong",
        [
            {"name": "No"}, {"name": ""}, {"name": "a/b"}, {"secrets": [""]}, {"secrets": [TEXT] * 5},
            {"secrets": TEXT},
            {"attempts": 0}, {"attempts": True}, {"number_at": "body:x"}, {"keep": -1}, {"keep": float("nan")},
        ],
    )  # fmt: skip
    def test_what_cannot_work_is_refused(self, wrong: dict[str, Any]) -> None:
        """
        And no secret is repeated.
        """
        with pytest.raises(ConfigurationError) as refused:
            Source(**{"name": "pac", "scheme": PacSpace(), "secrets": [TEXT], "handler": ignored, **wrong})

        assert TEXT not in str(refused.value)

    def test_a_secret_is_not_shown(self) -> None:
        """
        By no repr.
        """
        assert TEXT not in repr(Source("pac", PacSpace(), [TEXT], ignored))

    def test_an_inbox_has_a_scope_and_one_source_of_a_name(self, inbox: Any, world: World) -> None:
        """
        Whose events they are is never guessed.
        """
        with pytest.raises(ConfigurationError, match="scope"):
            world.open(scope=None)
        inbox.add(pacspace())
        with pytest.raises(ConfigurationError, match="already"):
            inbox.add(pacspace())

    def test_a_handler_is_a_plain_function_that_can_do_what_it_says(self, inbox: Any) -> None:
        """
        No coroutine, no atomic effect without settling inside, no waiting.
        """

        async def awaits(event: Any) -> None: ...

        with pytest.raises(ConfigurationError):
            inbox.add(pacspace(awaits))
        for options in ({"guarantee": "atomic"}, {"wait": 3}, {"guarantee": "surely"}):
            with pytest.raises(ConfigurationError):
                handler(**options)(ignored)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="needs a second parameter"):
            handler(guarantee="atomic", settle="inside")(lambda event: None)

    @pytest.mark.parametrize(
        ("scheme", "forever"),
        [(StandardWebhooks(), False), (Stripe(), False), (PacSpace(), False), (GitHub(), True),
         (PlainHmac(header="X", id_header="Y"), True)],
    )  # fmt: skip
    def test_ids_are_kept_for_ever_where_no_time_is_signed(self, scheme: Any, forever: bool) -> None:
        """
        Such a message could be sent again at any time; the others are refused by their age.
        """
        assert forever is (Source("pac", scheme, [TEXT], ignored).keep_us is None)


def test_kept_headers_prove_nothing_about_anybody() -> None:
    """
    What says what an event is stays; signatures, tokens, cookies and addresses go.
    """
    came = {
        "Content-Type": "application/json", "X-GitHub-Event": "push", "Webhook-Id": "1", "Authorization": "Bearer x",
        "Cookie": "a=b", "X-Hub-Signature-256": "sha256=0", "X-Api-Key": "k", "X-Forwarded-For": "192.0.2.1",
        "X-Long": "x" * 2_000, "Accept": "*/*",
    }  # fmt: skip

    assert list(headers_to_keep(headers_by_name(came))) == ["content-type", "x-github-event", "webhook-id"]
