"""What a caller may rely on, whichever framework answers: one text, real frameworks, real sockets."""

from __future__ import annotations

import json
import socket
import struct
import threading

import pytest
from shop_client import JSON, Client, new_key


@pytest.mark.requirement("A05", "A06", "C10", "C12", "E15")
def test_a_retry_gets_the_first_answer_byte_for_byte_and_is_marked(web: Client) -> None:
    """
    Status, body and describing headers are the first run's; only a replay carries the mark.
    """
    key = new_key()
    first = web.send("/charges", key, b'{"amount": 5}', JSON)
    again = web.send("/charges", key, b'{"amount": 5}', JSON)

    assert (first.status, first.replayed) == (201, None)
    assert (again.status, again.replayed) == (201, "true")
    assert first.body == again.body
    assert first.header("location") == again.header("location") != None  # noqa: E711
    assert first.header("content-type") == again.header("content-type")


def test_cookies_and_other_headers_come_with_the_first_answer_only(web: Client) -> None:
    """
    A stored cookie would hand one session to whoever has the key. What is not on the list is not stored, either.
    """
    key = new_key()
    first, again = web.send("/charges", key), web.send("/charges", key)

    assert (first.header("x-secret"), again.header("x-secret")) == ("yes", None)
    assert "session=secret" in (first.header("set-cookie") or "")
    assert again.header("set-cookie") is None


@pytest.mark.requirement("C21")
def test_the_order_of_members_does_not_matter_and_their_values_do(web: Client) -> None:
    """
    Reordered JSON is the same request; another amount is another one, and is refused.
    """
    key = new_key()
    first = web.send("/charges", key, b'{"amount": 5, "to": "x"}', JSON)
    again = web.send("/charges", key, b'{ "to":"x","amount":5.0}', JSON)
    other = web.send("/charges", key, b'{"amount": 6, "to": "x"}', JSON)

    assert first.body == again.body
    assert (other.status, other.code, other.problem["retry"]) == (422, "key_reused", "new-key")


@pytest.mark.requirement("A10")
def test_while_the_first_runs_a_second_is_told_to_come_back(web: Client) -> None:
    """
    409 with Retry-After, nothing runs; afterwards the same key gets the first answer.
    """
    key = new_key()
    before = web.effects("/held")
    with web.holding("/held", key):
        told = web.send("/held", key)
    after = web.send("/held", key)

    assert (told.status, told.code, told.problem["retry"]) == (409, "in_flight", "same-key")
    assert int(told.header("retry-after") or "") >= 1
    assert (after.status, after.replayed) == (200, "true")
    assert before + 1 == web.effects("/held")


@pytest.mark.requirement("E04")
def test_fifty_at_once_have_one_effect(web: Client) -> None:
    """
    One runs, the others are told that it is in flight or get its answer.
    """
    path, key = "/status/202", new_key()
    before = web.effects(path)
    found = web.together(50, path, key)

    assert before + 1 == web.effects(path)
    assert {202, 409} >= {one.status for one in found}
    assert {web.send(path, key).body} == {one.body for one in found if one.status == 202}


def test_a_500_leaves_a_blind_operation_in_doubt(web: Client) -> None:
    """
    Nobody knows what it did before it failed, so it does not run again; the client saw the handler's own answer.
    """
    path, key = "/status/500", new_key()
    before = web.effects(path)
    first, again = web.send(path, key), web.send(path, key)

    assert (first.status, first.body[:3]) == (500, b"no ")
    assert (again.status, again.code, again.problem["retry"]) == (409, "in_doubt", "never")
    assert before + 1 == web.effects(path)
    assert "POST /status/500" in web.log


def test_an_exception_is_a_failure_like_any_other(web: Client) -> None:
    """
    500, in doubt, and a reason in the log.
    """
    key = new_key()
    first, again = web.send("/raise", key), web.send("/raise", key)

    assert first.status == 500
    assert (again.status, again.code) == (409, "in_doubt")
    assert "the till is stuck" in web.log


@pytest.mark.parametrize("path", ["/atomic/status/500", "/atomic/raise"])
def test_what_rolls_back_may_be_sent_again(web: Client, path: str) -> None:
    """
    With guarantee="atomic" a failure that was seen releases the key: the same request runs again.
    """
    key = new_key()
    before = web.effects(path)
    first, again = web.send(path, key), web.send(path, key)

    assert (first.status, again.status) == (500, 500)
    assert before + 2 == web.effects(path)


@pytest.mark.requirement("D13", "E08")
def test_a_remembered_failure_is_replayed(web: Client) -> None:
    """
    With remember="all" a 500 is an answer like any other, under the profile's own mark.
    """
    path, key = "/remembered/status/500", new_key()
    before = web.effects(path)
    first, again = web.send(path, key), web.send(path, key)

    assert (first.status, first.header("idempotent-replayed")) == (500, None)
    assert (again.status, again.header("idempotent-replayed")) == (500, "true")
    assert first.body == again.body
    assert before + 1 == web.effects(path)


def test_a_rejection_releases_the_key(web: Client) -> None:
    """
    A 4xx says that nothing happened: the same request may be sent again; another one under this key may not.
    """
    path, key = "/status/402", new_key()
    before = web.effects(path)
    first, again = web.send(path, key, b"a"), web.send(path, key, b"a")
    other = web.send(path, key, b"b")

    assert (first.status, again.status, again.replayed) == (402, 402, None)
    assert other.code == "key_reused"
    assert before + 2 == web.effects(path)


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_is_replayed_without_one(web: Client, status: int) -> None:
    """
    204 stays 204, and no length is made up for it.
    """
    path, key = f"/status/{status}", new_key()
    before = web.effects(path)
    first, again = web.send(path, key), web.send(path, key)

    assert (status, b"", None) == (first.status, first.body, first.replayed)
    assert (status, b"", "true", None) == (again.status, again.body, again.replayed, again.header("content-length"))
    assert before + 1 == web.effects(path)


def test_a_stream_is_recorded_and_replayed(web: Client) -> None:
    """
    Pieces pass as they come, and the same bytes are the replay.
    """
    path, key = "/stream/3", new_key()
    before = web.effects(path)
    first, again = web.send(path, key), web.send(path, key)

    assert first.body.count(b"data: ") == 3
    assert (first.body, "true", "text/event-stream") == (again.body, again.replayed, again.header("content-type"))
    assert before + 1 == web.effects(path)


def test_a_stream_begins_before_it_ends(web: Client) -> None:
    """
    The first pieces arrive while the last one is not made yet. (A blocking gate under ASGI is Django's own exception.)
    """
    if web.name == "django-async-blocking-gate":
        pytest.skip("Django reads a plain iterator to its end before it serves it under ASGI")
    (web.folder / "go").unlink(missing_ok=True)
    with web.line() as line:
        line.sendall(web.head("/stream/2/held", new_key(), "Content-Length: 0"))
        got = b""
        while b"data: 0" not in got:
            got += line.recv(65_536)
        in_time = b"data: 1" not in got
        (web.folder / "go").touch()
        while b"data: 1" not in got:
            got += line.recv(65_536)

    assert in_time


def test_a_stream_that_is_too_long_is_given_once_and_never_run_again(web: Client) -> None:
    """
    What cannot be kept has happened all the same: the retry is told so.
    """
    path, key = "/short/stream/20", new_key()
    before = web.effects(path)
    first, again = web.send(path, key), web.send(path, key)

    assert (first.status, first.body.count(b"data: ")) == (200, 20)
    assert (again.status, again.code, again.problem["retry"]) == (409, "not_replayable", "never")
    assert before + 1 == web.effects(path)


def test_a_client_that_leaves_in_the_middle_does_not_end_what_it_began(web: Client) -> None:
    """
    The rest is recorded to its end, and is what the client's retry gets.
    """
    path, key = "/stream/3/held", new_key()
    (web.folder / "go").unlink(missing_ok=True)
    done = web.effects(path, "streamed")
    before = web.effects(path)
    with web.line() as line:
        line.sendall(web.head(path, key, "Content-Length: 0"))
        web.until(lambda: web.effects(path) > before)
    (web.folder / "go").touch()
    web.until(lambda: web.effects(path, "streamed") > done)
    web.until(lambda: web.send(path, key).status == 200)
    again = web.send(path, key)

    assert (again.body.count(b"data: "), again.replayed) == (3, "true")
    assert before + 1 == web.effects(path)


def test_a_stream_whose_reader_leaves_while_it_flows_is_recorded_whole(web: Client) -> None:
    """
    Wherever the handler is at that moment, waiting to pass a piece on or making the next one.
    """
    path, key = "/stream/600", new_key()
    done = web.effects(path, "streamed")
    with web.line() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # Closing it resets it.
        line.sendall(web.head(path, key, "Content-Length: 0"))
        got = b""
        while b"data: 0" not in got:
            got += line.recv(1_000)
    web.until(lambda: web.effects(path, "streamed") > done)
    web.until(lambda: web.send(path, key).status == 200)

    assert web.send(path, key).body.count(b"data: ") == 600
    assert done + 1 == web.effects(path, "streamed")


def test_a_flood_whose_reader_leaves_holds_nothing_up(web: Client) -> None:
    """
    The handler waits for a reader that will not come back. It is let go, in the middle, and so it is in doubt.
    """
    key, before = new_key(), web.effects("/flood")
    # There Django has read it to its end before it serves it.
    ended = "not_replayable" if web.name == "django-async-blocking-gate" else "in_doubt"
    with web.line() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.sendall(web.head("/flood", key, "Content-Length: 0"))
        line.recv(1_000)
        web.until(lambda: web.send("/flood", key).code in ("in_flight", ended))
    web.until(lambda: web.send("/flood", key).code == ended)
    if web.name == "django-async":
        web.until(lambda: web.send("/running", method="GET").body == b"0")

    assert before + 1 == web.effects("/flood")


def test_a_client_that_leaves_before_the_answer_is_answered_when_it_returns(web: Client) -> None:
    """
    The handler is not cancelled for it: it ends what it does, and its answer waits for the retry.
    """
    key, before = new_key(), web.effects("/held")
    (web.folder / "go").unlink(missing_ok=True)
    with web.line() as line:
        line.sendall(web.head("/held", key, "Content-Length: 0"))
        web.until(lambda: web.effects("/held") > before)
    (web.folder / "go").touch()
    web.until(lambda: web.send("/held", key).status == 200)

    assert web.send("/held", key).replayed == "true"
    assert before + 1 == web.effects("/held")


@pytest.mark.requirement("A21", "A25")
def test_plan_and_step_name_an_operation_with_a_mark_of_its_own(web: Client) -> None:
    """
    Each step of a plan runs once, beside the plain keys, and its replay says Plan-Replayed.
    """
    plan = new_key()
    first = web.send("/charges", None, b"", {"Plan-Key": plan, "Plan-Step": "one"})
    again = web.send("/charges", None, b"", {"Plan-Key": plan, "Plan-Step": "one"})
    other = web.send("/charges", None, b"", {"Plan-Key": plan, "Plan-Step": "two"})

    assert (first.status, first.header("plan-replayed")) == (201, None)
    assert (first.body, "true", None) == (again.body, again.header("plan-replayed"), again.replayed)
    assert first.body != other.body


@pytest.mark.requirement("A32")
@pytest.mark.parametrize("headers", [{"Plan-Key": "p"}, {"Plan-Step": "s"}])
def test_half_of_a_step_is_refused(web: Client, headers: dict[str, str]) -> None:
    """
    A plan without a step, or a step without a plan, is 400 and runs nothing.
    """
    before = web.effects("/charges")
    got = web.send("/charges", None, b"", headers)

    assert (got.status, got.code) == (400, "plan_incomplete")
    assert before == web.effects("/charges")


@pytest.mark.requirement("A28")
def test_two_tenants_with_one_key_know_nothing_of_each_other(web: Client) -> None:
    """
    The same key, and the same step, run for each of them, whatever the other one sent.
    """
    key = new_key()
    step = {"Plan-Key": key, "Plan-Step": "s"}
    one = web.send("/charges", key, b'{"n": 1}', JSON), web.send("/charges", None, b"1", step | JSON)
    two = (
        web.send("/charges", key, b'{"n": 2}', JSON, tenant="globex"),
        web.send("/charges", None, b"2", step | JSON, tenant="globex"),
    )

    assert [(got.status, got.replayed) for got in (*one, *two)] == [(201, None)] * 4
    assert len({got.body for got in (*one, *two)}) == 4


def test_nobody_runs_nothing_and_the_log_says_how_to_set_it(web: Client) -> None:
    """
    Without a scope a keyed request fails closed: 401, nothing ran, and whoever can mend it is told how.
    """
    before = web.effects("/charges")
    got = web.send("/charges", new_key(), tenant=None)

    assert (got.status, got.code) == (401, "scope_missing")
    assert before == web.effects("/charges")
    assert "scope function did not say who is calling" in web.log


def test_an_error_of_ours_that_the_handler_raised_is_the_handlers_own(web: Client) -> None:
    """
    It is no refusal of the gate: the framework answers it as it answers any exception.
    """
    got = web.send("/raise/own", new_key())

    assert got.status == 500
    assert b"in_flight" not in got.body


def test_a_handler_that_says_that_nothing_happened_releases_its_key(web: Client) -> None:
    """
    `NothingHappened` is believed, also where the framework makes a 500 of it.
    """
    if web.name == "flask":
        pytest.skip("Flask makes a 500 of it before a WSGI middleware can see what was raised")
    path, key = "/raise/nothing", new_key()
    before = web.effects(path)
    first, again = web.send(path, key), web.send(path, key)

    assert (first.status, again.status) == (500, 500)
    assert before + 2 == web.effects(path)


def test_an_envelope_shows_a_replay_to_those_who_see_no_headers(web: Client) -> None:
    """
    First answer and replay are wrapped alike; what is inside is the same.
    """
    key = new_key()
    first, again = web.send("/enveloped/charges", key), web.send("/enveloped/charges", key)
    if first.header("content-type") != "application/json":
        pytest.skip("this handler does not say that its body is JSON")

    assert (json.loads(first.body)["replayed"], json.loads(again.body)["replayed"]) == (False, True)
    assert json.loads(first.body)["body"] == json.loads(again.body)["body"]


def test_a_path_that_is_spelt_otherwise_is_another_request(web: Client) -> None:
    """
    The path counts as it was sent: %65 is not e.
    """
    key = new_key()
    first, other = web.send("/echo", key), web.send("/%65cho", key)

    assert first.status == 200
    assert other.code == "key_reused"


def test_the_contract_is_published(web: Client) -> None:
    """
    Anyone may read what is promised, and what a refusal means.
    """
    contract = web.send("/.well-known/idempotency", method="GET", tenant=None)
    page = web.send("/.well-known/idempotency/in_doubt", method="GET", tenant=None)

    assert json.loads(contract.body)["keyHeader"] == "Idempotency-Key"
    assert (page.status, b"in_doubt" in page.body) == (200, True)


def test_a_handler_that_outlives_its_lease_keeps_its_key(web: Client) -> None:
    """
    The lease is renewed while the handler runs: nobody else gets in, and its answer is stored.
    """
    if web.name not in ("wsgi", "django-async"):
        pytest.skip("once for each colour of gate: it takes a second")
    key = new_key()
    before = web.effects("/quick/slow")
    first = threading.Thread(target=web.send, args=("/quick/slow", key))
    first.start()
    web.until(lambda: web.effects("/quick/slow") > before)
    first.join()
    again = web.send("/quick/slow", key)

    assert (again.status, again.replayed) == (200, "true")
    assert before + 1 == web.effects("/quick/slow")
