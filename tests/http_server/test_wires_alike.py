"""ASGI, WSGI and Django answer alike: whole answers are compared, for every kind of refusal, replay and marker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from wires import WIRES, Heard, Said, Wire

from onceward import InDoubt, NothingHappened


def fails(body: bytes) -> Said:
    """A handler that raises."""
    raise RuntimeError("the till is stuck")


def unscoped(request: Any) -> str | None:
    """A scope function that does not know."""
    return None


def broken(request: Any) -> str:
    """A scope function that raises."""
    raise KeyError("tenant")


def twice(wire: Wire) -> list[Heard]:
    """A request, and its retry."""
    return [wire.send(), wire.send()]


def reused(wire: Wire) -> list[Heard]:
    """Another request under the same key."""
    return [wire.send(), wire.send(body=b'{"a":1}')]


def one(wire: Wire) -> list[Heard]:
    """A request."""
    return [wire.send()]


LONG = Said(200, b'"' + b"a" * 300 + b'"')
STORIES: dict[str, tuple[Callable[[Wire], list[Heard]], dict[str, Any]]] = {
    "replay": (twice, {}),
    "replay, marked by a member": (twice, {"marker": "member"}),
    "replay in an envelope": (twice, {"marker": "envelope"}),
    "replay for Stripe": (twice, {"profile": "stripe"}),
    "expired": (lambda wire: [wire.send(), _later(wire)], {"retain": 60}),
    "key reused": (reused, {}),
    "key reused, for Stripe": (reused, {"profile": "stripe"}),
    "key reused, for PacSpace": (reused, {"profile": "pacspace"}),
    "key missing": (lambda wire: [wire.send(None)], {"require_key": True}),
    "key missing, for Stripe": (lambda wire: [wire.send(None)], {"require_key": True, "profile": "stripe"}),
    "key missing, method in lower case": (lambda wire: [wire.send(None, method="post")], {"require_key": True}),
    "replay, method in lower case": (lambda wire: [wire.send(), wire.send(method="post")], {}),
    "key invalid": (lambda wire: [wire.send("a b")], {}),
    "body with a member twice": (lambda wire: [wire.send(body=b'{"a":1,"a":2}')], {}),
    "body too large": (lambda wire: [wire.send(body=b'"abc"')], {"body_bytes_max": 3}),
    "nobody is calling": (one, {"scope": unscoped}),
    "nobody is calling, for Stripe": (one, {"scope": unscoped, "profile": "stripe"}),
    "nobody is calling: 500": (one, {"scope": unscoped, "unscoped": 500}),
    "nobody is calling: pass": (twice, {"scope": unscoped, "unscoped": "pass"}),
    "the scope function raises": (one, {"scope": broken}),
    "a failure that is remembered": (twice, {"handler": fails, "remember": "all"}),
    "a failure that is remembered, for Stripe": (twice, {"handler": fails, "profile": "stripe"}),
    "a 4xx that frees its key": (twice, {"handler": lambda body: Said(404)}),
    "a 4xx that is remembered": (twice, {"handler": lambda body: Said(404), "remember": "4xx"}),
    "a 429 under remember=all": (twice, {"handler": lambda body: Said(429), "remember": "all"}),
    "a 5xx that was answered": (twice, {"handler": lambda body: Said(503)}),
    "a 5xx in an envelope": (twice, {"handler": lambda body: Said(503), "marker": "envelope"}),
    "too large to be kept": (twice, {"handler": lambda body: LONG, "result_bytes_max": 200}),
    "too large, but freed": (twice, {"handler": lambda body: LONG._replace(status=404), "result_bytes_max": 200}),
}


def _later(wire: Wire) -> Heard:
    wire.environment.advance(3_600)
    return wire.send()


def told(wire: str, story: str) -> tuple[list[Heard], int]:
    """What a wire answers, and how often its handler ran."""
    play, options = STORIES[story]
    options = dict(options)
    with closing(WIRES[wire](options.pop("handler", None), **options)) as made:
        return play(made), made.runs


def timeless(answers: list[Heard]) -> list[Heard]:
    """The same answers, whenever they were given."""
    for one in answers:
        if isinstance(one.body, dict) and "firstAt" in one.body:
            one.body["firstAt"] = "then"
    return answers


@pytest.mark.fault("wsgi-has-an-envelope-of-its-own")
@pytest.mark.parametrize("wire", ["wsgi", "django"])
def test_the_envelope_of_a_first_answer_is_that_of_its_replay(wire: str) -> None:
    """
    The same members on every wire, with the time of the first run, and no ETag: that was true of what is inside.
    """
    (first, again), _ = told(wire, "replay in an envelope")

    assert list(first.body) == list(again.body) == ["replayed", "status", "firstAt", "body"]
    assert (first.body["firstAt"], "etag" in first.headers) == (again.body["firstAt"], False)


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("wire", ["wsgi", "django"])
def test_every_wire_answers_as_asgi_does(wire: str, story: str, caplog: pytest.LogCaptureFixture) -> None:
    """
    Status, headers and body, first and again, and how often the handler ran.
    """
    caplog.set_level(logging.CRITICAL)

    (answers, runs), (expected, expected_runs) = told(wire, story), told("asgi", story)

    assert (timeless(answers), runs) == (timeless(expected), expected_runs)


@pytest.mark.fault("nobody-is-a-fault-on-this-side")
@pytest.mark.parametrize("wire", WIRES)
def test_a_keyed_request_from_nobody_is_401_and_fills_no_log(wire: str, caplog: pytest.LogCaptureFixture) -> None:
    """
    A stranger may send as many as he likes: one line a minute, with a count.
    """
    with closing(WIRES[wire](scope=unscoped)) as made:
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
    options = {"scope": unscoped, "unscoped": "pass"}
    with closing(WIRES[wire](lambda body: Said(401, b'{"detail":"log in"}'), **options)) as made:
        answers = [made.send(), made.send()]

    assert [(one.status, one.body) for one in answers] == [(401, {"detail": "log in"})] * 2
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
    assert refused.body["code"] == "key_missing"


@pytest.mark.fault("nobody-is-told-that-it-is-not-kept")
@pytest.mark.parametrize("wire", WIRES)
def test_the_first_caller_is_told_that_its_answer_is_too_large_to_be_kept(wire: str) -> None:
    """
    `Idempotency-Stored: false`: a retry will be told that it ran, and nothing more.
    """
    (first, again), runs = told(wire, "too large to be kept")
    (freed, _), _ = told(wire, "too large, but freed")
    (kept, _), _ = told(wire, "replay")

    assert (first.status, first.headers.get("idempotency-stored")) == (200, "false")
    assert (again.status, again.body["code"], runs) == (409, "not_replayable", 1)
    assert "idempotency-stored" not in {**freed.headers, **kept.headers}


@pytest.mark.parametrize("wire", WIRES)
def test_in_doubt_stays_in_doubt_on_every_wire(wire: str) -> None:
    """
    A handler that raises is in doubt, unless it says that nothing happened.
    """
    with closing(WIRES[wire](fails)) as made:
        statuses = [made.send().status, made.send().status]

    assert (statuses, made.runs) == ([500, 409], 1)
    assert InDoubt.code == "in_doubt"
    assert issubclass(NothingHappened, Exception)
