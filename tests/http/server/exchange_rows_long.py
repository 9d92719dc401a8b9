"""
The rest of the table of the exchange (`exchange_rows.py`), about answers that take their time: streams, clients that
leave, and handlers that settle inside a transaction.
"""

from __future__ import annotations

from exchange_handlers import (
    ALL,
    ASK,
    ATOMIC,
    BROKEN,
    ENVELOPE,
    EVENTS,
    FLOOD,
    JSON,
    LEAVES,
    LONG_STREAM,
    SMALL,
    STREAM,
    TRANSACTIONAL,
    TWICE,
    Row,
    away,
    back,
    says,
    transacts,
)
from exchange_messages import Said

PIECE_BY_PIECE = ("asgi", "wsgi", "django", "django_async")
"""Not in a thread under ASGI: there Django reads a stream to its end before it serves it."""

IN_A_THREAD = ("django_thread",)

LONG_ROWS: dict[str, Row] = {
    # streams
    "a stream": Row(TWICE, "200 2 pieces, 200 replayed | ran 1 | settled 200", says(STREAM)),
    "a stream of nothing": Row(TWICE, "200, 200 replayed | ran 1 | settled 200", says(STREAM._replace(pieces=()))),
    "a stream of events": Row(
        TWICE, "200 2 pieces, 200 replayed | ran 1 | settled 200", says(STREAM._replace(headers=EVENTS))
    ),
    "a stream of JSON in an envelope": Row(
        TWICE,
        "200 enveloped, 200 replayed enveloped | ran 1 | settled 200",
        says(Said(200, headers=JSON, pieces=(b'{"a"', b":1}"))),
        ENVELOPE,
    ),
    "a stream that is too long": Row(
        TWICE, "200 2 pieces, 409 not_replayable | ran 1 | settled unkept", says(LONG_STREAM), SMALL
    ),
    "a stream, 4xx": Row(
        TWICE, "404 2 pieces, 404 2 pieces | ran 2 | released attempt 2", says(STREAM._replace(status=404))
    ),
    "a stream, 5xx": Row(
        TWICE, "503 2 pieces, 409 in_doubt | ran 1 | in_doubt FailedResponse", says(STREAM._replace(status=503))
    ),
    "a stream, 5xx, remembered": Row(
        TWICE, "503 2 pieces, 503 replayed | ran 1 | settled 503", says(STREAM._replace(status=503)), ALL
    ),
    "a stream that breaks": Row(
        TWICE, "200 2 pieces broke off, 409 in_doubt | ran 1 | in_doubt StreamBroke", says(BROKEN), wires=PIECE_BY_PIECE
    ),
    "a stream that breaks, remembered": Row(
        TWICE, "200 2 pieces broke off, 409 not_replayable | ran 1 | settled unkept", says(BROKEN), ALL, PIECE_BY_PIECE
    ),
    "a stream that breaks, atomic": Row(
        TWICE,
        "200 2 pieces broke off, 200 2 pieces | ran 2 | settled attempt 2 200",
        says(BROKEN, STREAM),
        ATOMIC,
        PIECE_BY_PIECE,
    ),
    "a stream that breaks at once": Row(
        TWICE, "own 500, 409 in_doubt | ran 1 | in_doubt StreamBroke", says(BROKEN._replace(pieces=()))
    ),
    "a stream that breaks at once, remembered": Row(
        TWICE,
        "500 handler_failed, 500 replayed handler_failed | ran 1 | settled 500",
        says(BROKEN._replace(pieces=())),
        ALL,
    ),
    "a stream that breaks at once, atomic": Row(
        TWICE, "own 500, 200 2 pieces | ran 2 | settled attempt 2 200", says(BROKEN._replace(pieces=()), STREAM), ATOMIC
    ),
    "a stream of JSON that breaks, in an envelope": Row(
        TWICE,
        "500 enveloped, 500 replayed enveloped | ran 1 | settled 500",
        says(BROKEN._replace(headers=JSON)),
        ENVELOPE | ALL,
    ),
    "a stream, not stored": Row(
        [away("settle.before"), ASK, back, ASK],
        "200 2 pieces broke off, 409 in_doubt | ran 1 | in_doubt",
        says(STREAM),
        wires=PIECE_BY_PIECE,
    ),
    # Django reads it to its end first.
    "a stream that breaks, in a thread": Row(
        TWICE, "own 500, 409 in_doubt | ran 1 | in_doubt StreamBroke", says(BROKEN), wires=IN_A_THREAD
    ),
    "a stream, not stored, in a thread": Row(
        [away("settle.before"), ASK, back, ASK],
        "200 broke off, 409 in_doubt | ran 1 | in_doubt",
        says(STREAM),
        wires=IN_A_THREAD,
    ),
    # clients that leave
    "an answer, and its client leaves": Row([LEAVES, ASK], "201, 201 replayed | ran 1 | settled 201"),
    "a stream, and its client leaves": Row(
        [LEAVES, ASK], "200, 200 replayed | ran 1 | settled 200", says(STREAM._replace(pieces=(b"1", b"2", b"3", b"4")))
    ),
    "a stream that breaks, and its client leaves": Row(
        [LEAVES, ASK], "200, 409 in_doubt | ran 1 | in_doubt StreamBroke", says(BROKEN), wires=PIECE_BY_PIECE
    ),
    "a stream that is too long, and its client leaves": Row(
        [LEAVES, ASK], "200, 409 in_doubt | ran 1 | in_doubt ClientLeft", says(FLOOD), SMALL, PIECE_BY_PIECE
    ),
    "a 4xx that is too long, and its client leaves": Row(
        [LEAVES, ASK],
        "404, 409 in_doubt | ran 1 | in_doubt ClientLeft",
        says(FLOOD._replace(status=404)),
        SMALL,
        PIECE_BY_PIECE,
    ),
    "a stream that is too long, atomic, and its client leaves": Row(
        [LEAVES, ASK], "200, 409 in_doubt | ran 1 | in_doubt ClientLeft", says(FLOOD), SMALL | ATOMIC, PIECE_BY_PIECE
    ),
    "a stream that is too long, repeatable, and its client leaves": Row(
        [LEAVES, ASK],
        "200, 200 4 pieces | ran 2 | settled attempt 2 unkept",
        says(FLOOD),
        SMALL | {"guarantee": "repeatable"},
        PIECE_BY_PIECE,
    ),
    "a stream that is too long, remembered, and its client leaves": Row(
        [LEAVES, ASK], "200, 409 not_replayable | ran 1 | settled unkept", says(FLOOD), SMALL | ALL, PIECE_BY_PIECE
    ),
    # transactional routes
    "settled and committed": Row(
        TWICE, "201, 201 replayed | ran 1 | settled 201", transacts("insert settle commit 200"), TRANSACTIONAL
    ),
    "settled, in an envelope": Row(
        TWICE,
        "201 enveloped, 201 replayed enveloped | ran 1 | settled 201",
        transacts("insert settle commit 200"),
        TRANSACTIONAL | ENVELOPE,
    ),
    "settled and undone, 409": Row(
        TWICE,
        "409, 201 | ran 2 | settled attempt 2 201",
        transacts("insert settle rollback 409", "insert settle commit 200"),
        TRANSACTIONAL,
    ),
    "settled and undone, 200": Row(
        TWICE,
        "500 not_settled, 201 | ran 2 | settled attempt 2 201",
        transacts("insert settle rollback 200", "insert settle commit 200"),
        TRANSACTIONAL,
    ),
    "settled, raised": Row(
        TWICE,
        "own 500, 201 | ran 2 | settled attempt 2 201",
        transacts("insert settle raise", "insert settle commit 200"),
        TRANSACTIONAL,
    ),
    "settled, committed, raised": Row(
        TWICE,
        "own 500, 201 replayed | ran 1 | settled 201",
        transacts("insert settle commit raise"),
        TRANSACTIONAL,
    ),
    "settled, committed, 500": Row(
        TWICE, "201, 201 replayed | ran 1 | settled 201", transacts("insert settle commit 500"), TRANSACTIONAL
    ),
    "settled, committed, as a stream": Row(
        TWICE, "201, 201 replayed | ran 1 | settled 201", transacts("insert settle commit stream"), TRANSACTIONAL
    ),
    "not settled, 422": Row(
        TWICE,
        "422, 201 | ran 2 | settled attempt 2 201",
        transacts("insert rollback 422", "insert settle commit 200"),
        TRANSACTIONAL,
    ),
    "not settled, 500": Row(
        TWICE,
        "500, 201 | ran 2 | settled attempt 2 201",
        transacts("insert rollback 500", "insert settle commit 200"),
        TRANSACTIONAL,
    ),
    "not settled, 200": Row(
        TWICE, "409 in_doubt, 409 in_doubt | ran 1 | in_doubt NotSettled", transacts("insert commit 200"), TRANSACTIONAL
    ),
    "not settled, raised": Row(
        TWICE,
        "own 500, 201 | ran 2 | settled attempt 2 201",
        transacts("insert raise", "insert settle commit 200"),
        TRANSACTIONAL,
    ),
}
