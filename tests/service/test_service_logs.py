"""The log of a service that is flooded: bounded, and honest about what it left out."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_http import RawConnection
from service_support import Served

from onceward.service.logs import (
    BURST_SECONDS,
    FAVOUR,
    KINDS_MAX,
    AccessLogMiddleware,
    BoundedLogHandler,
    JsonLinesFormatter,
    _text_of,
)
from onceward.service.logs import log as access_log
from onceward.testing.clock import StillEnvironment

RATE = 1_000
LEFT_OUT = re.compile(r"(\d+) lines like this were left out: (.*)")


class Written:
    """A handler on a clock that stands still, and what it wrote."""

    def __init__(self) -> None:
        self.environment = StillEnvironment()
        self.stream = io.StringIO()
        self.handler = BoundedLogHandler(self.stream, RATE, self.environment)
        self.handler.setFormatter(JsonLinesFormatter())

    def log(self, message: str, *values: object, level: int = logging.WARNING, name: str = "onceward.service") -> None:
        self.handler.handle(logging.LogRecord(name, level, "", 0, message, values, None))

    def call(self, status: int) -> None:
        record = access_log.makeRecord(access_log.name, logging.INFO, "", 0, "%s", ({"status": status},), None)
        self.handler.handle(record)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    @property
    def left_out(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for line in self.lines:
            told = LEFT_OUT.match(line.get("message", ""))
            if told:
                found[told[2]] = found.get(told[2], 0) + int(told[1])
        return found


class TestBounds:
    """Of each kind so many bytes a second."""

    @pytest.mark.fault("a-flood-fills-the-log")
    def test_a_flood_of_one_kind_is_cut_and_counted_and_others_are_written(self) -> None:
        """
        Whatever its values are. Every line is written or counted, and the count is told before the next one.
        """
        written = Written()
        for number in range(10_000):
            written.log("the secret %s does not exist", number)
        bytes_of_flood = len(written.stream.getvalue())
        written.log("another kind")
        others = [line for line in written.lines if line["message"] == "another kind"]
        written.environment.advance(60)
        written.log("the secret %s does not exist", "last")

        assert bytes_of_flood < RATE * BURST_SECONDS + 500
        assert len(others) == 1
        kept = [line for line in written.lines if line["message"].startswith("the secret")]
        assert len(kept) + sum(written.left_out.values()) == 10_001
        assert kept[-1]["message"] == "the secret last does not exist"
        assert list(written.left_out) == ["onceward.service, WARNING: the secret %s does not exist"]

    @pytest.mark.fault("what-was-left-out-is-not-told")
    def test_nothing_is_left_out_silently_errors_least_of_all(self) -> None:
        """
        The first errors are written; the count of the rest comes with other lines, on the way, and at the end.
        """
        written = Written()
        for _ in range(1_000):
            written.log("the relay has stopped: %s", "x" * 100, level=logging.ERROR)
        kept = len(written.lines)
        written.environment.advance(11)
        written.log("something else")
        on_the_way = dict(written.left_out)
        for _ in range(1_000):
            written.log("the relay has stopped: %s", "x" * 100, level=logging.ERROR)
        written.handler.close()

        assert kept > 10
        assert sum(on_the_way.values()) == 1_000 - kept
        errors = [line for line in written.lines if line["level"] == "error"]
        assert len(errors) + sum(written.left_out.values()) == 2_000

    def test_calls_that_succeed_have_more_room_than_those_that_are_refused(self) -> None:
        """
        A flood of refusals does not hide them, and they are a kind of their own.
        """
        written = Written()
        for _ in range(20_000):
            written.call(401)
            written.call(200)
        statuses = [line["status"] for line in written.lines if "status" in line]

        assert statuses.count(200) > 10 * statuses.count(401)
        assert len(written.stream.getvalue()) < RATE * BURST_SECONDS * (FAVOUR + 1) + 1_000

    @pytest.mark.fault("kinds-of-lines-are-kept-without-end")
    def test_kinds_without_end_share_a_bucket(self) -> None:
        """
        Memory and bytes are bounded though every message is another.
        """
        written = Written()
        for number in range(20 * KINDS_MAX):
            written.log(f"message {number}")

        assert len(written.handler._kinds) <= KINDS_MAX + 1
        assert "others" in str(written.handler._kinds.keys())

    def test_a_stream_that_fails_harms_nobody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        The disk is full: the caller goes on.
        """
        written = Written()
        monkeypatch.setattr(logging, "raiseExceptions", False)
        written.stream.close()

        written.log("nobody hears this")


@pytest.mark.fault("a-flood-fills-the-log")
def test_a_flood_of_refused_requests_writes_bounded_bytes(tmp_path: Path) -> None:
    """
    Two thousand calls without a token, and as many that are no HTTP: without a bound that is half a megabyte. Every
    refused call is in the log or counted in it.
    """
    served = Served.started(tmp_path, "--log-rate-bytes", "50")
    before = len(served.log)
    with RawConnection(served.address) as line:
        statuses = [line.head("GET", "/v1/db/demo").answer() for _ in range(2_000)]
    for _ in range(500):
        with RawConnection(served.address) as line:
            line.send(b"NONSENSE\r\n\r\n").answer()
    code = served.stop()
    grown = len(served.log) - before

    lines = [json.loads(line) for line in served.log.splitlines()]
    written = sum(line.get("status") in (401, 429) for line in lines)
    told = [LEFT_OUT.match(line.get("message", "")) for line in lines]
    counted = sum(int(one[1]) for one in told if one and re.search("status (401|429)", one[2]))
    nonsense = sum(int(one[1]) for one in told if one and "Invalid HTTP" in one[2])
    assert {one.status for one in statuses if one is not None} == {401, 429}
    assert written + counted == 2_000
    assert nonsense + sum("Invalid HTTP request" in line.get("message", "")[:22] for line in lines) == 500
    assert grown < 60_000
    assert code == 0


class TestTogether:
    """Lines of calls that end in one turn of the event loop are one write."""

    def held(self, written: Written, status: int) -> None:
        written.handler.hold({"at": 1.0, "level": "info", "logger": access_log.name, "status": status})

    def test_calls_are_held_until_the_turn_is_over_and_stay_in_order(self) -> None:
        """
        One writing for all of them; any other line is written at once, behind those that came before it.
        """
        written, turns = Written(), list[Callable[[], None]]()
        written.handler.write_together(turns.append)
        for status in (200, 201):
            self.held(written, status)
        before = written.lines
        turns.pop()()
        after = [line["status"] for line in written.lines]
        self.held(written, 202)
        written.log("a warning")
        last = [line.get("status") or line["message"] for line in written.lines]

        assert (before, after, last) == ([], [200, 201], [200, 201, 202, "a warning"])
        assert len(turns) == 1

    @pytest.mark.fault("lines-that-are-held-are-lost")
    def test_what_is_held_is_written_at_the_end(self) -> None:
        """
        Although the event loop has no more turns.
        """
        for end in ("tell", "close", "flush"):
            written = Written()
            written.handler.write_together(lambda work: None)
            self.held(written, 200)
            getattr(written.handler, end)()

            assert [line["status"] for line in written.lines] == [200], end

    def test_a_stream_that_is_gone_harms_nobody(self) -> None:
        """
        Neither whoever logs nor the event loop.
        """
        written, turns = Written(), list[Callable[[], None]]()
        written.handler.write_together(turns.append)
        written.handler.handleError = lambda record: None  # type: ignore[method-assign]
        self.held(written, 200)
        written.stream.close()
        turns.pop()()
        self.held(written, 200)

    @pytest.mark.fault("lines-that-are-held-are-not-bounded")
    def test_lines_that_are_held_are_bounded_and_counted_like_others(self) -> None:
        """
        Many calls in one turn are written up to the bound of their status; the count comes before the next one.
        """
        written, turns = Written(), list[Callable[[], None]]()
        written.handler.write_together(turns.append)
        for _ in range(5_000):
            self.held(written, 401)
        self.held(written, 200)
        turns.pop()()
        size = len(written.stream.getvalue())
        statuses = [line["status"] for line in written.lines]
        written.environment.advance(5)
        self.held(written, 401)
        turns.pop()()

        assert size < RATE * BURST_SECONDS + 500
        assert statuses[-1] == 200
        left_out = 5_000 - statuses.count(401)
        assert written.left_out == {"onceward.service.access, calls with status 401": left_out}
        assert [line.get("status") for line in written.lines[-2:]] == [None, 401]


class TestText:
    """What a stranger sends is shown in ASCII."""

    def test_other_characters_are_escaped(self) -> None:
        """
        A path may turn a line around on a terminal, or hold what is no text at all.
        """
        paths = ["/v1/db/\N{RIGHT-TO-LEFT OVERRIDE}x", "/\ud800", "/plain", '/"quoted"\n']
        texts = [_text_of({"at": 1.5, "path": path, "ms": 0.1}) for path in paths]

        assert all(text.isascii() and "\n" not in text for text in texts)
        assert [json.loads(text)["path"] for text in texts] == paths


class TestWhoHears:
    """A call's line goes past logging's own ways only where nobody else would hear it."""

    @pytest.fixture
    def written(self) -> Iterator[Written]:
        """The only handler of calls."""
        written, before = Written(), (access_log.handlers, access_log.propagate, access_log.level)
        access_log.handlers, access_log.propagate = [written.handler], False
        access_log.setLevel(logging.INFO)
        written.handler.write_together(lambda work: None)
        yield written
        access_log.handlers, access_log.propagate = before[:2]
        access_log.setLevel(before[2])

    def call(self) -> None:
        """One call of an application that does nothing but answer."""

        async def application(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 204, "headers": []})

        async def nothing(message: Any = None) -> None:
            pass

        scope = {"type": "http", "method": "GET", "path": "/health", "headers": []}
        asyncio.run(AccessLogMiddleware(application)(scope, nothing, nothing))

    def test_the_only_handler_gets_the_line(self, written: Written) -> None:
        """
        And writes it when it is flushed.
        """
        self.call()
        written.handler.flush()

        assert [(line["path"], line["status"]) for line in written.lines] == [("/health", 204)]

    @pytest.mark.fault("calls-go-past-other-handlers")
    def test_another_handler_gets_a_record(self, written: Written) -> None:
        """
        And so does a filter.
        """
        text, filtered = io.StringIO(), list[str]()
        other = logging.StreamHandler(text)
        other.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        access_log.addHandler(other)
        self.call()
        access_log.removeHandler(other)

        def sieve(record: logging.LogRecord) -> bool:
            filtered.append(record.getMessage())
            return True

        access_log.addFilter(sieve)
        self.call()
        access_log.removeFilter(sieve)

        assert text.getvalue().startswith("onceward.service.access: {'at': ")
        assert len(filtered) == 1
        assert len(written.lines) == 2
