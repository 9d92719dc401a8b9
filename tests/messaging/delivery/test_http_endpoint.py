"""A webhook as it goes out, and what becomes of each answer."""

from __future__ import annotations

from email.utils import formatdate
from typing import Any

import pytest
from delivery_support import CREATED_US, OTHER, PAYLOAD, SECRET, here, message

from onceward import ConfigurationError
from onceward.errors import TargetRefused
from onceward.messaging.outbox.delivery import HttpEndpoint
from onceward.messaging.outbox.message import Delivered, DeliveryFailed, DeliveryRefused, EndpointGone
from onceward.messaging.webhooks import PacSpace, Secret, StandardWebhooks
from onceward.runtime.environment import Environment
from servers.receiver import Receiver, answer

OK = answer(200)


class Clock(Environment):
    """The wall's clock stands where it is set; the other one goes on, for sockets."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def wall_us(self) -> int:
        return self.seconds * 1_000_000


class TestWhatIsSent:
    """The message's own bytes, signed, and headers that are the message's or ours."""

    def test_a_message_is_posted_as_it_is(self) -> None:
        """
        Bytes, type, topic and headers of the message; path, query and host of the URL.
        """
        with Receiver(OK) as receiver:
            outcome = here(receiver.port).deliver(message(headers={"X-Tenant": "acme"}))

        (request,) = receiver.requests
        assert Delivered("200") == outcome
        assert (request.line, request.body) == ("POST /in?a=b HTTP/1.1", PAYLOAD)
        assert request.headers["host"] == f"hooks.example:{receiver.port}"
        assert request.headers["content-type"] == "application/json"
        assert request.headers["webhook-topic"] == "invoice.paid"
        assert request.headers["x-tenant"] == "acme"

    def test_the_documents_form_is_an_option(self) -> None:
        """
        `X-Event-ID`, `X-PacSpace-Signature` and `X-PacSpace-Timestamp`, and no others.
        """
        with Receiver(OK) as receiver:
            here(receiver.port, form="pacspace", environment=Clock(1_700_000_000)).deliver(message())

        (request,) = receiver.requests
        verified = PacSpace().verify(request.headers, request.body, [SECRET], now=1_700_000_000)
        assert verified[:2] == ("msg_1", 1_700_000_000)
        assert request.headers["x-webhook-event"] == "invoice.paid"
        assert [name for name in request.headers if name.startswith("webhook-")] == []

    @pytest.mark.parametrize("secrets", [[SECRET], [SECRET, OTHER], [OTHER, SECRET]])
    def test_every_secret_signs(self, secrets: list[Secret]) -> None:
        """
        Two while one is being replaced: receivers with either believe it.
        """
        with Receiver(OK) as receiver:
            here(receiver.port, secrets=secrets, environment=Clock(1_700_000_000)).deliver(message())

        (request,) = receiver.requests
        assert len(secrets) == len(request.headers["webhook-signature"].split(" "))
        for secret in secrets:
            verified = StandardWebhooks().verify(request.headers, request.body, [secret], now=1_700_000_000)
            assert verified[:2] == ("msg_1", 1_700_000_000)

    def test_the_id_is_the_messages_and_the_time_is_the_trys(self) -> None:
        """
        Every try verifies when it arrives: the id stays, the time and the signature are new, the bytes are the same.
        """
        clock = Clock(1_700_000_000)
        with Receiver(OK) as receiver:
            endpoint = here(receiver.port, environment=clock)
            for attempt in (1, 2, 3):
                clock.seconds += 3_600
                endpoint.deliver(message(attempt=attempt))
                request = receiver.requests[-1]
                verified = StandardWebhooks().verify(request.headers, request.body, [SECRET], now=clock.seconds)
                assert ("msg_1", clock.seconds) == verified[:2]

        assert len({one.headers["webhook-signature"] for one in receiver.requests}) == 3
        assert {one.body for one in receiver.requests} == {PAYLOAD}

    def test_unsigned_has_to_be_spoken(self) -> None:
        """
        Without a secret nothing is made; spoken, there is an id, a time, and no signature.
        """
        with pytest.raises(ConfigurationError, match="needs a secret"):
            HttpEndpoint("https://example.com/")
        with pytest.raises(ConfigurationError, match="cannot be combined"):
            HttpEndpoint("https://example.com/", secrets=[SECRET], unsigned=True)
        with Receiver(OK) as receiver:
            here(receiver.port, secrets=[], unsigned=True).deliver(message())

        assert receiver.requests[0].headers["webhook-id"] == "msg_1"
        assert "webhook-signature" not in receiver.requests[0].headers

    def test_the_endpoints_headers_win_over_the_messages(self) -> None:
        """
        An endpoint's `Authorization` is not for a message to change.
        """
        with Receiver(OK) as receiver:
            endpoint = here(receiver.port, headers={"Authorization": "Bearer right", "User-Agent": "Shop/1"})
            endpoint.deliver(message(headers={"authorization": "Bearer wrong"}))

        assert receiver.requests[0].headers["authorization"] == "Bearer right"
        assert receiver.requests[0].headers["user-agent"] == "Shop/1"

    @pytest.mark.parametrize(
        ("changes", "word"),
        [
            ({"headers": {"Host": "a"}}, "Host"),
            ({"headers": {"webhook-id": "a"}}, "webhook-id"),
            ({"headers": {"Transfer-Encoding": "chunked"}}, "Transfer-Encoding"),
            ({"headers": {"X-A": "a\r\nX-B: b"}}, "X-A"),
            ({"headers": {"X-A": "ä"}}, "X-A"),
            ({"headers": {"X A": "a"}}, "name"),
            ({"headers": {"X-A:": "a"}}, "name"),
            ({"topic": "a\r\nX-B: b"}, "webhook-topic"),
            ({"content_type": "a\nb"}, "Content-Type"),
            ({"id": "a.b"}, "full stop"),
            ({"id": "a b"}, "id"),
            ({"payload": b"x" * 1_001}, "1001 bytes"),
        ],
    )
    def test_a_message_that_cannot_be_sent_is_refused_and_nothing_is(self, changes: Any, word: str) -> None:
        """
        Headers of ours, lines inside of a value, an id that could be read in two ways, too much of it.
        """
        with Receiver(OK) as receiver:
            outcome = here(receiver.port, payload_bytes_max=1_000).deliver(message(**changes))

        assert isinstance(outcome, DeliveryRefused)
        assert word in outcome.reason
        assert receiver.connections == 0

    def test_secrets_are_not_shown(self) -> None:
        """
        Nor are headers, paths and queries, where some receivers have theirs.
        """
        endpoint = HttpEndpoint(
            "https://example.com/T000/canary?token=canary", secrets=["canary" * 5], headers={"Authorization": "canary"}
        )

        assert "HttpEndpoint(https://example.com)" == repr(endpoint) == str(endpoint)

    def test_secrets_are_in_no_reason_and_in_no_log(self, caplog: pytest.LogCaptureFixture) -> None:
        """
        Also with a receiver that sends back what it was sent, as a message, as a code and as a place to go to.
        """
        caplog.set_level(0)
        reasons = []
        echoes = [
            answer(400, "Location: https://canary/", body=b'{"code":"canary secret canary secret"}'),
            answer(302, "Location: https://canary.example/canary", body=b"canary"),
            answer(410, "X-A: canary", body=b"canary"),
            answer(500, body=b'{"error":{"code":"Bearer canary","message":"canary"}}'),
            b"HTTP/1.1 canary\r\n\r\n",
            b"canary",
        ]
        with Receiver(b"") as receiver:
            for receiver.answer in echoes:
                endpoint = here(
                    receiver.port, secrets=["canary" * 4], headers={"Authorization": "Bearer canary"}, final=[400]
                )
                reasons.append(endpoint.deliver(message(headers={"X-A": "canary"}))[0])

        assert len(echoes) == len(receiver.requests)
        assert receiver.requests[0].headers["authorization"] == "Bearer canary"
        assert "canary" not in "\n".join(reasons)
        assert "canary" not in caplog.text


class TestWhatTheAnswerMeans:
    """2xx is delivered, 410 is the end of the endpoint, and everything else is tried again."""

    @pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
    def test_any_2xx_is_delivered(self, status: int) -> None:
        """
        Also 202, whatever its body says.
        """
        with Receiver(answer(status, body=b'{"code":"pending"}' if status == 202 else b"")) as receiver:
            assert Delivered(str(status)) == here(receiver.port).deliver(message())

    def test_410_is_gone(self) -> None:
        """
        The receiver wants no more.
        """
        with Receiver(answer(410)) as receiver:
            assert isinstance(here(receiver.port).deliver(message()), EndpointGone)

    @pytest.mark.parametrize(
        "status",
        [300, 304, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 425, 429, 500, 501, 502, 503, 504, 599],
    )
    def test_anything_else_is_tried_again(self, status: int) -> None:
        """
        As Standard Webhooks has it: a receiver's 4xx is mended by its people, and the message is still there then.
        """
        with Receiver(answer(status)) as receiver:
            outcome = here(receiver.port).deliver(message())

        assert isinstance(outcome, DeliveryFailed)
        assert f"answered {status}" in outcome.reason
        assert outcome.retry_after is None

    def test_statuses_can_be_named_as_final(self) -> None:
        """
        Where a receiver documents them: 422 is a dead letter then, 400 is not.
        """
        with Receiver(answer(422)) as receiver:
            endpoint = here(receiver.port, final=[422])
            assert isinstance(endpoint.deliver(message()), DeliveryRefused)
            receiver.answer = answer(400)
            assert isinstance(endpoint.deliver(message()), DeliveryFailed)

    @pytest.mark.parametrize(
        ("header", "seconds"),
        [
            ("Retry-After: 120", 120.0),
            ("Retry-After: 99999999", 86_400.0),
            (f"Retry-After: {formatdate(CREATED_US // 1_000_000 + 90, usegmt=True)}", 90.0),
            (f"Retry-After: {formatdate(CREATED_US // 1_000_000 - 90, usegmt=True)}", 0.0),
            ("Retry-After: soon", None),
            ("Retry-After: -5", None),
            ("Retry-After: nan", None),
            ("Retry-After: " + "9" * 5_000, None),
            ("RateLimit-Reset: 7", 7.0),
        ],
    )
    def test_a_receiver_may_ask_for_time(self, header: str, seconds: float | None) -> None:
        """
        In seconds or as a date, for a day at most; what is neither is as if it were not there.
        """
        with Receiver(answer(429, header)) as receiver:
            outcome = here(receiver.port, environment=Clock(CREATED_US // 1_000_000)).deliver(message())

        assert isinstance(outcome, DeliveryFailed)
        assert seconds == outcome.retry_after

    def test_503_may_ask_for_time_as_well(self) -> None:
        """
        The other status that usually does.
        """
        with Receiver(answer(503, "Retry-After: 30")) as receiver:
            assert DeliveryFailed("the receiver answered 503", 30.0) == here(receiver.port).deliver(message())

    def test_a_receiver_may_say_that_it_need_not_be_tried_again(self) -> None:
        """
        `x-should-retry: false`, in so many words.
        """
        with Receiver(answer(400, "x-should-retry: false")) as receiver:
            assert isinstance(here(receiver.port).deliver(message()), DeliveryRefused)

    @pytest.mark.parametrize(
        ("body", "said"),
        [
            (b'{"code":"customer_unknown"}', "422 (customer_unknown)"),
            (b'{"error":{"code":"bad.state"}}', "422 (bad.state)"),
            (b'{"code":"two\\nlines"}', "422"),
            (b'{"code":"<script>"}', "422"),
            (b"[" * 5_000, "422"),
            (b"\xff\xfe", "422"),
        ],
    )
    def test_a_problems_code_is_told_and_nothing_else_of_the_body(self, body: bytes, said: str) -> None:
        """
        Reasons are kept and shown: a receiver's text in them could be anything.
        """
        with Receiver(answer(422, body=body)) as receiver:
            assert DeliveryFailed(f"the receiver answered {said}") == here(receiver.port).deliver(message())


class TestDeclaring:
    """What cannot work is said when the endpoint is made."""

    @pytest.mark.parametrize(
        "options",
        [
            {"seconds": 0}, {"seconds": float("nan")}, {"seconds": float("inf")}, {"seconds": True}, {"seconds": "5"},
            {"connect_seconds": -1}, {"payload_bytes_max": 0}, {"answer_bytes_max": 2**40}, {"form": "stripe"},
            {"final": [200]}, {"final": [410]}, {"final": ["x"]}, {"headers": {"Host": "x"}}, {"headers": {"A": "\n"}},
            {"secrets": "a text, and no list of texts"}, {"secrets": SECRET}, {"secrets": [SECRET] * 17},
            {"secrets": ["short"]}, {"allow_private": ["10.0.0.1/8"]}, {"allow_private": ["0.0.0.0/0"]},
            {"allow_private": ["::/0"]}, {"allow_private": "10.0.0.0/8"}, {"allow_private": True},
            {"allow_private": ["localhost"]},
        ],
    )  # fmt: skip
    def test_options_that_cannot_work_are_refused(self, options: dict[str, Any]) -> None:
        """
        Times and sizes that are none, statuses that mean something else, networks that are half the world.
        """
        with pytest.raises(ConfigurationError):
            HttpEndpoint("https://example.com/", **{"secrets": [SECRET], **options})

    def test_a_tls_context_that_believes_everybody_is_refused(self) -> None:
        """
        There is no way to switch the checking of certificates off.
        """
        import ssl

        careless = ssl.create_default_context()
        careless.check_hostname = False

        with pytest.raises(ConfigurationError, match="does not check"):
            HttpEndpoint("https://example.com/", secrets=[SECRET], tls=careless)

    @pytest.mark.parametrize(
        "url",
        ["http://example.com/", "https://u:p@example.com/", "https://127.0.0.1/", "https://localhost/", "ftp://a.example/",
         "https://example.com:22/", "https:///x", "https://[::1]/", "https://0x7f.1/", "https://example.com\\@a.b/"],
    )  # fmt: skip
    def test_a_url_that_could_lead_inside_is_refused_at_once(self, url: str) -> None:
        """
        As far as a URL says it; its addresses are looked at with every try.
        """
        with pytest.raises(TargetRefused):
            HttpEndpoint(url, secrets=[SECRET])
