"""
Bad inputs 1 to 81 of the field study, as this service meets them.

`BAD` is the table: its number there, what is sent, and what is answered: a documented 4xx with a code, nothing written,
nothing lost. `FINE` are those of them that are odd but mean one thing, and work. `ELSEWHERE` says of the others why no
endpoint of this service can meet them, or which test does.
"""

from __future__ import annotations

import gzip
import json
from typing import Any, NamedTuple

INSERT = b"""{"sql": "INSERT INTO events VALUES (hex(randomblob(16)), 'x')"}"""
SELECT = b'{"sql": "SELECT 1"}'
JSON = b"application/json"
CAP = 5_000_000
INTEGERS = {"zero": 0, "past 63 bits": 2**63, "negative": -1}


class Sent(NamedTuple):
    """A request, as bytes. `{database}`, `{doubt}` and the tokens in braces are filled in."""

    body: bytes = INSERT
    headers: bytes = b""
    path: str = "{database}/query"
    method: str = "POST"
    type: bytes | None = JSON
    length: bool = True
    authorization: str | None = "Bearer {token}"
    raw: bytes | None = None


class Bad(NamedTuple):
    """One bad input."""

    number: int
    what: str
    sent: Sent
    status: int
    code: str
    or_code: str = ""
    """With uvicorn's other parser, which takes a little more before it is refused."""


def key(value: bytes, body: bytes = INSERT) -> Sent:
    return Sent(body, b"Idempotency-Key: " + value + b"\r\n")


def param(text: bytes) -> Sent:
    return Sent(b'{"sql": "INSERT INTO events VALUES (?, 1)", "params": [' + text + b"]}")


def sql(text: str, params: Any = None) -> Sent:
    return Sent(json.dumps({"sql": text, "params": params}).encode())


def token(value: str | None, headers: bytes = b"", path: str = "{database}/query") -> Sent:
    return Sent(authorization=value, headers=headers, path=path)


def decided(body: bytes, what: str = "reconcile") -> Sent:
    return Sent(body, path=f"/v1/records/{{doubt}}/{what}")


BAD = [
    *(
        Bad(number, what, key(value), 400, "key_invalid")
        for number, what, value in [
            (2, "empty", b""),
            (3, "spaces only", b"   "),
            (4, "256 characters", b"k" * 256),
            (7, "two, joined by a proxy", b"a, b"),
            (8, "two quoted texts", b'"a", "b"'),
            (8, "a quoted text with a parameter", b'"a";q=1'),
            (9, "a quote that does not close", b'"abc'),
            (10, "latin-1", "é".encode("latin-1")),
            (11, "an emoji", "😀".encode()),
            (14, "a tab inside", b"a\tb"),
            (16, "SQL, with its blank", b"'; drop table"),
            (18, "the other environment's prefix", b"live:demo:key"),
            (21, "a look-alike", "kеy".encode()),
            (21, "NFD", "é".encode()),
            (26, "right-to-left override", "\u202eabc".encode()),
        ]
    ),
    Bad(5, "1 MB", key(b"k" * 1_000_000), 431, "head_too_large"),
    Bad(6, "two headers", Sent(headers=b"Idempotency-Key: a\r\nIdempotency-Key: b\r\n"), 400, "key_invalid"),
    Bad(6, "the same header twice", Sent(headers=b"Idempotency-Key: a\r\nIDEMPOTENCY-KEY: a\r\n"), 400, "key_invalid"),
    Bad(6, "two plans", Sent(headers=b"Plan-Key: a\r\nPlan-Key: b\r\nPlan-Step: s\r\n"), 400, "key_invalid"),
    Bad(2, "an empty step", Sent(headers=b"Plan-Key: a\r\nPlan-Step: \r\n"), 400, "key_invalid"),
    Bad(12, "NUL", key(b"a\0b"), 400, "request_invalid"),
    Bad(13, "a folded line", key(b"a\r\n b"), 400, "request_invalid", "key_invalid"),
    Bad(13, "a bare CR", key(b"a\rb"), 400, "request_invalid"),
    Bad(26, "an ANSI escape", key(b"\x1b[31mred"), 400, "request_invalid", "key_invalid"),
    Bad(28, "a member twice", Sent(b'{"sql": "SELECT 1", "sql": "DELETE FROM events"}'), 400, "request_invalid"),
    Bad(28, "a parameter twice", Sent(b'{"sql": "SELECT :a", "params": {"a": 1, "a": 2}}'), 400, "request_invalid"),
    Bad(33, "1e400", param(b"1e400"), 400, "request_invalid"),
    *(Bad(34, one.decode(), param(one), 400, "request_invalid") for one in (b"NaN", b"Infinity", b"-Infinity")),
    Bad(35, "5,000 digits", param(b"9" * 5_000), 400, "request_invalid"),
    Bad(36, "half a surrogate pair", param(rb'"\ud800"'), 400, "request_invalid"),
    Bad(36, "the same in the statement", Sent(rb"""{"sql": "SELECT '\ud800'"}"""), 400, "request_invalid"),
    Bad(37, "100,000 brackets", param(b"[" * 100_000 + b"]" * 100_000), 400, "request_invalid"),
    Bad(38, "a BOM", Sent(b"\xef\xbb\xbf" + INSERT), 400, "request_invalid"),
    Bad(39, "UTF-16", Sent(INSERT.decode().encode("utf-16")), 400, "request_invalid"),
    Bad(40, "no UTF-8", Sent(INSERT.replace(b"'x'", b"'\xff'")), 400, "request_invalid"),
    Bad(40, "overlong UTF-8", Sent(INSERT.replace(b"'x'", b"'\xc0\xaf'")), 400, "request_invalid"),
    Bad(41, "NUL in the statement", Sent(INSERT.replace(b"'x'", rb"'\u0000'")), 400, "sql_error"),
    *(
        Bad(42, repr(one), Sent(one), 400, "request_invalid")
        for one in (b"", b"null", b"{}", b"[]", b"1", b'"x"', INSERT[:-1], INSERT + b"{}")
    ),
    Bad(43, "gzip", Sent(gzip.compress(INSERT), b"Content-Encoding: gzip\r\n"), 415, "media_type_unsupported"),
    Bad(43, "gzip that is none", Sent(headers=b"Content-Encoding: gzip\r\n"), 415, "media_type_unsupported"),
    Bad(43, "two encodings", Sent(headers=b"Content-Encoding: identity\r\n" * 2), 400, "request_invalid"),
    Bad(44, "a length that is too small", Sent(headers=b"Content-Length: 9\r\n", length=False), 400, "request_invalid"),
    Bad(44, "a length that is too large", Sent(headers=b"Content-Length: 999\r\n", length=False), 408,
        "upload_timeout"),
    Bad(44, "two lengths", Sent(headers=b"Content-Length: 9\r\n"), 400, "request_invalid"),
    Bad(44, "a negative length", Sent(headers=b"Content-Length: -9\r\n", length=False), 400, "request_invalid"),
    Bad(44, "length and chunks", Sent(headers=b"Transfer-Encoding: chunked\r\n"), 400, "request_invalid"),
    Bad(44, "chunks that are none", Sent(b"zz\r\n", b"Transfer-Encoding: chunked\r\n", length=False), 400,
        "request_invalid"),
    Bad(44, "a head that stops", Sent(raw=b"POST /v1/db"), 408, "upload_timeout"),
    Bad(44, "a head without an end", Sent(raw=b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000), 431, "head_too_large"),
    Bad(44, "no HTTP at all", Sent(raw=b"\x16\x03\x01\x02\x00\x01" * 20 + b"\r\n\r\n"), 400, "request_invalid"),
    Bad(45, "plain text", Sent(type=b"text/plain"), 415, "media_type_unsupported"),
    Bad(45, "no type", Sent(type=None), 415, "media_type_unsupported"),
    Bad(45, "another charset", Sent(type=JSON + b"; charset=utf-16"), 415, "media_type_unsupported"),
    Bad(45, "two types", Sent(headers=b"Content-Type: text/plain\r\n"), 400, "request_invalid"),
    Bad(46, "multipart", Sent(b"--x--", type=b"multipart/form-data; boundary=x"), 415, "media_type_unsupported"),
    Bad(47, "cap and one", Sent(INSERT.ljust(CAP + 1)), 413, "body_too_large"),
    *(
        Bad(48, path, Sent(path=path), status, code)
        for path, status, code in [
            ("{database}/query?x=1", 400, "request_invalid"),
            ("/v1/db%2Fdemo/d/query", 404, "not_found"),
            ("/v1/db//demo/d/query", 404, "not_found"),
            ("{database}/query;x=1", 404, "not_found"),
            ("{database}/query/", 404, "not_found"),
            ("{database}/../query", 404, "not_found"),
            ("/v1/db/demo/%2e%2e/query", 400, "name_invalid"),
            ("/v1/db/demo/a%00b/query", 400, "name_invalid"),
            ("/v1/db/demo/%ff/query", 400, "name_invalid"),
            ("/v1/db/demo/CON/query", 400, "name_invalid"),
            ("/V1/DB/demo/d/query", 404, "not_found"),
        ]
    ),
    Bad(50, "infinity as a result", sql("INSERT INTO events VALUES ('x', 'y') RETURNING 1e999"), 400, "sql_error"),
    Bad(51, "10 MB as a result", sql(
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n LIMIT 20) SELECT hex(zeroblob(300000)) FROM n"
    ), 413, "sql_error"),
    *(
        Bad(59, f"a fence that is {what}", decided(body), 400, "request_invalid")
        for what, body in [
            ("a text", b'{"fence": "1", "result": 1}'),
            ("a truth", b'{"fence": true, "result": 1}'),
            ("a fraction", b'{"fence": 1.5, "result": 1}'),
        ]
    ),
    *(
        Bad(59, f"a fence that is {what}", decided(b'{"fence": %d}' % value, "release"), 409, "illegal_move")
        for what, value in INTEGERS.items()
    ),
    Bad(60, "no result", decided(b"{}"), 400, "request_invalid"),
    Bad(60, "a member too many", decided(b'{"result": 1, "state": "settled"}'), 400, "request_invalid"),
    *(
        Bad(number, text[:40], sql(text), status, "sql_error")
        for number, status, texts in [
            (65, 400, ["SELECT 1; DELETE FROM events", "SELECT 1; SELECT 2"]),
            (66, 400, ["SELECT 'open", "-- nothing", "/* open", ";", "SELECT 1 /* ; */ ; /* */ DELETE FROM events"]),
            (67, 408, ["WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"]),
            (67, 413, ["SELECT randomblob(900000000)"]),
            (68, 403, ["ATTACH 'x' AS y", "PRAGMA database_list", "SELECT * FROM pragma_database_list",
                       "SELECT load_extension('x')", "CREATE TEMP TRIGGER t AFTER INSERT ON events BEGIN SELECT 1; END",
                       "SELECT * FROM sqlite_master", "SELECT count(*) FROM onceward_records",
                       "CREATE VIEW v AS SELECT * FROM onceward_records"]),
            (68, 400, ["VACUUM INTO '/tmp/stolen'"]),
            (69, 403, ["BEGIN", "SAVEPOINT s", "COMMIT", "ROLLBACK", "RELEASE s"]),
            (70, 400, ["SET statement_timeout = 0", "DO $$ LOOP END LOOP $$", "COPY events TO PROGRAM 'id'",
                       "LISTEN x", "SELECT pg_sleep(60)", "SELECT set_config('a', 'b', false)",
                       "SELECT pg_advisory_lock(1)"]),
            (73, 413, [f'SELECT 1 AS "{"c" * 1_000_000}"']),
            (74, 403, ["EXPLAIN SELECT 1", "EXPLAIN DELETE FROM events"]),
        ]
        for text in texts
    ),
    Bad(71, "100,001 parameters", sql("INSERT INTO events VALUES (?, ?)", [1] * 100_001), 400, "request_invalid"),
    *(
        Bad(71, what, sql("INSERT INTO events VALUES (?, 1)", params), 400, "sql_error")
        for what, params in [
            ("none", []), ("too many", ["a", "b"]), ("named for positions", {"a": 1}), ("a list inside", [[1]]),
            ("past 63 bits", [2**63]), ("base64 that is none", [{"base64": "*"}]), ("an unknown form", [{"x": 1}]),
        ]
    ),
    Bad(71, "a text for parameters", sql("SELECT ?", "x"), 400, "request_invalid"),
    Bad(72, "3 million rows", sql(
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n LIMIT 3000000) SELECT i FROM n"
    ), 413, "sql_error"),
    *(
        Bad(number, what, sent, 401, "token_invalid")
        for number, what, sent in [
            (75, "none", token(None)),
            (75, "two headers", token("Bearer {token}", b"Authorization: Bearer {token}\r\n")),
            (75, "in the query", token(None, path="{database}/query?token={token}")),
            (75, "in a cookie", token(None, b"Cookie: token={token}\r\n")),
            (75, "without its scheme", token("{token}")),
            (75, "of another scheme", token("Basic {token}")),
            (76, "expired", token("Bearer {expired}")),
            (76, "cut off", token("Bearer {cut}")),
            (76, "its id alone", token("Bearer {id}")),
            (76, "of the other environment", token("Bearer {swapped}")),
            (81, "a form from another site", Sent(authorization=None, type=b"text/plain",
                                                  headers=b"Origin: https://evil.example\r\nCookie: a=b\r\n")),
        ]
    ),
    Bad(75, "with a newline", token("Bearer {token}\nX"), 400, "request_invalid"),
    Bad(76, "another tenant's", token("Bearer {stranger}"), 403, "forbidden"),
    Bad(81, "a simple request with a token", Sent(type=b"text/plain", headers=b"Origin: https://evil.example\r\n"),
        415, "media_type_unsupported"),
    Bad(81, "a page of no code", Sent(b"", path="/.well-known/idempotency/%3Cscript%3E", method="GET", type=None),
        404, "not_found"),
]  # fmt: skip

FINE = {
    7: [b"a,b"], 8: [b'"quoted"'], 9: [b'abc"'], 15: [b"../../etc"], 16: [b"';drop"], 17: [b"*", b"?", b"{}"],
    18: [b"stranger:key"], 19: [b"case", b"CASE"], 20: [b"dot", b"dot."], 22: [b"__proto__", b"constructor"],
    23: [b"null", b"undefined", b"NaN"],
    24: [b"123e4567-e89b-12d3-a456-426614174000", b"123E4567-E89B-12D3-A456-426614174000",
         b"{123e4567-e89b-12d3-a456-426614174000}"],
    25: [b"<script>alert(1)</script>"], 27: [b"=cmd()"],
}  # fmt: skip
"""Keys that look odd: each is a key of its own, runs once, and replays."""

SAME = {
    29: [b'{"sql": "SELECT ?", "params": [1]}', b'{ "params":[1],\n"sql":"SELECT ?" }'],
    30: [b'{"sql": "SELECT ?", "params": [%s]}' % one for one in (b"1", b"1.0", b"1e0")],
    31: [b'{"sql": "SELECT ?", "params": [%s]}' % one for one in (b"0", b"-0", b"-0.0")],
    32: [
        b'{"sql": "SELECT ?", "params": [%s]}' % one for one in (b"9007199254740993", b'{"integer":"9007199254740993"}')
    ],
}
"""Spellings of one request (the canonical form says so): the second and third replay the first."""

ELSEWHERE = {
    1: "no key is legal: TestKeys.test_without_a_key_nothing_is_remembered",
    49: "the engine answers what SQLite has: tests/service/sql/test_sql_values.py",
    52: "nothing here streams",
    53: "what a worker raises crosses as data: tests/service/sql/test_sql_errors.py",
    54: "answers are 200 or a problem; HEAD is in test_the_head_of_an_answer",
    55: "no endpoint sets a cookie",
    56: "TestKeys.test_an_answer_that_was_never_read_is_learnt_by_the_retry",
    57: "a statement has no callback; what kills a worker is in tests/service/sql/test_sql_engine.py",
    58: "no endpoint takes a duration; settings: test_service_starting.py",
    61: "no endpoint takes a lease or a time: the record is claimed and settled in one transaction",
    62: "as 61",
    63: "as 61",
    64: "as 61",
    77: "webhooks are received by an app of their own",
    78: "as 77",
    79: "this service calls nobody",
    80: "as 77",
}
