"""Receivers that mean harm, or are broken: every try ends, with a little memory, and says what it saw."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable

import pytest
from delivery_support import here, message

from onceward.messaging.outbox.message import Delivered, DeliveryFailed
from servers.receiver import Receiver, answer

GENEROUS = 60.0
"""Seconds after which a test would say that a try did not end."""


def ended_in_time(outcome: object) -> bool:
    """Whether the try was ended by its deadline; how far it had come by then is the machine's business."""
    return isinstance(outcome, DeliveryFailed) and "in time" in outcome.reason


def timed(work: Callable[[], object]) -> tuple[object, float]:
    """What it returns, and how long it took."""
    began = time.monotonic()
    return work(), time.monotonic() - began


def dripping(text: bytes, pause: float = 0.05) -> Callable[[socket.socket], None]:
    """One byte at a time, and the last one again and again, until the caller hangs up."""

    def drip(line: socket.socket) -> None:
        position = 0
        while True:
            line.sendall(text[position : position + 1])
            position = min(position + 1, len(text) - 1)
            threading.Event().wait(pause)

    return drip


class TestTime:
    """One deadline for everything."""

    @pytest.mark.parametrize("text", [b"HTTP/1.1 200 OOOO", b"HTTP/1.1 200 OK\r\nX-A: aaaaa"])
    def test_a_slow_drip_ends_with_the_deadline(self, text: bytes) -> None:
        """
        Bytes keep coming, so no wait for one of them ever takes long; the try as a whole does, and is ended.
        """
        with Receiver(dripping(text)) as receiver:
            outcome, took = timed(lambda: here(receiver.port, seconds=0.5).deliver(message()))
            assert receiver.ended.wait(GENEROUS)  # We hung up.

        assert ended_in_time(outcome)
        assert 0.5 <= took < GENEROUS

    def test_a_timeout_of_the_socket_would_not_end_it(self) -> None:
        """
        The control: the standard client with a timeout of a second reads for longer than that, and would go on.
        """
        enough = threading.Event()

        def drip(line: socket.socket) -> None:
            line.sendall(b"HTTP/1.1 200 OK\r\nX-A: ")
            began = time.monotonic()
            while time.monotonic() - began < 1.5:
                line.sendall(b"a")
                threading.Event().wait(0.05)
            line.sendall(b"\r\n\r\n")
            enough.set()

        with Receiver(drip) as receiver:
            client = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=1)
            client.request("POST", "/", b"")
            response, took = timed(client.getresponse)
            client.close()

        assert isinstance(response, http.client.HTTPResponse)
        assert took > 1.4
        assert enough.is_set()

    def test_a_receiver_that_says_nothing_is_left(self) -> None:
        """
        It took the message, and is silent.
        """
        silent = threading.Event()
        with Receiver(lambda _line: silent.wait(GENEROUS) and None) as receiver:
            outcome = here(receiver.port, seconds=0.3).deliver(message())
            silent.set()

        assert ended_in_time(outcome)

    def test_a_port_that_takes_no_connection_is_left(self) -> None:
        """
        A listener whose queue is full drops what comes: the caller would wait for minutes.
        """
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            port = full.getsockname()[1]
            callers = [socket.socket() for _ in range(4)]
            try:
                for caller in callers:
                    caller.setblocking(False)
                    caller.connect_ex(("127.0.0.1", port))
                outcome, took = timed(lambda: here(port, seconds=30, connect_seconds=0.3).deliver(message()))
            finally:
                for caller in callers:
                    caller.close()

        assert DeliveryFailed("no connection in time") == outcome
        assert took < 30

    def test_a_receiver_that_does_not_read_is_left(self) -> None:
        """
        More than the buffers take: sending has an end as well.
        """
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            endpoint = here(deaf.getsockname()[1], seconds=1, payload_bytes_max=2**25)
            outcome = endpoint.deliver(message(payload=b"x" * 2**24))

        assert ended_in_time(outcome)

    def test_a_handshake_that_does_not_end_is_left(self) -> None:
        """
        TLS is part of connecting.
        """
        from delivery_support import HERE, SECRET

        from onceward.messaging.outbox.delivery import HttpEndpoint

        with socket.create_server(("127.0.0.1", 0)) as silent:
            endpoint = HttpEndpoint(
                f"https://127.0.0.1:{silent.getsockname()[1]}/", secrets=[SECRET], allow_private=HERE,
                connect_seconds=0.3,
            )  # fmt: skip
            assert DeliveryFailed("no connection in time") == endpoint.deliver(message())

    def test_the_rest_of_an_answer_is_not_waited_for(self) -> None:
        """
        The status is known: a body that drips changes nothing, and holds nobody up for long.
        """
        drip = dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\naaaa", 0.01)
        with Receiver(drip) as receiver:
            outcome, took = timed(lambda: here(receiver.port, seconds=GENEROUS).deliver(message()))

        assert Delivered("200") == outcome
        assert took < GENEROUS / 2


class TestSize:
    """At most so many bytes are read."""

    def test_an_endless_body_is_not_read(self) -> None:
        """
        Delivered, since the status says so; of the rest the cap is read, and the line is hung up.
        """
        sent = 0

        def endless(line: socket.socket) -> None:
            nonlocal sent
            line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                sent += line.send(b"a" * 65_536)

        with Receiver(endless) as receiver:
            assert Delivered("200") == here(receiver.port).deliver(message())
            assert receiver.ended.wait(GENEROUS)

        assert sent < 64 * 1_048_576  # What buffers of the system take is beyond us; it is not endless.

    @pytest.mark.parametrize(
        ("flood", "words"),
        [
            (b"X-A: " + b"a" * 1_000 + b"\r\n", "no whole answer"),
            (b"X: a\r\n", "not HTTP"),
            (b"a" * 70_000, "no whole answer"),
        ],
    )
    def test_a_flood_of_headers_is_not_read(self, flood: bytes, words: str) -> None:
        """
        Many of them, large ones, and one that has no end.
        """

        def headers(line: socket.socket) -> None:
            line.sendall(b"HTTP/1.1 200 OK\r\n")
            while True:
                line.sendall(flood)

        with Receiver(headers) as receiver:
            outcome = here(receiver.port).deliver(message())
            assert receiver.ended.wait(GENEROUS)

        assert isinstance(outcome, DeliveryFailed)
        assert words in outcome.reason

    def test_answers_before_the_answer_are_passed_over(self) -> None:
        """
        100 and 103 are none yet; a thousand of them are too many.
        """
        early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        with Receiver(b"HTTP/1.1 100 Continue\r\n\r\n" + early * 2 + answer(204)) as receiver:
            assert Delivered("204") == here(receiver.port).deliver(message())
            receiver.answer = early * 1_000 + answer(204)
            assert isinstance(here(receiver.port).deliver(message()), DeliveryFailed)


class TestNonsense:
    """What is no answer."""

    @pytest.mark.parametrize(
        "nonsense",
        [b"", b"\r\n", b"hello", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 OK 200\r\n\r\n", b"HTTP/1.1 2000 OK\r\n\r\n",
         b"HTTP/1.1 99 No\r\n\r\n", b"HTTP/3 200 OK\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"220 mail ESMTP\r\n",
         b"\x16\x03\x01\x00\x00", b"\xff" * 100, b"\x00",
         b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Le",
         b"HTTP/1.1 200 OK\r\nX-A: b\r\n"],
    )  # fmt: skip
    def test_garbage_is_a_failure(self, nonsense: bytes) -> None:
        """
        Never delivered, and never an exception. A head that was cut is none, whatever status it began with.
        """
        with Receiver(nonsense) as receiver:
            outcome = here(receiver.port).deliver(message())

        assert isinstance(outcome, DeliveryFailed)
        assert outcome.reason.endswith("; the message may have arrived")

    @pytest.mark.parametrize("status", [413, 200])
    def test_an_answer_before_the_whole_message_is_heard(self, status: int) -> None:
        """
        413 from a server that reads no further; a 200 from one that has not read it all is no delivery.
        """
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def hasty() -> None:
                line, _ = listener.accept()
                line.recv(1_000)
                line.sendall(answer(status))
                line.close()

            thread = threading.Thread(target=hasty, daemon=True)
            thread.start()
            endpoint = here(listener.getsockname()[1], payload_bytes_max=2**26)
            outcome = endpoint.deliver(message(payload=b"x" * 2**25))
            thread.join(GENEROUS)

        assert isinstance(outcome, DeliveryFailed)
        # Whether the answer survives the end of its line is the system's business; mostly it does.
        assert f"answered {status}" in outcome.reason or "no whole answer" in outcome.reason

    def test_a_refused_connection_is_a_failure(self) -> None:
        """
        Nobody listens: it was not sent.
        """
        with socket.create_server(("127.0.0.1", 0)) as gone:
            port = gone.getsockname()[1]

        assert DeliveryFailed("the connection failed (Connection refused)") == here(port).deliver(message())
