"""
One exchange, whoever serves it: ASGI, WSGI and Django, plain and async, answer and store the same, to the byte.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from exchange_handlers import EVERYWHERE, ONLY, Row, nobody
from exchange_judge import wrong_in
from exchange_messages import OWN_500, Asked, Heard, Kept, Said
from exchange_rows import ROWS
from wires import WIRES

from onceward import OncewardError
from onceward._core import errors
from onceward.http.server.django_messages import SCOPE_LABEL as SCOPE_IN_DJANGO
from onceward.http.server.problems import STATUSES
from onceward.http.server.unknown_caller import SCOPE_LABEL
from onceward.runtime import failpoints


class Told(NamedTuple):
    """What came of a row behind one wire."""

    answers: list[Heard]
    meanwhile: list[Heard]
    runs: int
    stored: list[Kept]
    lines: list[str]
    """What the log was told."""
    said: list[Said]

    def __str__(self) -> str:
        """In a line, as the table has it."""
        answers = ", ".join(map(shown, self.answers))
        if self.meanwhile:
            answers += f" (meanwhile {', '.join(map(shown, self.meanwhile))})"
        return " | ".join([answers, f"ran {self.runs}", *(shown_record(one) for one in self.stored)])


def shown(heard: Heard) -> str:
    """An answer in a few words."""
    if heard == OWN_500:
        return "own 500"
    words = [str(heard.status)]
    words += ["replayed" for name in heard.headers if name.endswith("-replayed")]
    words += ["unstored"] if heard.headers.get("idempotency-stored") == "false" else []
    if "json" in heard.headers.get("content-type", "") and heard.body and not heard.broke:
        found = heard.json
        if isinstance(found, dict):
            words += ["enveloped"] if "firstAt" in found or {"replayed", "body"} <= found.keys() else []
            words += ["member"] if "idempotencyReplayed" in found else []
            words += [found[name] for name in ("code",) if name in found]
            words += [found["error"]["code"]] if "error" in found else []
    words += [f"{len(heard.pieces)} pieces"] if len(heard.pieces) > 1 else []
    words += ["broke off"] if heard.broke else []
    return " ".join(words)


def shown_record(kept: Kept) -> str:
    """A record in a few words."""
    words = [kept.state, *([f"attempt {kept.attempt}"] if kept.attempt > 1 else [])]
    words += [str(kept.result.status)] if hasattr(kept.result, "status") else []
    words += ["unkept"] if kept.state == "settled" and kept.codec is None else []
    words += [kept.failure.partition(":")[0].rpartition(".")[2]] if kept.failure else []
    return " ".join(words)


THEN = re.compile(r"(?<=fence[ =])\d+|\d{4}-\d\d-\d\dT[\d:.+]+")
"""Some stores have clocks of their own."""


@contextmanager
def listening() -> Iterator[list[str]]:
    """What the log is told, in the words that are the same everywhere."""
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage().replace(SCOPE_IN_DJANGO, SCOPE_LABEL)
            if "ended early" not in message:  # Django's async views: no server tells of what nobody reads.
                lines.append(f"{record.levelname} {THEN.sub('then', message)}")

    log, listener = logging.getLogger("onceward.http"), Listener()
    log.addHandler(listener)
    try:
        yield lines
    finally:
        log.removeHandler(listener)


def told(wire: str, row: Row, folder: Path) -> Told:
    """Run a row behind a wire."""
    options, handler, store = dict(row.options), row.handler, "memory"
    for name in ("breaker", "budget"):
        if name in options:
            options[name] = options[name]()
    if options.get("transactional"):
        path = folder / f"{wire}.db"
        handler, store = handler(path), f"sqlite:///{path}"
    elif handler is not None:
        handler = handler()
    answers: list[Heard] = []
    with listening() as lines, closing(WIRES[wire](handler, store=store, **options)) as made:
        try:
            for step in row.steps:
                if isinstance(step, Asked):
                    answers.append(made.ask(step))
                else:
                    step(made)
        finally:
            failpoints.disarm()
        return Told(answers, made.inner, made.runs, made.stored(), lines, made.said)


@pytest.mark.fault(
    "a-handler-that-raised-is-always-in-doubt",
    "a-failure-is-remembered-without-its-problem",
    "a-settled-answer-is-not-the-one-that-is-given",
    "whatever-a-handler-answers-is-stored",
    "an-undone-settle-is-a-success",
    "a-broken-stream-is-an-answer",
    "an-answer-that-has-begun-begins-again",
    "a-failing-scope-function-is-nobody",
    "a-changed-body-is-the-same-request",
    "one-operation-becomes-two",
    "a-handler-that-was-let-go-has-answered",
    "what-raised-after-its-commit-has-answered",
    "an-asgi-handler-that-was-let-go-has-raised",
    "a-stream-of-django-waits-for-a-reader-that-has-left",
    "django-takes-something-to-await-for-nobody",
    "an-environ-joins-the-keys-that-a-decorator-names",
    "django-overlooks-the-methods-of-decorators",
    "a-first-answer-loses-its-head",
)
@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
@pytest.mark.dose(16)
@pytest.mark.parametrize("row", ROWS)
def test_every_wire_answers_and_stores_the_same(row: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """
    Status, headers and body to the byte, first and again and meanwhile; how often the handler ran; every record; and
    every line of the log.
    """
    caplog.set_level(logging.CRITICAL)
    caplog.set_level(logging.WARNING, "onceward.http")
    found = {wire: told(wire, ROWS[row], tmp_path) for wire in ROWS[row].wires}
    first, *others = found.values()

    assert {wire: str(one) for wire, one in found.items()} == dict.fromkeys(found, ROWS[row].expected)
    assert others == [first] * len(others)
    assert "".join(wrong_in(one, first.said, first.stored) for one in first.answers + first.meanwhile) == ""


def test_the_table_has_every_refusal_that_a_request_can_meet() -> None:
    """
    Each code of the published contract occurs in it, and that of every other error; or it is no answer of a middleware.
    """
    said = {word for row in ROWS.values() for word in row.expected.replace(",", " ").replace(")", " ").split()}
    codes = {one.code for one in vars(errors).values() if isinstance(one, type) and issubclass(one, OncewardError)}

    assert {*STATUSES, *codes} - said == {
        "deadline_exceeded",  # Of a policy, which only ASGI runs.
        "event_invalid", "signature_invalid", "source_unknown", "source_unready",  # Of the inbox.
        "ownership_lost",  # Its winner's answer is given in its place: the row "overtaken".
        "rate_limited", "outcome_unknown", "service_unreachable", "target_refused", "spool_full",  # Of clients.
        "already_settled", "illegal_move", "out_of_order", "sequence_forgotten", "retry_transaction",  # Of other calls.
        "nothing_happened", "result_invalid",  # Of handlers: raised there, it is a handler's failure.
        "balance_exhausted", "forbidden", "quota_exceeded", "token_invalid",  # Of services.
        "seal_broken", "seal_key_missing",  # Of gates that seal: tests/gate/seal, and test_service_sealed.py.
        "spend_exhausted",  # Of agents.
        "record_refused", "store_corrupt", "schema_mismatch", "recorded_failure",  # A 500 as `configuration` is.
        "store_forgot",  # Told as `in_doubt`.
        OncewardError.code,
    }  # fmt: skip


def test_a_row_that_is_not_for_every_wire_has_a_reason() -> None:
    """
    Wires differ in what they are, in a few ways that are written down, and in nothing else.
    """
    assert {row.wires for row in ROWS.values()} == {EVERYWHERE, *ONLY}
    assert set(EVERYWHERE) == set(WIRES)


@pytest.mark.fault("wsgi-has-an-envelope-of-its-own", "an-envelope-keeps-the-etag")
@pytest.mark.parametrize("wire", WIRES)
def test_the_envelope_of_a_first_answer_is_that_of_its_replay(wire: str, tmp_path: Path) -> None:
    """
    The same members, with the time of the first run, and no ETag: that was true of what is inside.
    """
    first, again = told(wire, ROWS["replay in an envelope"], tmp_path).answers

    assert list(first.json) == list(again.json) == ["replayed", "status", "firstAt", "body"]
    assert ("etag" in first.headers, "etag" in again.headers) == (False, False)


@pytest.mark.fault("an-answer-leaves-with-what-is-never-stored")
@pytest.mark.parametrize("wire", WIRES)
def test_what_is_never_stored_never_leaves_with_a_stored_answer(wire: str, tmp_path: Path) -> None:
    """
    Whoever put it there: a person who decided a record, or a handler that settled with an answer of its own making.
    """
    row = ROWS["decided with an answer that has secrets"]
    *_, replay = told(wire, row, tmp_path).answers

    assert replay.headers == {"x-own": "1", "idempotency-replayed": "true", "content-length": "2"}


@pytest.mark.fault("nobody-is-a-fault-on-this-side")
@pytest.mark.parametrize("wire", WIRES)
def test_a_keyed_request_from_nobody_is_401_and_fills_no_log(wire: str, caplog: pytest.LogCaptureFixture) -> None:
    """
    A stranger may send as many as he likes: one line a minute, with a count.
    """
    with closing(WIRES[wire](scope=nobody)) as made:
        statuses = {made.send(f"k{number}").status for number in range(50)}
        first = [one for one in caplog.records if one.name == "onceward.http"]
        made.environment.advance(61)
        made.send("later")
        lines = [one.getMessage() for one in caplog.records if one.name == "onceward.http"]

    assert (statuses, made.runs, len(first), len(lines)) == ({401}, 0, 1, 2)
    assert "(49 more since the last such line)" in lines[1]


@pytest.mark.parametrize("wire", WIRES)
def test_unscoped_pass_leaves_the_request_to_the_application(wire: str) -> None:
    """
    As if it had no key: where authentication is a dependency inside, the application's own 401 is the answer.
    """
    options = {"scope": nobody, "unscoped": "pass"}
    with closing(WIRES[wire](lambda body: Said(401, b'{"detail":"log in"}'), **options)) as made:
        answers = [made.send(), made.send()]

    assert [(one.status, one.json) for one in answers] == [(401, {"detail": "log in"})] * 2
    assert made.runs == 2


@pytest.mark.fault("a-method-in-lower-case-passes")
@pytest.mark.parametrize("wire", WIRES)
def test_a_method_in_lower_case_is_the_method(wire: str) -> None:
    """
    Frameworks read `post` as POST, so a key that is required is required of it, too.
    """
    with closing(WIRES[wire](require_key=True)) as made:
        refused = made.send(None, method="post")

    assert (refused.status, made.runs) == (400, 0)
    assert refused.json["code"] == "key_missing"


@pytest.mark.fault("nobody-is-told-that-it-is-not-kept")
@pytest.mark.parametrize("wire", WIRES)
def test_the_first_caller_is_told_that_its_answer_is_too_large_to_be_kept(wire: str, tmp_path: Path) -> None:
    """
    `Idempotency-Stored: false`: a retry will be told that it ran, and nothing more.
    """
    first, again = told(wire, ROWS["too large to be kept"], tmp_path).answers
    freed, _ = told(wire, ROWS["too large, and a 4xx"], tmp_path).answers
    kept, _ = told(wire, ROWS["replay"], tmp_path).answers

    assert (first.status, first.headers.get("idempotency-stored")) == (200, "false")
    assert (again.status, again.json["code"]) == (409, "not_replayable")
    assert "idempotency-stored" not in {**freed.headers, **kept.headers}


@pytest.mark.fault("a-failed-handler-is-not-told-to-the-log")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("row", ["a 5xx", "raised", "raised, atomic"])
def test_the_log_says_what_a_failure_means_for_its_key(
    wire: str, row: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """
    One line about the attempt that failed, whoever serves it: whoever can mend it reads the log.
    """
    told(wire, ROWS[row]._replace(steps=ROWS[row].steps[:1]), tmp_path)
    lines = [one.getMessage() for one in caplog.records if one.name == "onceward.http"]

    assert [line.partition(" failed: ")[0] for line in lines] == ["onceward: the handler of POST /a"]
    assert ("in doubt" in lines[0]) == (row != "raised, atomic")
