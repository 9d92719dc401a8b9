"""The short ways through the HTTP layer end where the long ways end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import AsyncGate, Gate
from onceward._core.canonical import canonical, canonical_json, parse_json
from onceward._core.errors import RequestInvalid, ResultInvalid
from onceward._core.reply import HEAD_BYTES_REMEMBERED, Reply, pack_reply, unpack_reply
from onceward.http.asgi import IdempotencyMiddleware
from onceward.http.server.eager_awaitable import EagerAwaitable

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
SPELLINGS = (
    lambda value: json.dumps(value).encode(),
    lambda value: json.dumps(value, separators=(",", ":")).encode(),
    lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"),
    lambda value: json.dumps(value, indent=1, sort_keys=True).encode(),
)


def form_of(way: Any, text: bytes) -> Any:
    """The canonical form by some way; or that it is refused."""
    try:
        return way(text)
    except RequestInvalid as error:
        return str(error)


class TestJsonBodies:
    """`canonical_json` is `canonical(parse_json(...))`, and faster."""

    @given(VALUES, st.sampled_from(SPELLINGS))
    def test_every_spelling_has_the_form_that_the_strict_reader_gives_it(self, value: Any, spelling: Any) -> None:
        """
        Whatever the value, and however a client writes it.
        """
        text = spelling(value)

        assert form_of(lambda raw: canonical(parse_json(raw)), text) == form_of(canonical_json, text)

    @pytest.mark.parametrize(
        "text",
        [
            b'{"a":1,"a":1}',
            b'{"a":{"b":1,"b":2}}',
            b'["\\ud800"]',
            b"[1e999]",
            b"[NaN]",
            b"[123456789012345678901234567890]",
            b"[18446744073709551616]",
            b"[1.0,-0.0,1e16,1e-7,0.00001,100000000000000000000.0]",
            b'{"version":"1.0","n":1.0}',
            b"\xef\xbb\xbf{}",
            b'"\xff"',
            b"",
            b"{",
            b"[" * 300 + b"]" * 300,
            b"[" * 255 + b"]" * 255,
            '{"\ufb01":1,"\U0001f600":2}'.encode(),
        ],
    )
    def test_what_could_be_read_in_two_ways_is_judged_by_the_strict_reader(self, text: bytes) -> None:
        """
        Members that occur twice, numbers that do not fit, half characters, a byte order mark, too many levels.
        """
        assert form_of(lambda raw: canonical(parse_json(raw)), text) == form_of(canonical_json, text)

    def test_the_short_way_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        A compact body does not come to the strict reader at all; one with a member twice does.
        """
        monkeypatch.setattr("onceward._core.canonical.parse_json", lambda text: pytest.fail("the strict reader"))

        assert canonical_json(b'{"b":"x","a":1}') == b'{"a":1,"b":"x"}'
        with pytest.raises(pytest.fail.Exception):
            canonical_json(b'{"a":1,"a":1}')

    @given(st.binary(max_size=100))
    def test_bytes_are_spelt_as_ever(self, value: bytes) -> None:
        """
        Bytes alone have the form that they have inside of something.
        """
        assert canonical([value])[1:-1] == canonical(value)


class TestStoredAnswers:
    """What was read once is known by its bytes, and what is wrong stays wrong."""

    @pytest.mark.parametrize(
        "planted", [b"[99,[]]\n", b"[200,[]]", b'[200,[["a","b\\r\\nc: d"]]]\n', b"[true,[]]\n", b"{}\n", b"\n", b""]
    )
    def test_a_planted_head_is_refused_every_time(self, planted: bytes) -> None:
        """
        Not only when it is met for the first time.
        """
        for _ in range(3):
            with pytest.raises(ResultInvalid):
                unpack_reply(planted)

    def test_equal_heads_have_their_own_bodies(self) -> None:
        """
        Only the head is remembered, long ones are not, and a body may have anything in it.
        """
        long = ("link", "x" * HEAD_BYTES_REMEMBERED)
        replies = [Reply(201, (("content-type", "text/plain"), *extra), body)
                   for extra in ((), (long,)) for body in (b"", b"\n", b"[200,[]]\nx")]  # fmt: skip

        assert replies * 2 == [unpack_reply(pack_reply(reply)) for reply in replies * 2]


class TestBegun:
    """An awaitable that is begun at once."""

    def test_what_does_not_wait_is_done_when_it_is_made(self) -> None:
        """
        No event loop is needed, and awaiting it afterwards gives the same.
        """

        async def ready() -> int:
            return 7

        begun = EagerAwaitable(ready())

        assert (begun.is_done, begun.value) == (True, 7)
        assert asyncio.run(_awaited(begun)) == 7

    def test_what_waits_goes_on_where_it_was(self) -> None:
        """
        Its answer, its error and a cancellation arrive as if it had been awaited from the start.
        """

        async def main() -> list[Any]:
            told: list[Any] = []

            async def waits(ending: asyncio.Future[int]) -> int:
                try:
                    return await ending + await asyncio.sleep(0, 1)
                except BaseException as error:
                    told.append(type(error))
                    raise

            loop = asyncio.get_running_loop()
            good, bad, never = loop.create_future(), loop.create_future(), loop.create_future()
            begun = [EagerAwaitable(waits(one)) for one in (good, bad, never)]
            assert [one.is_done for one in begun] == [False] * 3
            tasks = [asyncio.ensure_future(_awaited(one)) for one in begun]
            await asyncio.sleep(0)
            good.set_result(1)
            bad.set_exception(KeyError("bad"))
            tasks[2].cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            return [answers[0], *map(type, answers[1:]), *told]

        assert [2, KeyError, asyncio.CancelledError, KeyError, asyncio.CancelledError] == asyncio.run(main())

    def test_what_is_thrown_away_is_closed(self) -> None:
        """
        Closing whoever awaits it closes what was begun, too.
        """
        closed = []

        class Waits:
            def __await__(self) -> Generator[Any, Any, None]:
                try:
                    yield
                finally:
                    closed.append(True)

        steps = EagerAwaitable(Waits()).__await__()
        next(steps)
        steps.close()

        assert closed == [True]


async def _awaited(work: Any) -> Any:
    return await work


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 201, "headers": []})
    await send({"type": "http.response.body", "body": body})


def _asked(pieces: list[dict[str, Any]], **changes: Any) -> tuple[int, bytes]:
    """One keyed request whose body comes in these pieces; after the last of them nothing comes any more."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if not pieces:
            await asyncio.Event().wait()
        return {"type": "http.request", **pieces.pop(0)}

    async def send(message: Any) -> None:
        sent.append(message)

    async def main() -> None:
        gate = AsyncGate("memory://", scope="live")
        app = IdempotencyMiddleware(_echo, gate=gate, scope="live:acme", **changes)
        headers = [(b"idempotency-key", b"k"), (b"content-type", b"text/plain")]
        await app(
            {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}, receive, send
        )

    asyncio.run(main())
    return sent[0]["status"], sent[1]["body"]


class TestUploads:
    """A timer only where there is something to wait for."""

    def test_a_body_that_is_there_needs_no_timer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        The first message has it all, so no timer is made; a body in two pieces has one.
        """

        class Made(Exception):
            pass

        def timeout(seconds: float) -> Any:
            raise Made

        monkeypatch.setattr("onceward.http.asgi.asyncio.timeout", timeout)

        assert _asked([{"body": b"whole", "more_body": False}]) == (201, b"whole")
        with pytest.raises(Made):
            _asked([{"body": b"ha", "more_body": True}, {"body": b"lf"}])

    @pytest.mark.parametrize("pieces", [[], [{"body": b"ha", "more_body": True}]])
    def test_a_body_that_does_not_come_is_not_waited_for(self, pieces: list[dict[str, Any]]) -> None:
        """
        Whether its first piece is missing or a later one: 408 when the time is over, and nothing has run.
        """
        status, body = _asked(list(pieces), upload_seconds_max=0.02)

        assert (status, orjson.loads(body)["code"]) == (408, "upload_timeout")

    def test_pieces_are_put_together(self) -> None:
        """
        However many there are.
        """
        assert _asked(
            [{"body": b"in ", "more_body": True}, {"body": b"three ", "more_body": True}, {"body": b"pieces"}]
        ) == (201, b"in three pieces")


class TestCallOn:
    """`call_on` is `call` with the terms ready."""

    def test_both_know_each_others_records(self) -> None:
        """
        One runs, the other replays, in either order and in both colours.
        """
        gate = Gate("memory://shared-terms", scope="live:acme")
        terms = gate.agreed(lease=9)

        first = gate.call("k", lambda: 1, request={"a": 1}, lease=9)
        second = gate.call_on(terms, "k", lambda: 2, request={"a": 1})
        third = gate.call_on(terms, "other", lambda: 3, request=None)
        fourth = asyncio.run(
            _awaited(AsyncGate("memory://shared-terms", scope="live:acme").call_on(terms, "other", _four))
        )

        assert [(one.value, one.replayed) for one in (first, second, third, fourth)] == [
            (1, False),
            (1, True),
            (3, False),
            (3, True),
        ]


async def _four() -> int:
    return 4
