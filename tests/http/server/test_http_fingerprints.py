"""What a request is known by: equal for a retry, different for anything else, however it arrives."""

from __future__ import annotations

import gzip
import itertools
import json
import tracemalloc
from collections.abc import Iterable
from hashlib import sha256
from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.errors import RequestInvalid
from onceward.http import profile
from onceward.http.server import multipart_hash
from onceward.http.server.request_fingerprint import FIELDS_MAX, RequestFingerprint

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


def mark(
    body: bytes | Iterable[bytes] = b"",
    kind: str | None = JSON,
    *,
    method: str = "POST",
    path: str = "/charges",
    query: str = "",
    headers: Iterable[tuple[str, str]] = (),
    **changes: Any,
) -> bytes:
    found = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    if kind is not None:
        found.append((b"content-type", kind.encode("latin-1")))
    made = RequestFingerprint.of(method, path.encode(), query.encode(), found, profile("default", **changes))
    for piece in [body] if isinstance(body, bytes) else body:
        made.feed(piece)
    return made.digest()


def form(boundary: str, *parts: tuple[str, bytes], end: bytes = b"\r\n") -> bytes:
    lines = b"".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + content + b"\r\n"
        for name, content in parts
    )
    return lines + f"--{boundary}--".encode() + end


def multi(boundary: str) -> str:
    return f"multipart/form-data; boundary={boundary}"


PARTS = (("amount", b"12.50"), ("file", b"\x00\r\n--not\r\n"))

EQUAL: dict[str, tuple[bytes, bytes]] = {
    "29 order and white space of JSON": (mark(b'{"a":1,"b":[1,2]}'), mark(b' { "b" : [1, 2],\n"a": 1 }')),
    "30 one number": (mark(b"[1,1,1]"), mark(b"[1.0,1e0,1]")),
    "31 zero": (mark(b"[0]"), mark(b"[-0.0]")),
    "escapes": (mark(b'{"a":"\\u00e9"}'), mark('{"a":"é"}'.encode())),
    "45 charset spelt out": (mark(b"{}"), mark(b"{}", "Application/JSON; Charset=UTF-8")),
    "45 charset quoted": (mark(b"{}"), mark(b"{}", 'application/json;charset="utf-8"')),
    "order of different fields": (mark(b"a=1&b=2", FORM), mark(b"b=2&a=1", FORM)),
    "spelling of a field": (mark(b"a=x+y%20z", FORM), mark(b"%61=x%20y+z", FORM)),
    "46 another boundary": (mark(form("xyz", *PARTS), multi("xyz")), mark(form("a-b-c", *PARTS), multi('"a-b-c"'))),
    "names of a part's headers": (
        mark(b'--b\r\ncontent-disposition:form-data; name="a"\r\n\r\n1\r\n--b--\r\n', multi("b")),
        mark(b'--b\r\nContent-Disposition: form-data; name="a" \r\n\r\n1\r\n--b--\r\n', multi("b")),
    ),
    "headers that do not count": (mark(b"{}"), mark(b"{}", headers=[("user-agent", "x"), ("accept", "*/*")])),
    "identity is no encoding": (mark(b"{}"), mark(b"{}", headers=[("content-encoding", "identity")])),
}


@pytest.mark.requirement("C21")
@pytest.mark.parametrize("pair", EQUAL.values(), ids=EQUAL.keys())
def test_another_spelling_of_the_same_request_is_the_same(pair: tuple[bytes, bytes]) -> None:
    """
    So that a retry that was serialised anew is a retry.
    """
    assert pair[0] == pair[1]
    assert len(pair[0]) == 32


DIFFERENT: dict[str, tuple[bytes, bytes]] = {
    "an amount": (mark(b'{"amount":1}'), mark(b'{"amount":1000}')),
    "a text and a number": (mark(b'["1"]'), mark(b"[1]")),
    "32 numbers beyond 2^53": (mark(b"[9007199254740993]"), mark(b"[9007199254740992]")),
    "order in a list": (mark(b"[1,2]"), mark(b"[2,1]")),
    "method": (mark(b"{}"), mark(b"{}", method="PATCH")),
    "path": (mark(b"{}"), mark(b"{}", path="/refunds")),
    "48 an encoded slash": (mark(b"{}", path="/a%2Fb"), mark(b"{}", path="/a/b")),
    "48 an encoded letter": (mark(b"{}", path="/%61"), mark(b"{}", path="/a")),
    "48 two slashes": (mark(b"{}", path="//a"), mark(b"{}", path="/a")),
    "48 a semicolon": (mark(b"{}", path="/a;b"), mark(b"{}", path="/a")),
    "48 order of the query": (mark(b"{}", query="a=1&b=2"), mark(b"{}", query="b=2&a=1")),
    "path and query run together": (mark(path="/a", query="b"), mark(path="/ab", query="")),
    "method and path run together": (mark(method="POS", path="T/a"), mark(method="POST", path="/a")),
    "42 nothing and null": (mark(b""), mark(b"null")),
    "42 null and an object": (mark(b"null"), mark(b"{}")),
    "42 nothing as JSON and as a form": (mark(b""), mark(b"", FORM)),
    "45 another type": (mark(b"{}"), mark(b"{}", "text/plain")),
    "45 no type": (mark(b"{}"), mark(b"{}", None)),
    "45 another charset": (mark(b"{}"), mark(b"{}", "application/json; charset=utf-16")),
    "45 a version": (mark(b"{}"), mark(b"{}", "application/json; version=2")),
    "another kind of JSON": (mark(b"{}"), mark(b"{}", "application/vnd.api+json")),
    "43 compressed": (mark(b"{}"), mark(b"{}", headers=[("content-encoding", "gzip")])),
    "order of values of one field": (mark(b"a=1&a=2", FORM), mark(b"a=2&a=1", FORM)),
    "a field and its value run together": (mark(b"ab=c", FORM), mark(b"a=bc", FORM)),
    "an ampersand in a value": (mark(b"a=1%26b=2", FORM), mark(b"a=1&b=2", FORM)),
    "a field without a value": (mark(b"a", FORM), mark(b"b", FORM)),
    "order of parts": (mark(form("b", *PARTS), multi("b")), mark(form("b", *PARTS[::-1]), multi("b"))),
    "content of a part": (mark(form("b", ("a", b"1")), multi("b")), mark(form("b", ("a", b"2")), multi("b"))),
    "name of a part": (mark(form("b", ("a", b"1")), multi("b")), mark(form("b", ("b", b"1")), multi("b"))),
    "one part and two": (
        mark(form("b", ("a", b"12")), multi("b")),
        mark(form("b", ("a", b"1"), ("a", b"2")), multi("b")),
    ),
    "a folded header of a part": (
        mark(b'--b\r\nContent-Disposition: form-data\r\n ; name="a"\r\n\r\n1\r\n--b--', multi("b")),
        mark(b'--b\r\nContent-Disposition: form-data\r\n ; name="b"\r\n\r\n1\r\n--b--', multi("b")),
    ),
    "any header of a part": (
        mark(b"--b\r\nX-Amount: 1\r\n\r\n1\r\n--b--", multi("b")),
        mark(b"--b\r\nX-Amount: 2\r\n\r\n1\r\n--b--", multi("b")),
    ),
    "a NUL in a part's header": (
        mark(b"--b\r\nA:1\0B:2\r\n\r\n--b--\r\n\r\n--b--", multi("b")),
        mark(b"--b\r\nA:1\r\nB:2\r\n\r\n--b--\r\n\r\n--b--", multi("b")),
    ),
    "what follows the last boundary": (
        mark(form("b", ("a", b"1")), multi("b")),
        mark(form("b", ("a", b"1"), end=b"\r\nmore"), multi("b")),
    ),
    "charset of a form with parts": (
        mark(form("b", ("a", b"1")), multi("b")),
        mark(form("b", ("a", b"1")), multi("b") + "; charset=utf-16"),
    ),
    "two types": (mark(b"{}"), mark(b"{}", headers=[("content-type", JSON)])),
    "types run together": (
        mark(b"x", "text/plain", headers=[("content-encoding", "a")]),
        mark(b"x", "text/plaina", headers=[("content-encoding", "")]),
    ),
    "canonical and raw": (mark(b"{}"), mark(b"{}", fingerprint="raw")),
}  # fmt: skip


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_another_request_is_another(pair: tuple[bytes, bytes]) -> None:
    """
    At worst a retry is refused as `key_reused`; it is never taken for what it is not.
    """
    assert pair[0] != pair[1]


@pytest.mark.parametrize(
    "body",
    [
        b'{"amt":1,"amt":1000}',
        b"[1e400]",
        b"[NaN]",
        b"[Infinity]",
        b"[" + b"9" * 5_000 + b"]",
        b'["\\ud800"]',
        b"[" * 100_000,
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b'["\xc0\xaf"]',
        b"{} trailing",
        b"{",
    ],
    ids=lambda body: repr(body[:16]),
)
def test_json_that_can_be_read_in_two_ways_is_refused(body: bytes) -> None:
    """
    28, 33 to 40: duplicate members, numbers that are none, half characters, other encodings.
    """
    with pytest.raises(RequestInvalid):
        mark(body)


def test_a_nul_in_a_text_is_a_character() -> None:
    """
    41.
    """
    assert mark(b'["\\u0000"]') != mark(b'[""]')


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--b",
        b"--b\r\n",
        b"no parts",
        b"before\r\n--b\r\n\r\n1\r\n--b--",
        b"--b\r\n\r\nno end",
        b"--b\r\n\r\nno end\r\n--",
        b"--bx\r\n\r\n1\r\n--bx--",
        b"--b\nContent-Disposition: form-data\n\n1\n--b--",
        b"--b\r\nX: " + b"x" * 20_000 + b"\r\n\r\n1\r\n--b--",
        b"--b\r\n\r\n1\r\n" * (multipart_hash.PARTS_MAX + 1) + b"--b--",
    ],
    ids=lambda body: repr(body[:24]),
)
def test_what_is_no_form_with_parts_is_refused(body: bytes) -> None:
    """
    Its handler could only guess, too. In pieces as well as whole.
    """
    for pieces in ([body], [body[at : at + 7] for at in range(0, min(len(body), 30_000), 7)]):
        with pytest.raises(RequestInvalid, match="multipart"):
            mark(pieces, multi("b"))


def test_many_parts_are_taken_in_linear_time() -> None:
    """
    Bytes are moved once per slice, however many parts lie in it: a count of work, not of seconds.
    """
    body = b"--b\r\n\r\n\r\n" * 9_000 + b"--b--"
    made = multipart_hash.MultipartHash(b"b")

    class Counted(bytes):
        moved = 0

        def __getitem__(self, at: Any) -> Any:
            got = super().__getitem__(at)
            Counted.moved += len(got) if isinstance(at, slice) else 1
            return got

    made.feed(Counted(body))
    assert made.finish() is not None
    assert len(body) == Counted.moved


def test_chosen_headers_count() -> None:
    """
    By their values in order; absent and empty are two things.
    """
    account = {"fingerprint_headers": ("Stripe-Account",)}

    def of(*values: str) -> bytes:
        return mark(b"{}", headers=[("stripe-account", value) for value in values], **account)

    assert of("a") == of(" a ")
    assert len({of(), of(""), of("a"), of("b"), of("a", "b"), of("ab")}) == 6


def test_long_json_goes_by_its_bytes() -> None:
    """
    Up to the limit by what it says; a byte beyond, every blank counts. 47: at the limit, and one more.
    """
    short, spaced, long = b'{"a":123}', b'{"a": 123}', b'{"a":  123}'

    assert mark(short, memory_bytes_max=10) == mark(spaced, memory_bytes_max=10)
    assert mark(short, memory_bytes_max=10) != mark(long, memory_bytes_max=10)
    assert mark(long, memory_bytes_max=10) == mark(long, memory_bytes_max=10)
    assert mark(b"not JSON at all", memory_bytes_max=10)


def test_a_form_with_too_many_fields_goes_by_its_bytes() -> None:
    """
    Sorting them would be work for whoever sends nonsense.
    """
    many = b"&".join([b"a=1"] * FIELDS_MAX + [b"b=2"])
    moved = b"&".join([b"b=2"] + [b"a=1"] * FIELDS_MAX)

    assert mark(many, FORM) != mark(moved, FORM)


def test_a_fingerprint_that_is_made_holds_nothing_and_takes_nothing() -> None:
    """
    Asked again it says the same; a thousand who wait for one answer do not hold a thousand bodies here.
    """
    made = RequestFingerprint.of("POST", b"/", b"", [(b"content-type", b"application/json")], profile())
    tracemalloc.start()
    made.feed(b'"' + b"x" * 900_000 + b'"')
    first = made.digest()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert first == made.digest()
    assert held < 100_000
    with pytest.raises(RequestInvalid):
        made.feed(b"more")


def test_a_compressed_body_goes_by_its_bytes() -> None:
    """
    43: nothing is unpacked, so a bomb stays folded.
    """
    bomb, gzipped = gzip.compress(b" " * 10_000_000, mtime=0), [("content-encoding", "gzip")]

    tracemalloc.start()
    made = mark(bomb, headers=gzipped)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert made == mark(bomb, headers=gzipped) != mark(bomb[:-1], headers=gzipped)
    assert peak < 1_000_000


@pytest.mark.parametrize("kind", [JSON, FORM, "multipart/form-data; boundary=b", "application/octet-stream"])
def test_nothing_is_held_beyond_the_limit(kind: str) -> None:
    """
    64 MiB arrive in pieces, and a megabyte is all that is ever held.
    """
    piece, limit = b"x" * 65_536, 1024 * 1024
    opening = b"--b\r\n\r\n" if "multipart" in kind else b""
    closing = b"\r\n--b--" if "multipart" in kind else b""
    made = RequestFingerprint.of("POST", b"/", b"", [(b"content-type", kind.encode())], profile(memory_bytes_max=limit))

    tracemalloc.start()
    made.feed(opening)
    for _ in range(1_024):
        made.feed(piece)
    made.feed(closing)
    made.digest()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 3 * limit


def pieces_of(body: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    return [body[a:b] for a, b in itertools.pairwise(edges)] + [b""]


CUTS = st.lists(st.integers(0, 10_000), max_size=12)
CONTENT = st.binary(max_size=40) | st.sampled_from([b"\r\n", b"\r\n--", b"--b", b"\r\n-", b"-" * 30])
FORMS = st.lists(st.tuples(st.sampled_from(["a", "b", "file"]), CONTENT), max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
)


class TestHoweverItArrives:
    """Every chunking of a body gives the same digest."""

    @settings(max_examples=40)
    @given(VALUES, CUTS)
    def test_json(self, value: Any, cuts: list[int]) -> None:
        """
        And every spelling of it.
        """
        body = json.dumps(value).encode()

        assert mark(json.dumps(value, indent=1, ensure_ascii=False).encode()) == mark(pieces_of(body, cuts))

    @settings(max_examples=40)
    @given(st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4)), max_size=5), CUTS)
    def test_a_form(self, fields: list[tuple[str, str]], cuts: list[int]) -> None:
        """
        Its fields, sorted by name in the encoded form of another library.
        """
        body = "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in fields).encode()

        assert mark(body, FORM) == mark(pieces_of(body, cuts), FORM)

    @settings(max_examples=40)
    @given(FORMS, CUTS)
    def test_parts(self, parts: list[tuple[str, bytes]], cuts: list[int]) -> None:
        """
        Whatever the boundary; and the parts come back as they were from no other body.
        """
        boundary, other = "----a-rather-long-boundary", "b0undary"
        whole = mark(form(boundary, *parts), multi(boundary))

        assert whole == mark(pieces_of(form(boundary, *parts), cuts), multi(boundary))
        assert whole == mark(form(other, *parts), multi(other))

    @settings(max_examples=40)
    @given(FORMS, FORMS)
    def test_two_lists_of_parts_are_equal_only_if_they_are(
        self, left: list[tuple[str, bytes]], right: list[tuple[str, bytes]]
    ) -> None:
        """
        Nothing runs together.
        """
        boundary = "----a-rather-long-boundary"

        equal = mark(form(boundary, *left), multi(boundary)) == mark(form(boundary, *right), multi(boundary))
        assert (left == right) == equal

    @settings(max_examples=40)
    @given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=4), st.data())
    def test_two_forms_are_equal_only_if_their_fields_are(
        self, left: list[tuple[str, str]], data: st.DataObject
    ) -> None:
        """
        By name, with the order of the values under each.
        """
        right = data.draw(st.permutations(left) | st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3))))

        def encoded(fields: list[tuple[str, str]]) -> bytes:
            return "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in fields).encode()

        same = sorted(left, key=lambda pair: pair[0]) == sorted(right, key=lambda pair: pair[0])
        if encoded(left) and encoded(right):
            assert same == (mark(encoded(left), FORM) == mark(encoded(right), FORM))

    @settings(max_examples=40)
    @given(st.binary(max_size=60), CUTS)
    def test_bytes(self, body: bytes, cuts: list[int]) -> None:
        """
        As they are.
        """
        assert mark(body, "application/octet-stream") == mark(pieces_of(body, cuts), "application/octet-stream")


def test_the_fingerprint_never_changes() -> None:
    """
    Golden: a retry may meet a record that an earlier version wrote.
    """
    boundary = "----a-rather-long-boundary"

    assert [
        mark(
            b'{"b":1,"a":[true,null]}', query="x=1", headers=[("accept", "a/b")], fingerprint_headers=("Accept",)
        ).hex(),
        mark(b"b=2&a=1", FORM).hex(),
        mark(form(boundary, *PARTS), multi(boundary)).hex(),
        mark(b"\x00\xff", "application/octet-stream", method="PUT").hex(),
    ] == [
        "99168a5e71a6a2485e9f02fcb90cd72ac0799ef6aac8908d9dcb1c9e75f1495a",
        "9bdc4f074a8777c39253a305b072bf7029821cedc3f4fbfb50b2259d889e47db",
        "adf1a2b2b6a03d0dcefb7135db455928e08cba51b1586e94fd6d3f666a488b01",
        "8e757d542102746229bceff555abfff7aed06b68464e364becd4d8c3332bccc8",
    ]


def test_the_fingerprint_is_what_the_documentation_says() -> None:
    """
    Computed once more, from the words of the reference: every part has its length in front, so nothing runs together.
    """

    def sized(part: bytes) -> bytes:
        return len(part).to_bytes(8, "big") + part

    kind = (1).to_bytes(8, "big") + sized(b"application/json")
    body = b"json\0" + sha256(kind + b"\1" + b'{"a":[true,null],"b":1}').digest()
    request = b"onceward/http/1\0" + sized(b"POST") + sized(b"/charges") + sized(b"x=1")
    accept = sized(b"accept") + (1).to_bytes(8, "big") + sized(b"a/b")

    assert sha256(request + accept + body).digest() == mark(
        b'{"b":1,"a":[true,null]}', query="x=1", headers=[("accept", "a/b")], fingerprint_headers=("Accept",)
    )


def test_the_limit_of_a_parts_head_does_not_depend_on_the_chunking() -> None:
    """
    At the limit it is taken, a byte beyond it is refused, in every chunking around its end.
    """
    for length, taken in ((multipart_hash.HEAD_BYTES_MAX, True), (multipart_hash.HEAD_BYTES_MAX + 1, False)):
        head = b"\r\nX: " + b"x" * (length - 5)
        body = b"--b" + head + b"\r\n\r\n1\r\n--b--"
        for cut in range(3 + length - 2, 3 + length + 6):
            made = multipart_hash.MultipartHash(b"b")
            made.feed(body[:cut])
            made.feed(body[cut:])
            assert taken == (made.finish() is not None)
