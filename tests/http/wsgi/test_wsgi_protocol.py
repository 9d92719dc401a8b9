"""PEP 3333, to the letter: what a server and an application may do to the middleware, and what it does to them."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any
from wsgiref.validate import validator

import pytest
from wsgi_desk import Answered, Desk, Handler

from onceward import Operation


class TestTheLetterOfIt:
    """The middleware is a good server to the application, and a good application to the server."""

    def test_both_sides_are_valid(self) -> None:
        """
        The standard library's validator finds no fault on either side: fresh, replayed, refused, streamed.
        """

        def app(environ: dict[str, Any], start_response: Any) -> Any:
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [b"one"] if environ["PATH_INFO"] == "/charges" else (piece for piece in (b"one", b"two"))

        desk = Desk(validator(app))
        desk.app = validator(desk.app)  # type: ignore[assignment]

        assert [desk.send("a", QUERY_STRING="a=1").body for _ in range(2)] == [b"one"] * 2
        assert [desk.send("b", PATH_INFO="/s").body for _ in range(2)] == [b"onetwo"] * 2
        assert desk.send("two words").status == "400 Bad Request"

    def test_what_has_no_key_is_passed_on_untouched(self) -> None:
        """
        The same environ, the same input, unread; the application's own iterable comes back.
        """
        handler = Handler(lambda environ, start_response: handler)
        desk = Desk(handler)
        environ = desk.environ(None, b"body")
        before = dict(environ)

        assert desk.app(environ, Answered().start_response) is handler
        assert before == environ == handler.environ
        assert environ["wsgi.input"].read() == b"body"

    def test_a_second_head_before_the_body_counts(self) -> None:
        """
        With exc_info an application may change its mind while nothing of its body is there.
        """

        def act(environ: dict[str, Any], start_response: Any) -> list[bytes]:
            start_response("200 OK", [])
            try:
                raise ValueError
            except ValueError:
                start_response("402 Payment Required", [], sys.exc_info())
            return [b"no"]

        assert Desk(act).send().status == "402 Payment Required"

    def test_a_second_head_after_the_body_raises_what_it_was_given(self) -> None:
        """
        Too late for another head: the application's own exception comes out of start_response.
        """

        def act(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
            start_response("200 OK", [("Content-Length", "9")])
            yield b"half"
            try:
                raise LookupError("gone")
            except LookupError:
                start_response("500 No", [], sys.exc_info())

        with pytest.raises(LookupError, match="gone"):
            Desk(act).send()

    @pytest.mark.parametrize("fault", ["twice", "never", "late", "text"])
    def test_an_application_that_breaks_the_rules_has_failed(self, fault: str) -> None:
        """
        Two heads, none, a body before the head, text for bytes: an exception, and nobody knows what it did before.
        """

        def act(environ: dict[str, Any], start_response: Any) -> list[Any]:
            if fault in ("twice", "text"):
                start_response("200 OK", [])
            if fault == "twice":
                start_response("200 OK", [])
            return {"text": ["text"], "late": [b"early"]}.get(fault, [])

        desk = Desk(act)

        with pytest.raises((AssertionError, TypeError)):
            desk.send()
        assert desk.send().code == "in_doubt"

    def test_the_old_way_to_write_is_recorded_like_the_new_one(self) -> None:
        """
        What goes through `write` is passed on as it comes, and is part of the replay.
        """
        seen = []
        got = Answered()

        def act(environ: dict[str, Any], start_response: Any) -> list[bytes]:
            write = start_response("200 OK", [])
            write(b"one ")
            seen.append(got.body)
            return [b"two"]

        desk = Desk(act)
        rest = b"".join(desk.app(desk.environ("k", b""), got.start_response))

        assert (seen, got.body + rest) == ([b"one "], b"one two")
        assert ((again := desk.send()).body, again.headers["idempotency-replayed"]) == (b"one two", "true")

    def test_close_is_called_whatever_happens(self) -> None:
        """
        After a whole answer, after an exception, and after a stream that nobody read to its end.
        """
        handler = Handler()

        def act(environ: dict[str, Any], start_response: Any) -> Any:
            start_response("200 OK", [])
            boom = ValueError("boom") if environ["PATH_INFO"] == "/boom" else None
            return handler.pieces(b"1", b"2", b"3", then=boom)

        handler.act = act
        desk = Desk(handler)
        desk.send("a")
        with pytest.raises(ValueError, match="boom"):
            desk.send("b", PATH_INFO="/boom")
        left: Any = desk.app(desk.environ("c", b""), Answered().start_response)
        next(left)
        left.close()

        assert handler.closed == 3
        assert desk.send("c").body == b"123"

    def test_a_client_that_leaves_while_it_is_written_to_changes_nothing(self) -> None:
        """
        `write` raises: the rest is still recorded, and the server hears its own exception at the end.
        """
        got = Answered()

        def act(environ: dict[str, Any], start_response: Any) -> list[bytes]:
            write = start_response("200 OK", [])
            write(b"one ")
            got.left = True
            write(b"two ")
            return [b"three"]

        desk = Desk(act)
        with pytest.raises(BrokenPipeError):
            list(desk.app(desk.environ("k", b""), got.start_response))

        assert desk.send().body == b"one two three"

    def test_a_stream_that_nobody_reads_and_nobody_can_keep_is_left(self) -> None:
        """
        An endless one must not hold its worker for ever. It is in doubt, because it was cut off; it does not run again.
        """

        def act(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
            start_response("200 OK", [])
            while True:
                yield b"tick"

        handler = Handler(act)
        desk = Desk(handler, result_bytes_max=1_000)
        left: Any = desk.app(desk.environ("k", b""), Answered().start_response)
        next(left)
        left.close()

        assert desk.send().code == "in_doubt"
        assert handler.runs == 1

    def test_the_handler_finds_its_operation(self) -> None:
        """
        For the key that goes downstream, the fence and the attempt; and `current_operation` knows it, too.
        """
        handler = Handler()
        Desk(handler).send()

        assert isinstance(handler.environ["onceward.operation"], Operation)


class TestBodies:
    """Nothing runs for a body that did not come whole."""

    @pytest.mark.parametrize(
        ("changes", "status"),
        [
            ({"CONTENT_LENGTH": "9"}, "400"),
            ({"CONTENT_LENGTH": "-4"}, "400"),
            ({"CONTENT_LENGTH": "four"}, "400"),
            ({"CONTENT_LENGTH": "²"}, "400"),
            ({"CONTENT_LENGTH": None, "HTTP_TRANSFER_ENCODING": "chunked"}, "400"),
            ({"CONTENT_LENGTH": "1" * 20}, "413"),
        ],
    )
    def test_a_length_that_lies_is_refused(self, changes: dict[str, Any], status: str) -> None:
        """
        Longer than what came (the line broke), no number, unknown to the server, beyond the limit.
        """
        handler = Handler()
        got = Desk(handler).send("k", b"body", **changes)

        assert (status, 0) == (got.status[:3], handler.runs)

    @pytest.mark.parametrize(
        ("changes", "seen"),
        [
            ({"CONTENT_LENGTH": "2"}, b"bo"),
            ({"CONTENT_LENGTH": None}, b""),
            ({"CONTENT_LENGTH": ""}, b""),
            ({"CONTENT_LENGTH": None, "wsgi.input_terminated": True}, b"body"),
            ({"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}, b"body"),
        ],
    )
    def test_what_the_server_says_is_the_body_is_the_body(self, changes: dict[str, Any], seen: bytes) -> None:
        """
        Not a byte beyond its length is read; without one it is empty, unless the input ends by itself.
        """
        handler = Handler()
        got = Desk(handler).send("k", b"body", **changes)

        assert seen == got.body
        assert str(len(seen)) == handler.environ["CONTENT_LENGTH"]

    def test_a_long_body_waits_in_a_file_and_reads_as_before(self) -> None:
        """
        Lines, pieces and the rest: the handler's input is a file like any other.
        """

        def act(environ: dict[str, Any], start_response: Any) -> list[bytes]:
            start_response("200 OK", [])
            body = environ["wsgi.input"]
            return [body.readline(), body.read(3), b"".join(body)]

        long = b"first\n" + b"x" * 300_000
        desk = Desk(act, memory_bytes_max=1_000)

        assert long == desk.send("k", long).body == desk.send("k", long).body

    def test_a_slow_body_is_given_up(self) -> None:
        """
        408, with the advice to send it again under the same key; nothing ran.
        """
        handler = Handler()
        desk = Desk(handler, upload_seconds_max=10)

        class Slow(io.BytesIO):
            def read1(self, size: int | None = -1, /) -> bytes:
                desk.clock.advance(4)
                return super().read(1)

        got = desk.send("k", b"body", **{"wsgi.input": Slow(b"body")})

        assert (got.status[:3], got.code, handler.runs) == ("408", "upload_timeout", 0)

    def test_a_line_that_breaks_while_it_is_read_runs_nothing(self) -> None:
        """
        An input that raises is a body that did not come.
        """

        class Broken(io.BytesIO):
            def read1(self, size: int | None = -1, /) -> bytes:
                raise ConnectionResetError

        handler = Handler()
        got = Desk(handler).send("k", b"body", **{"wsgi.input": Broken(b"body")})

        assert (got.status[:3], got.code, handler.runs) == ("400", "request_invalid", 0)


class TestWhatWasSent:
    """An environ is not quite the request; what can be told is told."""

    def test_the_path_counts_as_it_was_sent_where_the_server_says_so(self) -> None:
        """
        %2F and / are two requests, if the server keeps what was sent; an address that is not this path is not believed.
        """
        desk = Desk(Handler())
        path = {"PATH_INFO": "/a/b"}
        desk.send("k", **path, REQUEST_URI="/a%2Fb?x=1")

        assert desk.send("k", **path, RAW_URI="/a%2Fb").status == "200 OK"
        assert desk.send("k", **path, REQUEST_URI="/a/b").code == "key_reused"
        assert desk.send("k", **path, REQUEST_URI="/somewhere/else").code == "key_reused"

    def test_a_mounted_application_sees_the_whole_path(self) -> None:
        """
        SCRIPT_NAME is part of the path that routes and fingerprints go by.
        """
        desk = Desk(Handler())
        desk.send("k", SCRIPT_NAME="/one", PATH_INFO="/charges")

        assert desk.send("k", SCRIPT_NAME="/two", PATH_INFO="/charges").code == "key_reused"

    def test_a_key_with_a_comma_must_be_quoted(self) -> None:
        """
        Servers join two headers with a comma, so a bare one cannot be told from two keys.
        """
        desk = Desk(Handler())

        assert desk.send("a,b").code == "key_invalid"
        assert desk.send('"a,b"').status == "200 OK"
