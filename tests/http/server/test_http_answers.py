"""Answers: recorded while they are given, replayed byte for byte, and marked where the profile wants it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward import Outcome, Reply
from onceward._core.codec import NotEncodable, encode
from onceward.errors import BodyTooLarge
from onceward.http import profile
from onceward.http.server.body_buffer import BodyBuffer
from onceward.http.server.handler_outcomes import UnstoredResponse
from onceward.http.server.request_identity import RequestIdentity
from onceward.http.server.response_recorder import ResponseRecorder
from onceward.http.server.responses import as_reply, marked_replay, replay_marks, with_body_marker

JSON = (("content-type", "application/json"),)
FIRST = 1_700_000_000_000_000


def outcome(value: Any) -> Outcome[Any]:
    return Outcome(value, True, FIRST, 1, 1)


def replay(reply: Reply, identity: RequestIdentity = RequestIdentity("k"), **changes: Any) -> Reply:  # noqa: B008
    made = profile("default", **changes)
    return marked_replay(reply, made, replay_marks(made)[identity.plan is not None], outcome(reply))


class TestTheMarker:
    """How a replay is told from a first answer."""

    def test_in_a_header_and_the_body_stays_as_it_was(self) -> None:
        """
        Whatever it is.
        """
        for body in (b"", b"{}", b" {} \n", b"\xff\x00"):
            assert Reply(201, (*JSON, ("idempotency-replayed", "true")), body) == replay(Reply(201, JSON, body))

    def test_a_step_has_a_marker_of_its_own(self) -> None:
        """
        And not the other one beside it.
        """
        assert replay(Reply(200), RequestIdentity("s", "p")).headers == (("plan-replayed", "true"),)

    def test_under_the_profiles_name(self) -> None:
        """
        In lower case, as HTTP/2 wants it.
        """
        made = profile("stripe")

        assert marked_replay(Reply(200), made, replay_marks(made)[0], outcome(None)).headers == (
            ("idempotent-replayed", "true"),
        )

    @pytest.mark.parametrize(
        ("body", "marked_body"),
        [
            (b'{"a":1}', b'{"a":1,"idempotencyReplayed":true}'),
            (b"{}", b'{"idempotencyReplayed":true}'),
            (b' { "a" : 1.0 }\n ', b' { "a" : 1.0,"idempotencyReplayed":true}'),
            (b'{"idempotencyReplayed":false}', b'{"idempotencyReplayed":false}'),
            (b"[1]", b"[1]"),
            (b"not JSON", b"not JSON"),
            (b"", b""),
            (b"[" * 100_000, b"[" * 100_000),
            ('{"a":1}'.encode("utf-16"), '{"a":1}'.encode("utf-16")),
            (b"\xef\xbb\xbf{}", b"\xef\xbb\xbf{}"),
        ],
        ids=lambda body: repr(body[:20]),
    )
    def test_as_a_member(self, body: bytes, marked_body: bytes) -> None:
        """
        Before the closing brace of an object in UTF-8, so that everything else stays as it is; nothing else is touched.
        """
        assert marked_body == replay(Reply(200, JSON, body), marker="member").body

    def test_in_an_envelope(self) -> None:
        """
        The first answer and its replay have one shape; the body lies in it as it was, byte for byte.
        """
        body = b'{"a": 1.0, "b": [1,  2]}'
        made = profile(marker="envelope")

        first = with_body_marker(Reply(201, JSON, body), made, replayed=False, first_at="2023-11-14T22:13:20+00:00")
        again = replay(Reply(201, JSON, body), marker="envelope")

        assert body in first.body
        assert body in again.body
        assert json.loads(first.body) == {**json.loads(again.body), "replayed": False}
        assert (json.loads(again.body)) == {
            "replayed": True,
            "status": 201,
            "firstAt": "2023-11-14T22:13:20+00:00",
            "body": {"a": 1, "b": [1, 2]},
        }
        assert datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC) == outcome(None).first_at

    @pytest.mark.parametrize(
        "headers",
        [
            (),
            (("content-type", "text/html"),),
            (("content-type", "application/json"), ("content-encoding", "gzip")),
            (("content-type", "application/json"), ("content-type", "application/json")),
            (("content-type", "application/json; ="),),
        ],
    )
    def test_only_json_is_looked_into(self, headers: tuple[tuple[str, str], ...]) -> None:
        """
        Nothing else has a place for it.
        """
        for marker in ("member", "envelope"):
            assert replay(Reply(200, headers, b"{}"), marker=marker).body == b"{}"

    def test_a_changed_body_loses_its_etag(self) -> None:
        """
        It is about other bytes.
        """
        reply = Reply(200, (*JSON, ("etag", '"1"')), b"{}")

        assert None is replay(reply, marker="member").header("etag")
        assert replay(reply).header("etag") == '"1"'

    def test_a_problem_is_json_too(self) -> None:
        """
        Anything that says +json.
        """
        reply = Reply(404, (("content-type", "application/problem+json; charset=utf-8"),), b"{}")

        assert json.loads(replay(reply, marker="member").body) == {"idempotencyReplayed": True}


@pytest.mark.parametrize(
    ("value", "kind", "body"),
    [
        ({"id": 7}, "application/json", b'{"id":7}'),
        (None, "application/json", b"null"),
        (b"raw", "application/octet-stream", b"raw"),
    ],
)
def test_what_somebody_decided_by_hand_is_an_answer_too(value: Any, kind: str, body: bytes) -> None:
    """
    `onceward records reconcile --happened '{"id": 7}'` is replayed as a 200 with that JSON.
    """
    assert Reply(200, (("content-type", kind),), body) == as_reply(value)
    assert Reply(204) == as_reply(Reply(204))


LIMIT = 100


def record(
    pieces: list[bytes], length: int | None, *, limit: int = LIMIT, **changes: Any
) -> tuple[ResponseRecorder, list[bytes]]:
    """Give an answer in these pieces; the last one ends it. What passed before the end, piece by piece."""
    recording = ResponseRecorder(profile("default", **changes), limit)
    headers = [(b"content-type", b"text/plain")]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    recording.begin(200, headers)
    passed = []
    for number, piece in enumerate(pieces):
        passed.append(recording.feed(piece, more=number < len(pieces) - 1))
    return recording, passed


@settings(max_examples=200)
@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=8),
    st.sampled_from(["none", "right", "short", "long"]),
    st.integers(1, 150),
)
def test_every_answer_is_given_whole_and_its_end_waits_for_the_record(
    pieces: list[bytes], length: str, limit: int
) -> None:
    """
    However it is cut, with or without a length (also a wrong one), below and above the limit: what passed and what was
    held back is the answer; it never passes whole before it is stored; and it is kept exactly if it fits.
    """
    whole = b"".join(pieces)
    declared = {"none": None, "right": len(whole), "short": len(whole) // 2, "long": len(whole) + 7}[length]
    recording, passed = record(pieces, declared, limit=limit)
    result = recording.result()

    assert recording.complete
    assert passed[-1] == b""
    assert whole == b"".join(passed) + recording.rest()
    fits = len(whole) <= limit and (declared is None or declared <= limit)
    assert fits == isinstance(result, Reply)
    if isinstance(result, Reply):
        assert (200, whole) == (result.status, result.body)
    if declared is not None and declared == len(whole) and whole:
        assert len(b"".join(passed)) < len(whole)
    if len(pieces) == 1:
        assert not recording.passing


def test_a_stream_passes_as_it_comes() -> None:
    """
    Without a length each piece leaves at once, and only the end waits.
    """
    recording, passed = record([b"a", b"b", b"c"], None)

    assert passed == [b"a", b"b", b""]
    assert recording.rest() == b"c"
    assert recording.result().body == b"abc"  # type: ignore[union-attr]


def test_the_head_of_server_sent_events_goes_at_once() -> None:
    """
    A client that opens such a stream waits for it, and the first event may be long in coming.
    """
    events, text = ResponseRecorder(profile(), LIMIT), ResponseRecorder(profile(), LIMIT)
    events.begin(200, [(b"content-type", b"text/event-stream; charset=utf-8")])
    text.begin(200, [(b"content-type", b"text/plain")])

    assert (events.passing, text.passing) == (True, False)


def test_a_short_answer_of_known_length_waits_whole() -> None:
    """
    A client that has all the bytes it was promised will not wait for more.
    """
    recording, passed = record([b"a", b"b", b""], 2)

    assert passed == [b"", b"", b""]
    assert recording.rest() == b"ab"


def test_an_answer_that_cannot_be_kept_passes_from_the_beginning() -> None:
    """
    Except for what completes it.
    """
    recording, passed = record([b"x" * 60, b"y" * 60, b"z" * 30, b""], 150)

    assert passed == [b"x" * 60, b"y" * 60, b"", b""]
    assert recording.rest() == b"z" * 30
    assert isinstance(recording.result(), UnstoredResponse)


def test_what_is_not_kept_is_not_held() -> None:
    """
    Once a stream is over the limit, nothing of it stays.
    """
    recording, _ = record([b"x" * 60, b"y" * 60, b""], None)

    assert not recording.keeps
    assert recording.rest() == b""


def test_what_was_not_kept_has_no_stored_form() -> None:
    """
    So the gate says executed, not replayable, by the rule that it has for everything.
    """
    recording, _ = record([b"x" * 200], None)

    for unkept in (recording.result(), UnstoredResponse(500, ValueError("x"))):
        with pytest.raises(NotEncodable):
            encode(unkept)


def test_json_for_an_envelope_waits_whole() -> None:
    """
    Otherwise the first answer would be without one, and its replays in one.
    """
    recording = ResponseRecorder(profile(marker="envelope"), LIMIT)
    recording.begin(200, [(b"content-type", b"application/json")])

    assert recording.feed(b"{", more=True) == b""
    assert not recording.passing


def test_only_headers_of_the_allow_list_are_kept() -> None:
    """
    In their order, also twice; a cookie never.
    """
    recording = ResponseRecorder(profile(), LIMIT)
    recording.begin(
        201,
        [
            (b"content-type", b"text/plain"),
            (b"set-cookie", b"session=secret"),
            (b"link", b"<a>"),
            (b"date", b"today"),
            (b"server", b"me"),
            (b"x-request-id", b"1"),
            (b"access-control-allow-origin", b"*"),
            (b"link", b"<b>"),
            (b"content-length", b"2"),
            (b"transfer-encoding", b"chunked"),
        ],
    )
    recording.feed(b"ok", more=False)

    assert Reply(201, (("content-type", "text/plain"), ("link", "<a>"), ("link", "<b>")), b"ok") == recording.result()


@pytest.mark.parametrize("length", [b"-1", b"+5", b"1_0", b"abc", b"9" * 5_000, b""])
def test_a_length_that_is_none_is_no_length(length: bytes) -> None:
    """
    Whatever a handler writes there.
    """
    recording = ResponseRecorder(profile(), LIMIT)
    recording.begin(200, [(b"content-length", length)])

    assert recording.feed(b"a", more=True) == b"a"


class TestTheSpool:
    """A request's body, kept until its handler reads it."""

    def spool(self, memory: int = 10, most: int = 100) -> BodyBuffer:
        return BodyBuffer(profile(memory_bytes_max=memory, body_bytes_max=most))

    def drained(self, spool: BodyBuffer) -> bytes:
        spool.rewind()
        pieces = []
        while piece := spool.read():
            pieces.append(piece)
        return b"".join(pieces)

    @settings(max_examples=60)
    @given(st.lists(st.binary(max_size=20), max_size=5))
    def test_gives_back_what_was_written(self, pieces: list[bytes]) -> None:
        """
        From memory or from a file.
        """
        spool = self.spool()
        for piece in pieces:
            spool.write(piece)

        assert b"".join(pieces) == self.drained(spool)
        assert (spool.size > 10) == spool.on_disk
        spool.close()

    def test_takes_the_limit_and_not_a_byte_more(self) -> None:
        """
        47: counted, whatever the client said about it.
        """
        spool = self.spool()
        spool.expect(100)
        spool.write(b"x" * 100)

        with pytest.raises(BodyTooLarge, match="longer than the 100 bytes"):
            spool.write(b"x")
        spool.close()

    def test_refuses_a_length_beyond_the_limit_at_once(self) -> None:
        """
        Before the first byte.
        """
        with pytest.raises(BodyTooLarge):
            self.spool().expect(101)

    def test_gives_the_body_whole_to_those_who_want_a_file(self) -> None:
        """
        As WSGI does.
        """
        small, large = self.spool(), self.spool()
        small.write(b"small")
        large.write(b"x" * 50)
        large.rewind()

        assert small.whole() == b"small"
        body = large.whole()
        assert not isinstance(body, bytes)
        assert body.read() == b"x" * 50
        large.close()
        assert body.closed
