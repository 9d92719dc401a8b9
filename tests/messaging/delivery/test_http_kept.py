"""Connections that are kept for the next message: where they lead to, when they are not used, and when they end."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from delivery_support import HERE, SECRET, here, message

from onceward.messaging.outbox.delivery import HttpEndpoint
from onceward.messaging.outbox.delivery.kept_connections import AGE_SECONDS_MAX, IDLE_SECONDS_MAX
from onceward.messaging.outbox.message import Delivered, DeliveryFailed
from onceward.testing.clock import StillEnvironment
from servers.certificates import Authority
from servers.receiver import Receiver, answer

OK = answer(200)
NOT_PUBLIC = "the URL's host leads to an address that is not public; nothing was sent"


class Held:
    """An endpoint whose connections are kept, in a block."""

    def __init__(self, endpoint: HttpEndpoint, many: int = 2) -> None:
        self.endpoint, self._many = endpoint, many

    def __enter__(self) -> HttpEndpoint:
        self.endpoint.hold_connections(self._many)
        return self.endpoint

    def __exit__(self, *_: object) -> None:
        self.endpoint.release_connections(self._many)


def answering(*answers: bytes) -> Receiver:
    """A receiver that answers so on every connection, and then hangs up."""
    receiver = Receiver(b"")
    receiver.answer = lambda line: receiver.go_on(line, *answers)
    return receiver


@pytest.mark.fault("a-connection-is-not-kept")
def test_messages_share_a_connection_and_each_is_signed() -> None:
    """
    Three messages, one connection; each request has its own id and signature, and each response is its own.
    """
    ended = [answer(200), answer(204), answer(503)]
    with answering(*ended) as receiver, Held(here(receiver.port)) as endpoint:
        outcomes = [endpoint.deliver(message(id=f"msg_{number}")) for number in range(3)]

    assert receiver.connections == 1
    assert outcomes == [Delivered("200"), Delivered("204"), DeliveryFailed("the receiver answered 503")]
    assert [one.headers["webhook-id"] for one in receiver.requests] == ["msg_0", "msg_1", "msg_2"]
    assert len({one.headers["webhook-signature"] for one in receiver.requests}) == 3
    assert all("connection" not in one.headers for one in receiver.requests)


def test_without_a_holder_nothing_is_kept() -> None:
    """
    Whoever calls an endpoint by itself has nothing to close: the request asks the receiver to hang up.
    """
    with answering(OK, OK) as receiver:
        endpoint = here(receiver.port)
        for _ in range(2):
            endpoint.deliver(message())

    assert receiver.connections == 2
    assert {one.headers["connection"] for one in receiver.requests} == {"close"}


def test_the_last_holder_closes_them() -> None:
    """
    Two relays may hold one endpoint; when the second lets go, the receiver sees the end.
    """
    with answering(OK, OK, OK) as receiver:
        endpoint = here(receiver.port)
        with Held(endpoint), Held(endpoint):
            endpoint.deliver(message())
            endpoint.deliver(message())
        closed = receiver.ended.wait(60)

    assert (closed, receiver.connections) == (True, 1)


class TestTheGuard:
    """A kept connection leads where it was checked to lead, and a name is checked again in time."""

    @pytest.mark.fault("a-kept-connection-never-grows-old")
    def test_a_name_that_moves_inside_is_refused_when_its_connection_is_too_old(self) -> None:
        """
        DNS says another thing a moment later: the kept connection still leads to the checked address. When it is too
        old the name is looked up again, and what leads inside gets nothing.
        """
        clock, addresses = StillEnvironment(), ["127.0.0.1"]
        options: dict[str, Any] = {"allow_private": ["127.0.0.1"], "environment": clock, "seconds": 300.0}
        with answering(*[OK] * 9) as receiver:
            named = here(receiver.port, resolver=lambda _host, _port: addresses, **options)
            with Held(named) as endpoint:
                first = endpoint.deliver(message())
                addresses[:] = ["169.254.169.254"]
                young = []
                while clock.monotonic() < AGE_SECONDS_MAX - 10:
                    clock.advance(10)
                    young.append(endpoint.deliver(message()))
                clock.advance(10)
                old = endpoint.deliver(message())

        assert {first, *young} == {Delivered("200")}
        assert old == DeliveryFailed(NOT_PUBLIC)
        assert (receiver.connections, len(receiver.requests)) == (1, 1 + len(young))

    def test_one_that_was_idle_for_long_is_not_used(self) -> None:
        """
        Its receiver has most likely hung up: the name is looked up and checked, and a new one is made.
        """
        clock, looked_up = StillEnvironment(), list[str]()

        def resolver(host: str, port: int) -> list[str]:
            looked_up.append(host)
            return ["127.0.0.1"]

        with answering(OK, OK) as receiver, Held(here(receiver.port, resolver=resolver, environment=clock)) as endpoint:
            endpoint.deliver(message())
            clock.advance(IDLE_SECONDS_MAX + 1)
            again = endpoint.deliver(message())

        assert (again, receiver.connections, len(looked_up)) == (Delivered("200"), 2, 2)

    def test_tls_is_checked_once_for_its_name_and_the_connection_is_kept(self, authority: Authority) -> None:
        """
        The certificate of a kept connection was checked when it was made; nobody else can answer on it.
        """
        certificate = authority.serving("hooks.example")
        receiver = Receiver(b"", tls=certificate)
        receiver.answer = lambda line: receiver.go_on(line, OK, OK)
        with receiver:
            endpoint = HttpEndpoint(
                f"https://hooks.example:{receiver.port}/", secrets=[SECRET], allow_private=HERE,
                resolver=lambda _host, _port: ["127.0.0.1"], tls=authority.believing(),
            )  # fmt: skip
            with Held(endpoint):
                outcomes = [endpoint.deliver(message()) for _ in range(2)]

        assert (outcomes, receiver.connections) == ([Delivered("200")] * 2, 1)

    def test_a_redirect_is_not_followed_on_a_kept_connection_either(self) -> None:
        """
        It has failed, and the next message goes where the endpoint says.
        """
        away = answer(307, "Location: http://169.254.169.254/latest")
        with answering(away, OK) as receiver, Held(here(receiver.port)) as endpoint:
            moved, after = endpoint.deliver(message()), endpoint.deliver(message())

        assert isinstance(moved, DeliveryFailed) and "redirects are not followed" in moved.reason
        assert (after, [one.line for one in receiver.requests]) == (Delivered("200"), ["POST /in?a=b HTTP/1.1"] * 2)


class TestWhatIsNotUsedAgain:
    """Where the next response could be somebody else's, or none."""

    @pytest.mark.fault("a-response-nobody-asked-for-is-believed")
    def test_a_response_that_nobody_asked_for_is_not_the_next_ones(self) -> None:
        """
        A receiver that says two things to one request: the second is not taken for the response to the next message.
        """
        twice = answer(503) + answer(200)
        with answering(twice, twice) as receiver, Held(here(receiver.port)) as endpoint:
            outcomes = [endpoint.deliver(message()) for _ in range(2)]

        assert outcomes == [DeliveryFailed("the receiver answered 503")] * 2
        assert receiver.connections == 2

    @pytest.mark.parametrize(
        "last",
        [
            answer(200, "Connection: close"),
            b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
            b"HTTP/1.1 101 Switching\r\nUpgrade: other\r\n\r\n",
        ],
        ids=["close", "1.0", "no-length", "short", "101"],
    )
    def test_a_response_without_a_certain_end_ends_its_connection(self, last: bytes) -> None:
        """
        Nobody could tell where the next response begins.
        """
        receiver = Receiver(last)
        with receiver, Held(here(receiver.port)) as endpoint:
            for _ in range(2):
                endpoint.deliver(message())

        assert (receiver.connections, len(receiver.requests)) == (2, 2)

    @pytest.mark.fault("a-connection-that-was-hung-up-fails-the-message")
    def test_one_that_was_hung_up_is_replaced_within_the_try(self) -> None:
        """
        The receiver takes the second request and hangs up, as one does whose time for idle connections is over: the
        message is sent on a new connection, under the same id, and the try has not failed.
        """
        receiver = Receiver(b"")

        def once_then_hang_up(line: socket.socket) -> None:
            line.sendall(OK)
            receiver.take_one_more(line)

        receiver.answer = once_then_hang_up
        with receiver, Held(here(receiver.port)) as endpoint:
            outcomes = [endpoint.deliver(message(id=f"msg_{number}")) for number in range(2)]

        assert outcomes == [Delivered("200")] * 2
        assert [one.headers["webhook-id"] for one in receiver.requests] == ["msg_0", "msg_1", "msg_1"]

    def test_one_that_breaks_off_in_its_response_has_failed(self) -> None:
        """
        Something came back, so the receiver was there: the try has failed, and is not made twice.
        """
        with answering(OK, b"HTTP/1.1 20") as receiver, Held(here(receiver.port)) as endpoint:
            first, second = endpoint.deliver(message()), endpoint.deliver(message())

        assert first == Delivered("200")
        assert isinstance(second, DeliveryFailed) and "may have arrived" in second.reason
        assert len(receiver.requests) == 2

    def test_a_child_process_does_not_use_its_parents(self) -> None:
        """
        After a fork both have the socket, and two who read from it would get each other's responses.
        """

        class Forked(StillEnvironment):
            name = b"parent"

            def process(self) -> bytes:
                return self.name

        environment = Forked()
        with answering(OK, OK) as receiver, Held(here(receiver.port, environment=environment)) as endpoint:
            endpoint.deliver(message())
            environment.name = b"child"
            again = endpoint.deliver(message())

        assert (again, receiver.connections) == (Delivered("200"), 2)


def test_threads_have_a_connection_each_and_keep_no_more_than_was_said() -> None:
    """
    Four at once make four connections; two stay.
    """
    together = threading.Barrier(4)
    receiver = Receiver(b"")

    def in_step(line: socket.socket) -> None:
        together.wait(60)
        receiver.go_on(line, *[OK] * 9)

    receiver.answer = in_step
    with receiver, Held(here(receiver.port)) as endpoint:
        threads = [threading.Thread(target=endpoint.deliver, args=(message(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        idle = len(endpoint._kept._idle)

    assert (receiver.connections, idle, endpoint._kept._idle) == (4, 2, [])
