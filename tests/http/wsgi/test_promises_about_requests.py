"""Which requests are one, and which are refused, whichever framework answers: keys, methods, bodies."""

from __future__ import annotations

import gzip

import pytest
from shop_client import JSON, Client, new_key


@pytest.mark.requirement("D09")
def test_bare_and_quoted_keys_are_the_same_key(web: Client) -> None:
    """
    A structured field's string and the bare form name one operation.
    """
    key = new_key()

    assert web.send("/charges", key).body == web.send("/charges", f'"{key}"').body


@pytest.mark.requirement("D10")
@pytest.mark.parametrize("key", ["", "two words", "x" * 256, '"open', '"a", "b"', "k\xe9"])
def test_what_cannot_be_a_key_is_refused(web: Client, key: str) -> None:
    """
    Empty, spaced, over-long, half-quoted, doubled or not ASCII: 400, and nothing runs. 255 characters are taken.
    """
    before = web.effects("/charges")
    got = web.send("/charges", key)

    assert (got.status, got.code) == (400, "key_invalid")
    assert before == web.effects("/charges")
    assert web.send("/charges", new_key().ljust(255, "x")).status == 201


def test_a_key_that_is_sent_twice_is_refused(web: Client) -> None:
    """
    Two headers could mean either; even two that say the same.
    """
    with web.line() as line:
        line.sendall(web.head("/charges", "a", "Idempotency-Key: a", "Content-Length: 0", "Connection: close"))
        got = line.makefile("rb").read()

    assert got.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
    assert b'"code": "key_invalid"' in got


def test_keys_that_differ_in_case_are_two_keys(web: Client) -> None:
    """
    A key is compared byte for byte.
    """
    key = new_key()

    assert web.send("/charges", key + "a").body != web.send("/charges", key + "A").body


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_other_methods_pass_untouched(web: Client, method: str) -> None:
    """
    They may carry a key, and are run every time.
    """
    path, key = "/status/200", new_key()
    before = web.effects(path)
    found = [web.send(path, key, method=method) for _ in range(2)]

    assert [(got.status, got.replayed) for got in found] == [(200, None)] * 2
    assert before + 2 == web.effects(path)


def test_requests_without_a_key_pass_untouched_unless_one_is_needed(web: Client) -> None:
    """
    No key, no scope, no record: it runs each time. Where a key is required, 400.
    """
    free = [web.send("/charges", None, b"{}", JSON, tenant=None) for _ in range(2)]
    refused = web.send("/needed/charges")
    skipped = [web.send("/skipped/charges", "k", tenant=None) for _ in range(2)]

    assert [got.status for got in (*free, *skipped)] == [201] * 4
    assert len({got.body for got in (*free, *skipped)}) == 4
    assert (refused.status, refused.code) == (400, "key_missing")


def test_a_compressed_body_reaches_the_handler_as_it_is(web: Client) -> None:
    """
    It is compared by its bytes, and not opened on the way.
    """
    key, body = new_key(), gzip.compress(b"hello" * 100, mtime=0)
    headers = {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
    first, again = web.send("/echo", key, body, headers), web.send("/echo", key, body, headers)
    other = web.send("/echo", key, gzip.compress(b"other", mtime=0), headers)

    assert body == first.body == again.body
    assert other.code == "key_reused"


def test_a_body_that_is_too_long_is_refused_before_anything_runs(web: Client) -> None:
    """
    413, by what was said and by what came; up to the limit it passes, through a file if need be.
    """
    before = web.effects("/small/echo")
    fits = web.send("/small/echo", new_key(), b"x" * 1_000)
    refused = web.send("/small/echo", new_key(), b"x" * 1_001)
    chunked = web.send("/small/echo", new_key(), iter([b"x" * 600, b"y" * 600]))

    assert (fits.status, len(fits.body)) == (200, 1_000)
    assert (refused.status, refused.code) == (413, "body_too_large")
    assert chunked.status == 413
    assert before + 1 == web.effects("/small/echo")


def test_a_chunked_body_is_compared_and_handed_on(web: Client) -> None:
    """
    A body without a length is the same request as one with it.
    """
    key = new_key()
    first = web.send("/echo", key, iter([b"one ", b"two"]))
    again = web.send("/echo", key, b"one two")
    other = web.send("/echo", key, iter([b"one"]))

    assert (first.status, first.body) == (200, b"one two")
    assert (again.body, again.replayed) == (b"one two", "true")
    assert other.code == "key_reused"


@pytest.mark.parametrize("body", [b'{"a": 1, "a": 2}', b'{"a": "\\ud800"}', b'{"a": NaN}', b"{"])
def test_json_that_could_be_read_in_two_ways_is_refused(web: Client, body: bytes) -> None:
    """
    Double members, lone surrogates, what is no JSON: 400, and nothing runs.
    """
    before = web.effects("/charges")
    got = web.send("/charges", new_key(), body, JSON)

    assert (got.status, got.code) == (400, "request_invalid")
    assert before == web.effects("/charges")
