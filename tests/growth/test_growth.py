"""
No parser of strangers' bytes grows faster than its input.

Whoever may send a request chooses what is parsed. If twice the bytes took four times as long, a few kilobytes would
stop a service for everybody else. PARSERS is the list: a new parser of bytes from outside gets a line in it, with the
input that is worst for it.

Cost is the processor time of this thread, which does not count what a busy machine makes it wait for. Eight times the
bytes may take at most 3 * 8 times as long (a quadratic parser takes 64 times), and it is enough that one of a few
tries shows that: a machine can make a linear parser look slow, and never a quadratic one fast.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from time import thread_time
from typing import Any

import msgspec
import pytest

from onceward import OncewardError
from onceward._core.canonical import canonical_json
from onceward._core.canonical_writer import canonical_pure
from onceward._core.retry_headers import parse_duration, retry_hints
from onceward._core.sealing import MAGIC, key_id_of
from onceward._core.sql_lexer import Dialect, tokens_of
from onceward._core.strict_json import _unique, parse_json
from onceward._core.structured_fields import Malformed, parse_list
from onceward._core.verdict_tables.http_statuses import response_info_of
from onceward.http.client.credentials import credentials_in
from onceward.http.server.media_type import parse_media_type
from onceward.http.server.profile import PROFILES
from onceward.http.server.request_fingerprint import RequestFingerprint
from onceward.http.server.request_identity import identity_of
from onceward.http.server.wsgi_environ import headers_from_environ
from onceward.messaging.inbox.source import headers_by_name, headers_to_keep
from onceward.messaging.webhooks import GitHub, PacSpace, PlainHmac, Secret, StandardWebhooks, Stripe
from onceward.protocol.amounts import parse_amount
from onceward.protocol.token_format import parse_token as read_token
from onceward.service.access.addresses import client_address, trusted_networks
from onceward.service.access.token_verifier import bearer_token
from onceward.service.ledger import wire
from onceward.service.sql.app import BatchRequest, QueryRequest
from onceward.service.sql.limits import DEFAULT_LIMITS
from onceward.service.sql.postgres.placeholders import numbered, ordered
from onceward.service.sql.postgres.statement_checker import (
    FUNCTIONS_EVERYWHERE,
    TYPES_EVERYWHERE,
    StatementChecker,
    catalog_names,
)
from onceward.service.sql.requests import build_request
from onceward.service.sql.statement_parser import _read as read_sql

N = 16_000
"""Bytes of the smaller input, about; the larger one has eight times as many."""
TIMES = 8
GROWTH_MAX = 3 * TIMES
TRIES = 12

DEFAULT = PROFILES["default"]
SECRET = Secret.plain("a secret of many bytes")
PROXIES = trusted_networks(["127.0.0.1"])


def _names(n: int, *, twice: bool = True) -> bytes:
    names = [f'"m{number:06}":0' for number in range(n // 11)]
    return b"{" + ",".join([*names, *names[-1:]] if twice else names).encode() + b"}"


def _fingerprint(kind: str, body: bytes, *, pieces: int = 65_536, query: bytes = b"") -> None:
    headers = [(b"content-type", kind.encode())]
    found = RequestFingerprint.of("POST", b"/", query, headers, DEFAULT)
    for start in range(0, len(body), pieces):
        found.feed(body[start : start + pieces])
    found.digest()


def _form(n: int) -> None:
    _fingerprint("application/x-www-form-urlencoded", b"&".join([b"a%41=%2f+"] * (n // 10)))


def _multipart(n: int) -> bytes:
    return b"--b" + b"\r\nA:1\r\n\r\n-\r\n--\r\n--b" * (n // 20) + b"--"


def _webhook(scheme: Any, headers: Callable[[str], dict[str, str]]) -> Callable[[int], Any]:
    def verify(n: int) -> None:
        scheme.verify(headers("v1=" + "0," * (n // 2)), b"{}", [SECRET], now=0.0)

    return verify


def _postgres_words(sql: str) -> None:
    for _ in tokens_of(sql, Dialect.POSTGRES):
        pass


@cache
def _postgres_checker() -> StatementChecker:
    functions, types = (("function", one) for one in FUNCTIONS_EVERYWHERE), (("type", one) for one in TYPES_EVERYWHERE)
    return StatementChecker(catalog_names([*functions, *types]))


def _postgres_check(sql: str) -> None:
    _postgres_checker().check(sql)


PARSERS: dict[str, Callable[[int], Any]] = {
    # --- JSON ---
    "strict JSON: one member twice": lambda n: parse_json(_names(n)),
    "strict JSON: the last of many is there twice, kept exactly": lambda n: parse_json(_names(n), exact=True),
    "strict JSON: nested": lambda n: parse_json(b'{"a":[' * (n // 6)),
    "strict JSON: brackets in strings": lambda n: parse_json(b'["' + b'\\"[{' * (n // 4) + b'"]'),
    "strict JSON: a long number": lambda n: parse_json(b"[" + b"9" * n + b".5]"),
    "strict JSON: a long exact number": lambda n: parse_json(b"[" + b"9" * n + b".5]", exact=True),
    "strict JSON: a long integer": lambda n: parse_json(b"[" + b"9" * n + b"]"),
    "strict JSON: halves of characters": lambda n: parse_json(b'["' + b"\\ud83d\\ude00" * (n // 12) + b'"]'),
    "strict JSON: it breaks off": lambda n: parse_json(b'{"a":"' + b"\\" * n),
    "canonical JSON: one member twice": lambda n: canonical_json(_names(n)),
    "canonical JSON: members": lambda n: canonical_json(_names(n, twice=False)),
    "canonical JSON: floats": lambda n: canonical_json(b"[" + b"1.0,1e20,-0.0," * (n // 14) + b"1]"),
    "canonical JSON: wide and deep": lambda n: canonical_json(b"[" * 200 + b"[1.5]," * (n // 6) + b"1" + b"]" * 200),
    "canonical form in Python": lambda n: canonical_pure({f"m{number}": 1.5 for number in range(n // 11)}),
    # --- requests with a key ---
    "fingerprint: JSON": lambda n: _fingerprint("application/json", _names(n)),
    "fingerprint: a form": _form,
    "fingerprint: multipart": lambda n: _fingerprint("multipart/form-data; boundary=b", _multipart(n)),
    "fingerprint: multipart in small pieces": lambda n: _fingerprint(
        "multipart/form-data; boundary=" + "-" * 200, b"-" * n, pieces=10
    ),
    "fingerprint: multipart, nearly a boundary": lambda n: _fingerprint(
        "multipart/form-data; boundary=-----b", b"-------b\r\n\r\n" + b"\r\n-------" * (n // 9)
    ),
    "fingerprint: multipart, a head without an end": lambda n: _fingerprint(
        "multipart/form-data; boundary=b", b"--b\r\n" + b"a" * n, pieces=50
    ),
    "fingerprint: a long boundary": lambda n: _fingerprint(
        "multipart/form-data; boundary=" + "b" * n, b"b" * n, pieces=50
    ),
    "fingerprint: the query": lambda n: _fingerprint("text/plain", b"", query=b"a=%41&" * (n // 6)),
    "key header: quoted": lambda n: identity_of([(b"idempotency-key", b'"' + b'\\"' * (n // 2))], DEFAULT),
    "key header: bare": lambda n: identity_of([(b"idempotency-key", b"k" * n)], DEFAULT),
    "key header: many": lambda n: identity_of([(b"idempotency-key", b"k")] * (n // 20), DEFAULT),
    "headers of an environ": lambda n: headers_from_environ(
        {"HTTP_IDEMPOTENCY_KEY": "a," * (n // 2)}, frozenset((b"idempotency-key",))
    ),
    "media type: parameters": lambda n: parse_media_type(
        b"a/b" + b"".join(b";p%d=1" % number for number in range(n // 8))
    ),
    "media type: blanks": lambda n: parse_media_type(b"a/b" + b" " * n + b";" + b" " * n),
    "media type: an open quotation": lambda n: parse_media_type(b'a/b;c="' + b"\\a" * (n // 2)),
    "structured field: members": lambda n: parse_list("a;b=1, " * (n // 7)),
    "structured field: parameters": lambda n: parse_list("a" + ";b=1" * (n // 4)),
    "structured field: a string": lambda n: parse_list('"' + '\\"' * (n // 2)),
    "structured field: blanks": lambda n: parse_list("a" + " " * n + ", " + " " * n),
    "structured field: bytes": lambda n: parse_list(":" + "A" * n),
    # --- the service's bodies and heads ---
    "SQL request": lambda n: msgspec.convert(
        parse_json(b'{"sql":"x","params":[' + b"1," * (n // 2) + b"1]}"), QueryRequest
    ),
    "SQL batch": lambda n: msgspec.convert(
        parse_json(b'{"statements":[' + b'{"sql":"SELECT 1"},' * (n // 19) + b'{"sql":"x"}]}'), BatchRequest
    ),
    "SQL request: names": lambda n: build_request(
        [("SELECT " + ",".join(f":a{number}" for number in range(n // 7)), {})], DEFAULT_LIMITS
    ),
    "SQL text: open comments": lambda n: read_sql("SELECT " + "/*" * (n // 2)),
    "SQL text: quotes": lambda n: read_sql("SELECT " + "'\"`[" * (n // 4)),
    "SQL text: doubled quotes": lambda n: read_sql("SELECT '" + "''" * (n // 2)),
    "SQL text: with": lambda n: read_sql("WITH a AS " + "(" * n + "REPLACE" + " " * n),
    # --- tenants' SQL on PostgreSQL: the words, the placeholders, and the tree (of deep texts, within their caps) ---
    "PostgreSQL words: doubled quotes": lambda n: _postgres_words("SELECT '" + "''" * (n // 2)),
    "PostgreSQL words: escapes": lambda n: _postgres_words("E'" + "\\'" * (n // 2)),
    "PostgreSQL words: open comments": lambda n: _postgres_words("/*" * (n // 2)),
    "PostgreSQL words: dollars without an end": lambda n: _postgres_words(
        "".join(f"$a{number}$ " for number in range(n // 8))
    ),
    "PostgreSQL words: nearly templates": lambda n: _postgres_words("{{" * (n // 2)),
    "PostgreSQL words: nearly placeholders": lambda n: _postgres_words("%(" * (n // 4) + ":'a" * (n // 6)),
    "PostgreSQL placeholders: marks": lambda n: numbered("SELECT " + "?," * (n // 16) + "?"),
    "PostgreSQL placeholders: operators": lambda n: numbered("SELECT " + "a ?? b," * (n // 32) + "1"),
    "PostgreSQL placeholders: names": lambda n: ordered(
        numbered("SELECT " + ",".join(f":a{number}" for number in range(n // 16))),
        {f"a{number}": 1 for number in range(n // 16)},
    ),
    "PostgreSQL tree: a list": lambda n: _postgres_check("SELECT " + "a," * (n // 8) + "1"),
    "PostgreSQL tree: rows": lambda n: _postgres_check("INSERT INTO t VALUES (1)" + ", (1, 'x')" * (n // 40)),
    "PostgreSQL tree: AND": lambda n: _postgres_check("SELECT " + "a AND " * (n // 200) + "b"),
    "PostgreSQL tree: UNION": lambda n: _postgres_check("SELECT 1" + " UNION SELECT 1" * (n // 200)),
    "PostgreSQL tree: attributes": lambda n: _postgres_check("SELECT (x)" + ".a" * (n // 200)),
    "PostgreSQL tree: calls": lambda n: _postgres_check("SELECT " + "abs(" * (n // 2_300) + "1" + ")" * (n // 2_300)),
    "ledger batch": lambda n: msgspec.convert(
        parse_json(b'{"deltas":[' + b'{"customerId":"c","delta":1.5,"reason":"r"},' * (n // 44) + b"{}]}", exact=True),
        wire.DeltaBatchRequest,
    ),
    "ledger amount": lambda n: parse_amount("9" * n),
    "ledger amount: a fraction": lambda n: parse_amount(parse_json(b"0." + b"0" * n + b"1", exact=True)),
    "ledger amount: zeros at the end": lambda n: parse_amount(parse_json(b"1." + b"0" * n, exact=True)),
    "forwarded": lambda n: client_address("127.0.0.1", [("forwarded", 'for="127.0.0.1;,",' * (n // 18))], PROXIES),
    "x-forwarded-for": lambda n: client_address("127.0.0.1", [("x-forwarded-for", "127.0.0.1, " * (n // 11))], PROXIES),
    "authorization": lambda n: read_token(bearer_token(["Bearer " + " " * n + "ow_live_" + "a" * n]) or ""),
    # --- webhooks ---
    "webhook headers: one of them many times": lambda n: headers_to_keep(headers_by_name([("x-a", "1")] * n)),
    "webhook: Standard Webhooks": _webhook(
        StandardWebhooks(),
        lambda text: {"webhook-id": text, "webhook-timestamp": "0", "webhook-signature": text.replace(",", " ")},
    ),
    "webhook: Stripe": _webhook(Stripe(), lambda text: {"stripe-signature": "t=0," + text}),
    "webhook: GitHub": _webhook(GitHub(), lambda text: {"x-hub-signature-256": text, "x-github-delivery": text}),
    "webhook: PacSpace": _webhook(
        PacSpace(), lambda text: {"x-pacspace-timestamp": "0", "x-pacspace-signature": text, "x-event-id": text}
    ),
    "webhook: HMAC in base64": _webhook(
        PlainHmac(header="x-s", spelling="base64", id_header="x-id"), lambda text: {"x-s": text, "x-id": text}
    ),
    # --- sealed values: a body that a stranger sends may look like one ---
    "sealed value": lambda n: key_id_of(MAGIC + b"\x03\xff" + b"k" * n),
    "sealed value: it breaks off": lambda n: key_id_of(MAGIC + b"\x03" + b"\xff" * n),
    # --- what servers answer, at the client ---
    "waits: many fields": lambda n: retry_hints([("retry-after", "1, 2, x")] * (n // 20), limited=True),
    "waits: a long list": lambda n: retry_hints([("retry-after", "1," * (n // 2))], limited=True),
    "waits: a structured limit": lambda n: retry_hints(
        [("ratelimit", '"a";r=0;t=1, ' * 300)] * (n // 4_000), limited=True
    ),
    "waits: a duration": lambda n: parse_duration("1h" * (n // 2) + "x"),
    "waits: a date": lambda n: retry_hints([("retry-after", "Sun, 06 Nov 1994 08:49:37" + " GMT" * (n // 4))]),
    "answers: a code in a body": lambda n: response_info_of(_response(n)),
    "credentials": lambda n: credentials_in({"authorization": "Basic " + "QQ==" * (n // 4)}),
}


class _response:  # noqa: N801 - it stands for a function
    def __init__(self, n: int) -> None:
        self.status_code, self.headers, self._content = 409, {}, b'{"a":"' + b"\\u0041" * (n // 6) + b'","code":"x"}'


def _cost(parse: Callable[[int], Any], n: int) -> float:
    """Seconds of this thread's processor. Making the input is among them, and grows as its length does."""
    began = thread_time()
    with suppress(OncewardError, Malformed, msgspec.ValidationError, ValueError):
        parse(n)
    return thread_time() - began


def growth(parse: Callable[[int], Any], n: int = N, tries: int = TRIES) -> float:
    """How many times longer eight times the input takes: the best of some tries."""
    least = float("inf")
    gc.disable()
    try:
        small = large = float("inf")
        for _ in range(tries):
            small, large = min(small, _cost(parse, n)), min(large, _cost(parse, n * TIMES))
            least = large / max(small, 1e-6)
            if least <= GROWTH_MAX:
                break
    finally:
        gc.enable()
    return least


@pytest.mark.parametrize("name", PARSERS)
def test_eight_times_the_input_is_parsed_in_no_more_than_three_times_as_long_again(name: str) -> None:
    """
    Whatever a stranger sends, the work that it makes grows as its length does.
    """

    assert growth(PARSERS[name]) <= GROWTH_MAX


def test_a_parser_that_is_quadratic_is_found() -> None:
    """
    The measure itself: the way in which duplicate members were once looked for is told from a good one.
    """

    def quadratic(n: int) -> None:
        names = [f"m{number}" for number in range(n // 40)]
        next((name for name in names if names.count(name) > 1), None)

    assert growth(quadratic, tries=2) > GROWTH_MAX


class Counted(str):
    """A name that counts how often it is compared or hashed."""

    __slots__ = ()
    steps = 0

    def __eq__(self, other: object) -> bool:
        Counted.steps += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        Counted.steps += 1
        return str.__hash__(self)


@pytest.mark.fault("duplicate-members-are-counted-one-by-one")
def test_a_member_that_is_there_twice_is_found_in_a_few_steps_for_each_member() -> None:
    """
    Counted in comparisons, not in time: no machine is too busy for that.
    """
    steps = {}
    for size in (500, 1_000):
        pairs: list[tuple[str, object]] = [(Counted(f"m{number}"), 0) for number in [*range(size), size - 1]]
        Counted.steps = 0
        with suppress(Exception):
            _unique(pairs)
        steps[size] = Counted.steps

    assert steps[1_000] <= 3 * steps[500]
