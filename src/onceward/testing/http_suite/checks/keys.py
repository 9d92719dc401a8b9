"""
Checks of keys: which are valid, and which are the same key.
"""

from __future__ import annotations

from onceward.testing.http_suite.check_support import (
    check,
    must_be_refused,
    must_be_replayed,
    must_run_apart,
    require,
)
from onceward.testing.http_suite.execution_detector import ExecutionDetector
from onceward.testing.http_suite.target_client import HeaderLines

BAD_REQUEST = 400


@check(
    "key-missing",
    sends="a request without a key",
    must="it is refused with 400",
    when=lambda expected: expected.key_required,
)
def key_missing(detector: ExecutionDetector) -> None:
    _must_refuse(detector, (), "a request without a key")


@check("key-empty", sends='an empty key, bare and as `""`', must="both are refused with 400")
def key_empty(detector: ExecutionDetector) -> None:
    for value in (b"", b'""'):
        _must_refuse(detector, detector.client.raw_key(value), "an empty key")


@check(
    "key-characters",
    sends="keys with a control character, a DEL, a tab, a non-ASCII byte and, where keys are not quoted, a space",
    must="each is refused with 400",
)
def key_characters(detector: ExecutionDetector) -> None:
    quote = b'"' if detector.client.expected.quoted_keys else b""
    for name, odd in (
        ("a control character", b"\x01"),
        ("a DEL", b"\x7f"),
        ("a tab", b"\t"),
        ("a non-ASCII byte", b"\xe9"),
        ("a space", b" "),
    ):
        if quote and odd == b" ":
            continue  # A blank may stand in a quoted string.
        key = detector.client.key().encode("ascii") + odd + b"x"
        _must_refuse(detector, detector.client.raw_key(quote + key + quote), f"a key with {name}")


@check("key-too-long", sends="a key with one character too many", must="it is refused with 400")
def key_too_long(detector: ExecutionDetector) -> None:
    length = detector.client.expected.key_length_max + 1
    _must_refuse(detector, detector.client.keyed(_long_key(detector, length)), f"a key of {length} characters")


@check("key-longest", sends="the longest key that is allowed, twice", must="it is accepted, and the second is a replay")
def key_longest(detector: ExecutionDetector) -> None:
    client = detector.client
    length = client.expected.key_length_max
    request = client.new_request(lines=client.keyed(_long_key(detector, length)))
    tally = detector.tally()
    first = client.send(request)
    require(first.succeeded, f"a key of {length} characters was answered {first}")
    must_be_replayed(detector, tally, first, client.again(request), "the second")


@check(
    "key-twice",
    sends="the key's header twice: with two keys, and with one key",
    must="both are refused with 400",
)
def key_twice(detector: ExecutionDetector) -> None:
    client = detector.client
    one, other = client.keyed(client.key()), client.keyed(client.key())
    _must_refuse(detector, one + other, "a request with two keys")
    _must_refuse(detector, one + one, "a request with its key twice")


@check(
    "key-quoted",
    sends="a request under a bare key, and under the same key in quotes",
    must="they are one key: the second response is a replay (where keys must be quoted, a bare key may be refused)",
)
def key_quoted(detector: ExecutionDetector) -> None:
    client = detector.client
    key = client.key()
    quoted = client.new_request(lines=client.keyed(key, quoted=True))
    tally = detector.tally()
    first = client.send(quoted)
    require(first.succeeded, f"a quoted key was answered {first}")
    again = client.again(quoted.under(client.keyed(key, quoted=False)))
    if client.expected.quoted_keys and again.status == BAD_REQUEST:
        return
    must_be_replayed(detector, tally, first, again, "the bare key")


@check("key-case", sends="a request under two keys that differ only in case", must="both run")
def key_case(detector: ExecutionDetector) -> None:
    key = detector.client.key()
    _must_be_two(detector, key + "a", key + "A", "a key in another case")


@check(
    "key-prefix",
    sends="a request under two keys of the maximum length that differ only in the last character",
    must="both run: keys are not shortened",
)
def key_prefix(detector: ExecutionDetector) -> None:
    shared = _long_key(detector, detector.client.expected.key_length_max - 1)
    _must_be_two(detector, shared + "1", shared + "2", "a key with the same beginning")


def _long_key(detector: ExecutionDetector, length: int) -> str:
    return f"{detector.client.key()}-".ljust(length, "k")


def _must_refuse(detector: ExecutionDetector, lines: HeaderLines, what: str) -> None:
    must_be_refused(detector, detector.client.send(detector.client.new_request(lines=lines)), BAD_REQUEST, what)


def _must_be_two(detector: ExecutionDetector, one: str, other: str, what: str) -> None:
    client = detector.client
    request = client.new_request(lines=client.keyed(one))
    tally = detector.tally()
    responses = [client.first(request), client.send(request.under(client.keyed(other)))]
    must_run_apart(detector, tally, responses, what)


CHECKS = (
    key_missing,
    key_empty,
    key_characters,
    key_too_long,
    key_longest,
    key_twice,
    key_quoted,
    key_case,
    key_prefix,
)
