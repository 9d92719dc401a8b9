"""A second request with a key while the first one still runs or waits: it waits, or hears 409 or 202, as is set."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from service_support import INSERT, Heard, Served, children

from onceward.client import Client
from onceward.errors import InFlight

ROW = ["e-1", "click"]
AT_ONCE = 25.0
"""For hanging only, and less than what a call of these tests waits for its response."""
PATIENT = 60.0
"""For hanging only: what is waited for happens at once."""
STEP = {"Plan-Key": "p", "Plan-Step": "s"}


@contextmanager
def service_with(folder: Path, *flags: str) -> Iterator[Served]:
    """A service whose statements may be stopped for minutes before anybody looks after them."""
    folder.mkdir(mode=0o700)
    service = Served.started(folder, "--statement-seconds", "600", "--writers", "1", *flags)
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """It says 409."""
    with service_with(tmp_path_factory.mktemp("flight") / "409", "--in-flight", "409") as service:
        yield service


@pytest.fixture(scope="module")
def accepting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """It says 202."""
    with service_with(tmp_path_factory.mktemp("flight") / "202", "--in-flight", "202") as service:
        yield service


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """It waits, for as long as anybody could want."""
    with service_with(tmp_path_factory.mktemp("flight") / "wait", "--in-flight-seconds", "600") as service:
        yield service


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """It waits, but hardly."""
    with service_with(tmp_path_factory.mktemp("flight") / "brief", "--in-flight-seconds", "0.1") as service:
        yield service


@contextmanager
def stopped(service: Served) -> Iterator[list[int]]:
    """Its workers stand still: what was sent to them runs, and does not end. Their ids."""
    pids = children(service.process.pid)
    assert pids, "the workers are there since the database was made"
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield pids
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def two_at_once(service: Served, send: Callable[[], Heard], *, ahead: Callable[[], Heard] | None = None) -> list[Heard]:
    """
    The same request twice while nothing can end; the responses in the order in which they came.

    Which of the two the service sees first does not matter. With `ahead`, another request is before both of them, so
    that the first one is still in the queue.
    """
    with ThreadPoolExecutor(3) as pool:
        with stopped(service):
            if ahead is not None:
                pool.submit(ahead)
                service.call("GET", "/v1/db/demo")  # What was sent before this has arrived.
            sent: list[Future[Heard]] = [pool.submit(send), pool.submit(send)]
            done, left = wait(sent, AT_ONCE, FIRST_COMPLETED)
            assert (len(done), len(left)) == (1, 1)
        return [done.pop().result(), left.pop().result(PATIENT)]


def sender(service: Served, path: str, how: str) -> Callable[[], Heard]:
    """One request, with a key, as a batch, or as a step."""
    if how == "step":
        return lambda: service.query(path, INSERT, ROW, headers=STEP)
    if how == "batch":
        body = {"statements": [{"sql": INSERT, "params": ROW}]}
        return lambda: service.call("POST", f"{path}/batch", body, headers={"Idempotency-Key": "k"})
    return lambda: service.query(path, INSERT, ROW, key="k")


@pytest.mark.parametrize("how", ["key", "batch", "step"])
@pytest.mark.parametrize("queued", [False, True], ids=["running", "queued"])
def test_409_while_the_first_one_runs_or_waits(refusing: Served, how: str, queued: bool) -> None:
    """
    409 `in_flight` at once, with Retry-After; the first one is done; a retry replays it. One row.
    """
    path = refusing.database()
    send = sender(refusing, path, how)
    ahead = (lambda: refusing.query(path, INSERT, ["e-0", "x"])) if queued else None
    second, first = two_at_once(refusing, send, ahead=ahead)
    retried = send()

    assert (second.status, second.code, second.document["retry"]) == (409, "in_flight", "same-key")
    assert int(second.headers["retry-after"]) >= 1
    assert first.status == 200
    assert (retried.status, retried.body) == (200, first.body)
    assert refusing.count(path) == 1 + queued


@pytest.mark.parametrize("how", ["key", "batch", "step"])
@pytest.mark.parametrize("queued", [False, True], ids=["running", "queued"])
def test_202_while_the_first_one_runs_or_waits(accepting: Served, how: str, queued: bool) -> None:
    """
    202 with the code that is published, and Retry-After; the first one is done; a retry replays it. One row.
    """
    published = accepting.sql_contract()["pendingCode"]
    path = accepting.database()
    send = sender(accepting, path, how)
    ahead = (lambda: accepting.query(path, INSERT, ["e-0", "x"])) if queued else None
    second, first = two_at_once(accepting, send, ahead=ahead)
    retried = send()

    assert (second.status, second.code, second.document["retry"]) == (202, published, "same-key")
    assert second.headers["content-type"] == "application/problem+json"
    assert int(second.headers["retry-after"]) >= 1
    assert first.status == 200
    assert (retried.status, retried.body) == (200, first.body)
    assert accepting.count(path) == 1 + queued


@pytest.mark.parametrize("queued", [False, True], ids=["running", "queued"])
@pytest.mark.fault("a-second-sql-request-does-not-wait")
def test_waiting_gives_both_the_same_response(waiting: Served, queued: bool) -> None:
    """
    Nobody is answered while the first one cannot end; then both are, with the same bytes. One row.
    """
    path = waiting.database()
    with ThreadPoolExecutor(20) as pool:
        with stopped(waiting):
            if queued:
                pool.submit(waiting.query, path, INSERT, ["e-0", "x"])
            sent = [pool.submit(waiting.query, path, INSERT, ROW, key="k") for _ in range(12)]
            waiting.call("GET", "/v1/db/demo")
        heard = [one.result(PATIENT) for one in sent]

    assert {(one.status, one.body) for one in heard} == {(200, heard[0].body)}
    assert sum("idempotency-replayed" in one.headers for one in heard) == 11
    assert waiting.count(path) == 1 + queued


@pytest.mark.fault("a-second-sql-request-waits-in-the-queue")
def test_waiting_has_its_end(impatient: Served) -> None:
    """
    After the seconds that are set, and published: 409 `in_flight`; the first one is done all the same.
    """
    path = impatient.database()
    second, first = two_at_once(impatient, sender(impatient, path, "key"))

    assert impatient.sql_contract()["waitSeconds"] == 0.1
    assert (second.status, second.code) == (409, "in_flight")
    assert (first.status, impatient.count(path)) == (200, 1)


def test_a_first_one_that_fails_leaves_the_key_to_the_next(waiting: Served) -> None:
    """
    Twelve wait for a statement that is refused: each runs in its turn, and each is refused by itself.
    """
    path = waiting.database()
    waiting.query(path, INSERT, ROW)
    with ThreadPoolExecutor(12) as pool:
        with stopped(waiting):
            sent = [pool.submit(waiting.query, path, INSERT, ROW, key="k") for _ in range(12)]
            waiting.call("GET", "/v1/db/demo")
        heard = [one.result(PATIENT) for one in sent]
    freed = waiting.query(path, INSERT, ["e-2", "x"], key="k")

    assert {(one.status, one.document["kind"]) for one in heard} == {(409, "uniqueViolation")}
    assert freed.status == 200


def test_other_keys_databases_and_requests_without_a_key_are_not_held_up(refusing: Served) -> None:
    """
    Two at once under different keys, in different databases, or without a key: nobody hears 409.
    """
    path, other = refusing.database(), refusing.database()
    with ThreadPoolExecutor(6) as pool:
        with stopped(refusing):
            sent = [
                pool.submit(refusing.query, path, INSERT, ["a", "x"], key="k"),
                pool.submit(refusing.query, other, INSERT, ["a", "x"], key="k"),
                pool.submit(refusing.query, path, INSERT, ["b", "x"], key="k2"),
                pool.submit(refusing.query, path, INSERT, ["c", "x"], headers={"Plan-Key": "k", "Plan-Step": "k"}),
                pool.submit(refusing.query, path, INSERT, ["d", "x"]),
                pool.submit(refusing.query, path, INSERT, ["e", "x"]),
            ]
            refusing.call("GET", "/v1/db/demo")
        heard = [one.result(PATIENT) for one in sent]

    assert [one.status for one in heard] == [200] * 6


@pytest.mark.fault("a-reader-learns-that-a-key-is-in-flight")
def test_a_read_token_does_not_learn_that_a_key_is_in_flight(refusing: Served) -> None:
    """
    What it hears is what it hears whether or not the key is in use: that it may not write.
    """
    path, reader = refusing.database(), refusing.new_token("demo", role="read")
    with ThreadPoolExecutor(2) as pool:
        with stopped(refusing):
            first = pool.submit(refusing.query, path, INSERT, ROW, key="k")
            refusing.call("GET", "/v1/db/demo")
            told = pool.submit(refusing.query, path, INSERT, ROW, key="k", token=reader)
            refusing.call("GET", "/v1/db/demo")
        heard = first.result(PATIENT), told.result(PATIENT)

    assert [one.status for one in heard] == [200, 403]
    assert heard[1].document["kind"] == "readonly"


def test_the_journal_and_the_client_know_a_202(accepting: Served) -> None:
    """
    The journal notes no execution for it, and to the client it is `InFlight`.
    """
    path = accepting.database()
    _, _, _, tenant, name = path.split("/")
    with Client(accepting.address, token=accepting.token, max_retries=0) as client, ThreadPoolExecutor(2) as pool:
        with stopped(accepting):
            sent = [
                pool.submit(client.db(tenant, name).query, INSERT, ROW, idempotency_key="journalled") for _ in range(2)
            ]
            done, left = wait(sent, PATIENT, FIRST_COMPLETED)
        with pytest.raises(InFlight):
            done.pop().result()
        written = left.pop().result(PATIENT).rows_written
    outcomes: list[str] = []
    while len(outcomes) < 2:  # The journal is written behind the calls.
        found = accepting.call("GET", "/v1/journal?limit=50").document["attempts"]
        outcomes = sorted(one["outcome"] for one in found if one["call"].endswith(f"{name}/query") and one["digest"]
                          and one["outcome"])  # fmt: skip

    assert written == 1
    assert outcomes == ["executed", "refused"]


@pytest.mark.parametrize(("flags", "words"), [
    (("--in-flight", "maybe"), "--in-flight must be wait or 409 or 202"),
    (("--in-flight-seconds", "0"), "--in-flight-seconds must be a number above zero"),
])  # fmt: skip
def test_a_setting_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, str], words: str
) -> None:
    """
    Before anything starts.
    """
    from onceward.cli import main

    assert main(["serve", "--folder", str(tmp_path / "data"), *flags]) == 2
    assert words in capsys.readouterr().err
