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
from onceward._core.flow import Returned
from onceward._core.reply import HEAD_BYTES_REMEMBERED, Reply, pack_reply, unpack_reply
from onceward._core.terms import Terms
from onceward.gate import straight_line_async
from onceward.http.asgi import IdempotencyMiddleware
from onceward.http.server.app_routes import AppRoute, idempotent
from onceward.http.server.eager_awaitable import EagerAwaitable
from onceward.http.server.handler_outcomes import gate_options, handler_result
from onceward.http.server.profile import profile
from onceward.http.server.request_admission import (
    TARGET_BYTES_REMEMBERED,
    TARGETS_REMEMBERED,
    AdmittedRequest,
    IncomingRequest,
    RequestAdmission,
)
from onceward.http.server.request_fingerprint import RequestFingerprint
from onceward.http.server.request_identity import RequestIdentity
from onceward.http.server.routes import Route

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


BLANKS = st.text(" \t\n\r", max_size=2)
NAMES = st.sampled_from(["a", "a ", " a", "b", "\\u0061", 'a\\"', "\\ud800", "é", "\\\\ "])
NUMBERS = st.sampled_from(
    ["0", "-0", "1", "1.0", "1.50", "1e5", "1E5", "-0.0", "1e999", "100000.0", "0.00001", "1e-7", "9" * 19, "9" * 30]
)
"""Texts of one value that could be taken for another, or for nothing."""


@st.composite
def spaced_texts(draw: Any, depth: int = 3) -> str:
    """JSON text as a client may write it, and as one may not: members twice, any spelling of numbers, blanks."""
    kind = draw(st.sampled_from(["word", "number", "text", "list", "object"] if depth else ["number", "text"]))
    if kind == "word":
        made = draw(st.sampled_from(["null", "true", "false", "NaN"]))
    elif kind == "number":
        made = draw(NUMBERS)
    elif kind == "text":
        made = f'"{draw(NAMES)}"'
    else:
        count = draw(st.integers(0, 3))
        items = [draw(spaced_texts(depth - 1)) for _ in range(count)]
        if kind == "object":
            items = [f'{draw(BLANKS)}"{draw(NAMES)}"{draw(BLANKS)}:{item}' for item in items]
        made = ("[%s]" if kind == "list" else "{%s}") % ",".join(items)
    return f"{draw(BLANKS)}{made}{draw(BLANKS)}"


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

    @given(spaced_texts())
    def test_no_white_space_makes_two_readers_of_one_text(self, text: str) -> None:
        """
        Whatever is between the tokens and in the strings: the same form, or the same refusal in the same words.
        """
        raw = text.encode()

        assert form_of(canonical_json, raw) == form_of(lambda read: canonical(parse_json(read)), raw)

    @pytest.mark.fault("spaced-json-is-taken-as-orjson-reads-it")
    @pytest.mark.parametrize(
        "text",
        [
            b'{"a": 1, "a": 1}',
            b'{"a": 1, "a ": 1}',
            b'{"a" : {"b": 1, "b":2}}',
            b'[ "\\ud800"]',
            b"[ 1e999 ]",
            b"[1 , 123456789012345678901234567890]",
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

    @pytest.mark.fault("a-float-after-a-nine-is-not-seen")
    @pytest.mark.parametrize("digit", range(10))
    def test_no_float_is_written_as_orjson_writes_it(self, digit: int) -> None:
        """
        Whatever digit is before its point or its exponent: a whole one loses both, as ECMAScript has it.
        """
        for text in (b"[%d.0]" % digit, b"[1%de5]" % digit, b"[1%dE5]" % digit):
            assert canonical_json(text) == canonical([int(float(text[1:-1]))])

    def test_the_short_way_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        A body, compact or spaced out, does not come to the strict reader at all; one with a member twice does.
        """
        monkeypatch.setattr("onceward._core.canonical.parse_json", lambda text: pytest.fail("the strict reader"))

        assert canonical_json(b'{"b":"x","a":1}') == b'{"a":1,"b":"x"}'
        assert canonical_json(b' {"b": "x y",\r\n\t"a" : 1 }\n') == b'{"a":1,"b":"x y"}'
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


class TestRemembered:
    """What the gate is told to remember can be known without a question."""

    @pytest.mark.parametrize("status", [200, 299, 302, 400, 404, 409, 422, 429])
    @pytest.mark.parametrize("remember", ["success", "4xx", "all"])
    def test_a_plain_reply_is_always_one_to_remember(self, status: int, remember: Any) -> None:
        """
        `always` and asking say the same of everything that a handler's response becomes.
        """
        options = gate_options(profile("default", remember=remember))
        result = handler_result(profile("default", remember=remember), Reply(status))

        assert (type(result) is options["remember"].always) == options["remember"](Returned(result))

    @pytest.mark.fault("a-response-takes-the-long-way")
    def test_a_stored_response_takes_the_straight_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        From its claim to its settle no flow is made; a 404 is not stored, and its flow releases the key.
        """
        made: list[int] = []
        rest = straight_line_async.rest_after

        def watched(*given: Any) -> Any:
            made.append(1)
            return rest(*given)

        monkeypatch.setattr(straight_line_async, "rest_after", watched)

        assert _asked([{"body": b"whole", "more_body": False}])[0] == 201
        assert made == []
        assert _asked([{"body": b"whole", "more_body": False}], status=404)[0] == 404
        assert made == [1]


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


def _echo(status: int) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})

    return app


def _asked(
    pieces: list[dict[str, Any]],
    *,
    headers: list[tuple[bytes, bytes]] | None = None,
    status: int = 201,
    awaitable: Any = None,
    **changes: Any,
) -> tuple[int, bytes]:
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
        app = IdempotencyMiddleware(_echo(status), gate=gate, scope="live:acme", **changes)
        given = [(b"idempotency-key", b"k"), *(headers or [(b"content-type", b"text/plain")])]
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": given}
        await app(scope, receive if awaitable is None else lambda: awaitable(_next(pieces)), send)

    asyncio.run(main())
    return sent[0]["status"], sent[1]["body"]


def _next(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "http.request", **pieces.pop(0)}


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

    @pytest.mark.fault("a-whole-body-has-no-limit")
    @pytest.mark.parametrize("declared", [[], [(b"content-length", b"5")], [(b"content-length", b"4")]])
    def test_a_body_that_is_there_has_its_limit(self, declared: list[tuple[bytes, bytes]]) -> None:
        """
        Whether or not its length was announced, and if another one was: 413, and nothing has run. It is not even read,
        or this one would be refused for what is wrong with its JSON.
        """
        headers = [(b"content-type", b"application/json"), *declared]
        status, body = _asked([{"body": b"[1,1.", "more_body": False}], headers=headers, body_bytes_max=4)

        assert (status, orjson.loads(body)["code"]) == (413, "body_too_large")

    def test_a_length_above_the_limit_is_refused_whatever_comes(self) -> None:
        """
        What is announced is refused before anything is received.
        """
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"5")]

        assert _asked([{"body": b"1", "more_body": False}], headers=headers, body_bytes_max=4)[0] == 413

    @pytest.mark.parametrize("waits", [False, True])
    def test_a_server_may_give_any_awaitable(self, waits: bool) -> None:
        """
        Not only coroutines: one that is done at once, and one that is done later.
        """

        class Given:
            def __init__(self, message: dict[str, Any]) -> None:
                self.message = message

            def __await__(self) -> Generator[Any, Any, dict[str, Any]]:
                if waits:
                    yield
                return self.message

        pieces = [{"body": b"two ", "more_body": True}, {"body": b"pieces"}]

        assert _asked([{"body": b"whole"}], awaitable=Given) == (201, b"whole")
        assert _asked(pieces, awaitable=Given) == (201, b"two pieces")

    def test_pieces_are_put_together(self) -> None:
        """
        However many there are.
        """
        assert _asked(
            [{"body": b"in ", "more_body": True}, {"body": b"three ", "more_body": True}, {"body": b"pieces"}]
        ) == (201, b"in three pieces")


class TestHeaders:
    """Headers are looked up by name, unless one of them is repeated."""

    @pytest.mark.fault("a-header-that-is-repeated-is-read-once")
    @pytest.mark.parametrize("repeated", [b"idempotency-key", b"content-type", b"content-encoding"])
    def test_a_header_that_is_repeated_is_seen_twice(self, repeated: bytes) -> None:
        """
        A key that is sent twice is refused. Where two Content-Types or encodings are sent, the body goes by its bytes:
        its JSON is not read, so that nobody refuses it.
        """
        more = [(repeated, b"k2")] if repeated == b"idempotency-key" else [(repeated, b"x/y"), (repeated, b"x/z")]
        twice = [(b"content-type", b"application/json")] if repeated == b"content-type" else []
        status, _ = _asked([{"body": b'{"a":1,"a":1}'}], headers=[*more, *twice])

        assert status == (400 if repeated == b"idempotency-key" else 201)

    @pytest.mark.fault("a-header-in-capitals-is-not-seen")
    @pytest.mark.parametrize("name", [b"Content-Type", b"CONTENT-TYPE", b"content-type"])
    def test_headers_are_known_in_any_case(self, name: bytes) -> None:
        """
        Servers give names in lower case; if one does not, a body is compared all the same by what it says.
        """
        status, _ = _asked([{"body": b'{"a":1,"a":1}'}], headers=[(name, b"application/json")])

        assert status == 400

    @pytest.mark.parametrize("whole", [True, False], ids=["whole", "in pieces"])
    @pytest.mark.parametrize("encoding", [[], [(b"content-encoding", b"identity")]], ids=["bare", "encoded"])
    def test_both_ways_see_the_same(self, encoding: list[tuple[bytes, bytes]], whole: bool) -> None:
        """
        An unknown header that is repeated changes the way, and nothing else: identity and fingerprint are the same, as
        they are for a target that is known, and as the fingerprint is by itself.
        """
        headers = [
            (b"content-type", b"application/json"),
            (b"plan-key", b"p"),
            (b"plan-step", b"s"),
            (b"x-account", b"a"),
            *encoding,
        ]
        changes: Any = {"fingerprint_headers": ("x-account", "x-other")}
        admission = _admission(**changes)
        found = []
        for more in ([], [(b"x-unknown", b"1")], [(b"x-unknown", b"1")] * 2):
            admitted = _admitted(admission, headers=headers + more)
            found.append((admitted.identity, _digest(admitted.fingerprint, b'{"b": 1, "a": 2}', whole=whole)))
        alone = RequestFingerprint.of("POST", b"/a", b"b=c", headers, profile(**changes))

        assert set(found) == {(RequestIdentity("s", "p"), _digest(alone, b'{ "a":2,"b":1}', whole=not whole))}


class TestTargets:
    """What is the same for all requests to a target is found out once."""

    OTHERS = (
        {"method": "PUT"},
        {"path": "/b", "raw_path": b"/b"},
        {"raw_path": b"/%61"},
        {"query": b"b=d"},
        {"headers": [(b"content-type", b"text/plain")]},
        {"headers": [(b"content-type", b"text/plain; charset=latin-1")]},
        {"headers": []},
    )

    @pytest.mark.fault("a-target-is-known-by-its-path-alone")
    def test_every_part_of_a_target_makes_another_one(self) -> None:
        """
        Method, path, path as it was sent, query and Content-Type: each is compared, whatever was asked for before.
        """
        admission = _admission()
        ways = ({}, *self.OTHERS)
        first, again = ([_digest(_admitted(admission, **way).fingerprint, b"1") for way in ways] for _ in range(2))

        assert first == again
        assert len(set(first)) == len(ways)

    def test_a_target_has_the_options_and_the_name_of_its_route(self) -> None:
        """
        The first time and later; and a target with a line end in it is shown with a question mark.
        """
        admission = _admission(routes=[Route("/a", lease=9)])
        for _ in range(2):
            found = [_admitted(admission), _admitted(admission, path="/b\n", raw_path=b"/b\n")]

            assert [one.name for one in found] == ["POST /a", "POST /b?"]
            assert [one.terms.lease for one in found] == [9_000_000, Terms().lease]

    @pytest.mark.fault("a-target-keeps-the-options-that-it-had")
    def test_what_the_application_says_later_counts(self) -> None:
        """
        Overrides of decorated handlers are learned when the application starts, perhaps after the first request.
        """
        admission = _admission()
        before = _admitted(admission).terms.lease
        admission.learn([AppRoute("/a", frozenset({"POST"}), idempotent(lease=9)(lambda: None))])

        assert (before, _admitted(admission).terms.lease) == (Terms().lease, 9_000_000)

    def test_only_requests_with_a_key_make_a_target(self) -> None:
        """
        Others pass through: nothing is found out about them, and nothing is remembered.
        """
        admission = _admission()
        passing = IncomingRequest("POST", "/a", b"/a", b"", [(b"content-type", b"application/json")], None)

        assert admission.admit(passing) is None
        assert admission.routes.targets == {}

    @pytest.mark.fault("targets-are-remembered-without-end")
    def test_nobody_fills_the_memory_with_targets(self) -> None:
        """
        Long ones are not kept, and no more than a few.
        """
        admission = _admission()
        for number in range(2 * TARGETS_REMEMBERED):
            _admitted(admission, query=b"%d" % number)
        _admitted(admission, query=b"x" * TARGET_BYTES_REMEMBERED)

        assert len(admission.routes.targets) == TARGETS_REMEMBERED
        assert max(len(query) for _, _, _, query, _ in admission.routes.targets) < 10


def _admission(**given: Any) -> RequestAdmission[AsyncGate]:
    routes = given.pop("routes", ())
    gate = AsyncGate("memory://", scope="live")
    return RequestAdmission(gate, scope="live:acme", profile_="default", routes=routes, changes=given)


def _admitted(admission: RequestAdmission[AsyncGate], **given: Any) -> AdmittedRequest:
    headers = given.pop("headers", [(b"content-type", b"application/json")])
    keyed = headers if (b"plan-key", b"p") in headers else [(b"idempotency-key", b"k"), *headers]
    asked: Any = {"method": "POST", "path": "/a", "raw_path": b"/a", "query": b"b=c", "raw": None, **given}
    admitted = admission.admit(IncomingRequest(headers=keyed, **asked))
    assert isinstance(admitted, AdmittedRequest)
    return admitted


def _digest(read: RequestFingerprint, body: bytes, *, whole: bool = True) -> bytes:
    if whole:
        return read.digest_whole(body)
    for at in range(len(body)):
        read.feed(body[at : at + 1])
    return read.digest()


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
