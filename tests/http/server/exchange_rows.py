"""
The table of the exchange: what is asked, of which handler under which profile, and what comes of it.

    "replay": Row([ASK, ASK], "201, 201 replayed | ran 1 | settled")

Each row is run behind every wire (`test_wires_alike.py`). The text says what is answered, how often the handler ran and
what is stored; the answers themselves, whole, and the whole records have to be the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exchange_handlers import (
    ALL,
    ASK,
    ATOMIC,
    ENVELOPE,
    LONG,
    MEMBER,
    OTHER,
    SMALL,
    STEP,
    STREAM,
    STUCK,
    TEXT,
    TRUTH,
    TWICE,
    UNKEYED,
    Row,
    Step,
    awaited,
    away,
    back,
    broken,
    by_path,
    decide,
    later,
    lazy,
    meanwhile,
    nobody,
    raises,
    says,
    tripped,
)
from exchange_messages import Asked, Said
from exchange_rows_long import LONG_ROWS

from onceward import NOT_FOUND, Found, Reply, StoreUnavailable
from onceward.errors import NothingHappened, StoreContended, StoreFull
from onceward.http import PROFILES, Route
from onceward.retry import Budget

# --- the table ---

ROWS: dict[str, Row] = {
    # replays, and keys that are used again
    "replay": Row(TWICE, "201, 201 replayed | ran 1 | settled 201"),
    "replay, marked by a member": Row(TWICE, "201, 201 replayed member | ran 1 | settled 201", None, MEMBER),
    "replay of text, marked by a member": Row(
        TWICE, "201, 201 replayed | ran 1 | settled 201", says(Said(headers=TEXT)), MEMBER
    ),
    "replay in an envelope": Row(TWICE, "201 enveloped, 201 replayed enveloped | ran 1 | settled 201", None, ENVELOPE),
    "replay of text, where envelopes are": Row(
        TWICE, "201, 201 replayed | ran 1 | settled 201", says(Said(headers=TEXT)), ENVELOPE
    ),
    "replay of nothing": Row(TWICE, "204, 204 replayed | ran 1 | settled 204", says(Said(204, b"", ()))),
    "replay, method in lower case": Row([ASK, ASK._replace(method="post")], "201, 201 replayed | ran 1 | settled 201"),
    "replay under another scope": Row(
        [ASK, ASK._replace(path="/b")], "201, 201 | ran 2 | settled 201", None, {"scope": by_path}
    ),
    "cookies are not replayed": Row(
        TWICE,
        "201, 201 replayed | ran 1 | settled 201",
        says(Said(headers=(*TEXT, ("set-cookie", "a=b"), ("x-own", "1")))),
    ),
    "expired": Row([ASK, later(3_600), ASK], "201, 410 expired | ran 1 | expired 201", None, {"retain": 60}),
    "key reused": Row([ASK, OTHER], "201, 422 key_reused | ran 1 | settled 201"),
    "key reused, by another method": Row(
        [ASK, ASK._replace(method="PUT")], "201, 422 key_reused | ran 1 | settled 201"
    ),
    "key reused, by another query": Row([ASK, ASK._replace(query="a=1")], "201, 422 key_reused | ran 1 | settled 201"),
    "key reused, 409": Row([ASK, OTHER], "201, 409 key_reused | ran 1 | settled 201", None, {"mismatch_status": 409}),
    "without a key": Row([UNKEYED, UNKEYED], "201, 201 | ran 2"),
    "HEAD": Row([ASK._replace(method="HEAD")] * 2, "201, 201 | ran 2"),
    "a method that a decorator names": Row(
        [ASK._replace(method="GET")] * 2,
        "201, 201 replayed | ran 1 | settled 201",
        None,
        {"decorated": {"methods": ("GET",)}},
    ),
    "another method": Row([ASK._replace(method="GET")] * 2, "201, 201 | ran 2"),
    "a route that is skipped": Row(TWICE, "201, 201 | ran 2", None, {"routes": [Route("/a", skip=True)]}),
    "a route of its own": Row(
        [UNKEYED, ASK, ASK],
        "400 key_missing, 201, 201 replayed | ran 1 | settled 201",
        None,
        {"routes": [Route("/{any}", require_key=True)]},
    ),
    # plans
    "a step": Row([STEP, STEP], "201, 201 replayed | ran 1 | settled 201"),
    "a step in an envelope": Row(
        [STEP, STEP], "201 enveloped, 201 replayed enveloped | ran 1 | settled 201", None, ENVELOPE
    ),
    "a step reused": Row([STEP, STEP._replace(body=b'{"a":1}')], "201, 422 key_reused | ran 1 | settled 201"),
    "a step that fails": Row([STEP, STEP], "own 500, 409 in_doubt | ran 1 | in_doubt RuntimeError", raises(STUCK)),
    "a plan without a step": Row([STEP._replace(headers=STEP.headers[:1])], "400 plan_incomplete | ran 0"),
    "a key and a step": Row([STEP._replace(key="k")], "400 ambiguous_identity | ran 0"),
    # refused before anything runs
    "key missing": Row([UNKEYED], "400 key_missing | ran 0", None, {"require_key": True}),
    "key missing, method in lower case": Row(
        [UNKEYED._replace(method="post")], "400 key_missing | ran 0", None, {"require_key": True}
    ),
    "key invalid": Row([Asked("a b")], "400 key_invalid | ran 0"),
    "key too long": Row([Asked("k" * 300)], "400 key_invalid | ran 0"),
    "key twice": Row([Asked("a", headers=(("idempotency-key", "b"),))], "400 key_invalid | ran 0"),
    "key of bytes above ASCII": Row([Asked("k\xe9")], "400 key_invalid | ran 0"),
    "key that is empty": Row([Asked("")], "400 key_invalid | ran 0"),
    "key in quotation marks": Row([Asked('"k"'), ASK], "201, 201 replayed | ran 1 | settled 201"),
    "key with a comma, in quotation marks": Row([Asked('"a,b"')] * 2, "201, 201 replayed | ran 1 | settled 201"),
    "key with a comma": Row(
        [Asked("a,b")] * 2,
        "201, 201 replayed | ran 1 | settled 201",
        wires=("asgi", "django_async", "django_thread"),
    ),
    # An environ has one header where two were sent, with a comma.
    "key with a comma, in an environ": Row([Asked("a,b")], "400 key_invalid | ran 0", wires=("wsgi", "django")),
    "key twice, in a header that a decorator names": Row(
        [Asked(None, headers=(("x-key", "a"), ("x-key", "b")))],
        "400 key_invalid | ran 0",
        None,
        {"decorated": {"key_header": "X-Key"}},
    ),
    "body with a member twice": Row([Asked(body=b'{"a":1,"a":2}')], "400 request_invalid | ran 0"),
    "body too large": Row([Asked(body=b'"abc"')], "413 body_too_large | ran 0", None, {"body_bytes_max": 3}),
    # Django's ASGI handler has read the body by then.
    "body too slow": Row(
        [Asked(slow=True)],
        "408 upload_timeout | ran 0",
        None,
        {"upload_seconds_max": 0.01},
        ("asgi", "wsgi", "django"),
    ),
    "body on disk": Row(
        [Asked(body=b'"abc"')] * 2, "201, 201 replayed | ran 1 | settled 201", None, {"memory_bytes_max": 3}
    ),
    "nobody is calling": Row([ASK], "401 scope_missing | ran 0", None, {"scope": nobody}),
    "nobody is calling: 500": Row([ASK], "500 scope_missing | ran 0", None, {"scope": nobody, "unscoped": 500}),
    "nobody is calling: pass": Row(TWICE, "201, 201 | ran 2", None, {"scope": nobody, "unscoped": "pass"}),
    "the scope function raises": Row([ASK], "500 scope_missing | ran 0", None, {"scope": broken}),
    "the scope function is async": Row(
        TWICE,
        "201, 201 replayed | ran 1 | settled 201",
        None,
        {"scope": awaited},
        ("asgi", "django", "django_async", "django_thread"),
    ),
    "the scope function is async, and nobody awaits": Row(
        [ASK], "500 scope_missing | ran 0", None, {"scope": awaited}, ("wsgi",)
    ),
    "the scope function gives something to await": Row(
        TWICE,
        "201, 201 replayed | ran 1 | settled 201",
        None,
        {"scope": lazy},
        ("asgi", "django", "django_async", "django_thread"),
    ),
    "the scope function gives something to await, and nobody awaits": Row(
        [ASK], "500 scope_missing | ran 0", None, {"scope": lazy}, ("wsgi",)
    ),
    "the scope function gives no scope": Row(
        [ASK], "500 configuration | ran 0", None, {"scope": lambda request: "no scope"}
    ),
    "the scope function gives nothing": Row([ASK], "401 scope_missing | ran 0", None, {"scope": lambda request: ""}),
    "the scope function gives a number": Row([ASK], "401 scope_missing | ran 0", None, {"scope": lambda request: 7}),
    "one of ours inside another": Row(TWICE, "201, 201 replayed | ran 1 | settled 201", None, {"layers": 2}),
    "the circuit is open": Row([ASK], "503 circuit_open | ran 0", None, {"breaker": tripped}),
    "the budget is used up": Row(
        [ASK] * 3,
        "500, 500, 503 budget_exhausted | ran 2 | released attempt 2 FailedResponse",
        says(Said(500)),
        {"budget": lambda: Budget(burst=1), "guarantee": "repeatable"},
    ),
    "the store is away": Row(
        [away("claim.before"), ASK, back, ASK], "503 store_unavailable, 201 | ran 1 | settled 201"
    ),
    "the store is contended": Row([away("claim.before", StoreContended), ASK], "503 store_contended | ran 0"),
    "the store is full": Row([away("claim.before", StoreFull), ASK], "503 store_full | ran 0"),
    # in flight
    "in flight": Row([meanwhile(ASK), ASK, ASK], "201, 201 replayed (meanwhile 409 in_flight) | ran 1 | settled 201"),
    "in flight, accepted": Row(
        [meanwhile(ASK), ASK, ASK],
        "201, 201 replayed (meanwhile 202 pending) | ran 1 | settled 201",
        None,
        {"in_flight": "accept"},
    ),
    "in flight, and reused": Row([meanwhile(OTHER), ASK], "201 (meanwhile 422 key_reused) | ran 1 | settled 201"),
    "in flight, as a step": Row(
        [meanwhile(STEP), STEP, STEP], "201, 201 replayed (meanwhile 409 in_flight) | ran 1 | settled 201"
    ),
    "overtaken": Row(
        [meanwhile(later(60), ASK), ASK, ASK],
        "201 replayed, 201 replayed (meanwhile 201) | ran 2 | settled attempt 2 201",
        None,
        {"guarantee": "repeatable", "lease": 2},
    ),
    # what the handler answers
    "a 4xx frees its key": Row(TWICE, "404, 404 | ran 2 | released attempt 2", says(Said(404))),
    "a 4xx that is remembered": Row(
        TWICE, "404, 404 replayed | ran 1 | settled 404", says(Said(404)), {"remember": "4xx"}
    ),
    "a 4xx by a rule": Row(
        TWICE, "404, 404 replayed | ran 1 | settled 404", says(Said(404)), {"remember": lambda status: status == 404}
    ),
    "a 429 under remember=all": Row(TWICE, "429, 429 | ran 2 | released attempt 2", says(Said(429)), ALL),
    "a 5xx": Row(TWICE, "503, 409 in_doubt | ran 1 | in_doubt FailedResponse", says(Said(503), TRUTH)),
    "a 5xx that is remembered": Row(TWICE, "503, 503 replayed | ran 1 | settled 503", says(Said(503), TRUTH), ALL),
    "a 5xx in an envelope": Row(
        TWICE, "503 enveloped, 409 in_doubt | ran 1 | in_doubt FailedResponse", says(Said(503), TRUTH), ENVELOPE
    ),
    "a 5xx, repeatable": Row(
        TWICE, "503, 200 | ran 2 | settled attempt 2 200", says(Said(503), TRUTH), {"guarantee": "repeatable"}
    ),
    "a 5xx, keyed": Row(
        TWICE, "503, 200 | ran 2 | settled attempt 2 200", says(Said(503), TRUTH), {"guarantee": "keyed"}
    ),
    "a 4xx after a 5xx, keyed": Row(
        [ASK] * 3,
        "503, 404, 200 | ran 3 | settled attempt 3 200",
        says(Said(503), Said(404), TRUTH),
        {"guarantee": "keyed"},
    ),
    "a 5xx, atomic": Row(TWICE, "503, 200 | ran 2 | settled attempt 2 200", says(Said(503), TRUTH), ATOMIC),
    "a 5xx, in doubt, decided: it happened": Row(
        [ASK, decide(Found({"ok": True})), ASK], "503, 200 replayed | ran 1 | settled", says(Said(503))
    ),
    "decided with bytes": Row(
        [ASK, decide(Found(b"raw")), ASK], "503, 200 replayed | ran 1 | settled", says(Said(503))
    ),
    "decided with an answer that has secrets": Row(
        [ASK, decide(Found(Reply(200, (("set-cookie", "a=b"), ("content-length", "9"), ("x-own", "1")), b"{}"))), ASK],
        "503, 200 replayed | ran 1 | settled 200",
        says(Said(503)),
    ),
    "decided with a 204 that has a body": Row(
        [ASK, decide(Found(Reply(204, (), b"x"))), ASK], "503, 204 replayed | ran 1 | settled 204", says(Said(503))
    ),
    "decided: it did not": Row(
        [ASK, decide(NOT_FOUND), ASK], "503, 200 | ran 2 | settled attempt 2 200", says(Said(503), TRUTH)
    ),
    "too large to be kept": Row(TWICE, "200 unstored, 409 not_replayable | ran 1 | settled unkept", says(LONG), SMALL),
    "too large, and a 4xx": Row(TWICE, "404, 404 | ran 2 | released attempt 2", says(LONG._replace(status=404)), SMALL),
    "too large, in an envelope": Row(
        TWICE, "200 unstored, 409 not_replayable | ran 1 | settled unkept", says(LONG), SMALL | ENVELOPE
    ),
    "not stored, for the store is away": Row(
        [away("settle.before"), ASK, back, ASK], "500 unrecorded, 409 in_doubt | ran 1 | in_doubt"
    ),
    # what the handler raises
    "raised": Row(TWICE, "own 500, 409 in_doubt | ran 1 | in_doubt RuntimeError", raises(STUCK)),
    "raised, and remembered": Row(
        TWICE, "500 handler_failed, 500 replayed handler_failed | ran 1 | settled 500", raises(STUCK), ALL
    ),
    "raised, and remembered in an envelope": Row(
        TWICE, "500 enveloped, 500 replayed enveloped | ran 1 | settled 500", raises(STUCK), ALL | ENVELOPE
    ),
    "raised, and remembered by a rule": Row(
        TWICE,
        "500 handler_failed, 500 replayed handler_failed | ran 1 | settled 500",
        raises(STUCK),
        {"remember": lambda status: status >= 500},
    ),
    "raised, atomic": Row(TWICE, "own 500, 200 | ran 2 | settled attempt 2 200", raises(STUCK, TRUTH), ATOMIC),
    "raised, repeatable": Row(
        TWICE, "own 500, 200 | ran 2 | settled attempt 2 200", raises(STUCK, TRUTH), {"guarantee": "repeatable"}
    ),
    "raised, keyed": Row(
        TWICE, "own 500, 200 | ran 2 | settled attempt 2 200", raises(STUCK, TRUTH), {"guarantee": "keyed"}
    ),
    "raised: nothing happened": Row(
        TWICE, "own 500, 200 | ran 2 | settled attempt 2 200", raises(NothingHappened(), TRUTH)
    ),
    "raised an error of ours": Row(
        TWICE,
        "own 500, 409 in_doubt | ran 1 | in_doubt StoreUnavailable",
        raises(StoreUnavailable("of the handler's own"), TRUTH),
    ),
    "raised, and the store is away": Row(
        [away("doubt.before"), ASK, back, ASK], "own 500, 409 in_doubt | ran 1 | in_doubt", raises(STUCK)
    ),
    **LONG_ROWS,
    # the published contract
    "the contract": Row([UNKEYED._replace(method="GET", path="/.well-known/idempotency")], "200 | ran 0"),
    "a page": Row([UNKEYED._replace(method="GET", path="/.well-known/idempotency/in_doubt")], "200 | ran 0"),
    "no such page": Row([UNKEYED._replace(method="GET", path="/.well-known/idempotency/nothing")], "201 | ran 1"),
}

PROFILED: dict[str, tuple[Sequence[Step], Any, str, dict[str, str]]] = {
    "replay": (TWICE, None, "201, 201 replayed | ran 1 | settled 201", {}),
    "key reused": (
        [ASK, OTHER],
        None,
        "201, 422 key_reused | ran 1 | settled 201",
        {
            "stripe": "201, 400 key_reused | ran 1 | settled 201",
            "pacspace": "201, 409 key_reused | ran 1 | settled 201",
        },
    ),
    "key missing": ([UNKEYED], None, "201 | ran 1", {"ietf": "400 key_missing | ran 0"}),
    "key invalid": ([Asked("a b")], None, "400 key_invalid | ran 0", {}),
    "in flight": (
        [meanwhile(ASK), ASK],
        None,
        "201 (meanwhile 409 in_flight) | ran 1 | settled 201",
        {
            "stripe": "201 (meanwhile 409 idempotency_key_in_use) | ran 1 | settled 201",
            "pacspace": "201 (meanwhile 202 IDEMPOTENCY_PENDING) | ran 1 | settled 201",
        },
    ),
    "a 4xx": (
        TWICE,
        says(Said(404)),
        "404, 404 | ran 2 | released attempt 2",
        {"stripe": "404, 404 replayed | ran 1 | settled 404"},
    ),
    "a 5xx": (
        TWICE,
        says(Said(503)),
        "503, 409 in_doubt | ran 1 | in_doubt FailedResponse",
        {"stripe": "503, 503 replayed | ran 1 | settled 503"},
    ),
    "raised": (
        TWICE,
        raises(STUCK),
        "own 500, 409 in_doubt | ran 1 | in_doubt RuntimeError",
        {"stripe": "500 handler_failed, 500 replayed handler_failed | ran 1 | settled 500"},
    ),
    "a stream": (TWICE, says(STREAM), "200 2 pieces, 200 replayed | ran 1 | settled 200", {}),
}
"""Stories that are told under every profile: requests, handler, what comes of it, and where that is otherwise."""

for _profile in PROFILES:
    for _name, (_steps, _handler, _usual, _otherwise) in PROFILED.items():
        # Nobody can wait for a request that waits for him.
        _options = {"profile": _profile, **({"wait": 0} if PROFILES[_profile].in_flight == "wait" else {})}
        ROWS[f"{_profile}: {_name}"] = Row(_steps, _otherwise.get(_profile, _usual), _handler, _options)
