"""What users are promised of any operation with a key, on every store by the same words."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import Gate, OncewardError, Operation
from onceward._core.record import Record
from onceward.errors import RecordedFailure
from onceward.runtime.environment import REAL
from onceward.stores import open_store
from onceward.testing.store_suite.rows import row
from servers import postgres, redis

WRITERS, TIMES = 20, 5


def _names() -> Iterator[str]:
    yield from ("memory", "sqlite")
    if postgres.wanted():
        yield "postgres"
    if redis.wanted():
        yield "redis"


@pytest.fixture(params=list(_names()))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A store of each kind."""
    match request.param:
        case "postgres":
            url = postgres.running().url("onceward")
        case "redis":
            url = redis.running().url()
        case "sqlite":
            url = f"sqlite:///{tmp_path}/promise.db"
        case _:
            url = "memory://"
    one = open_store(url)
    yield one
    one.close()


@pytest.fixture
def gate(store: Any) -> Gate:
    """A gate over it, in a scope that nobody else uses."""
    return Gate(store, scope=f"test:{REAL.random(6).hex()}")


class ServerError(Exception):
    """What a provider answers with status 500."""


@pytest.mark.requirement("D20")
def test_any_operation_with_a_key_runs_once_over_any_store(gate: Gate) -> None:
    """
    The same two words, a function and a key; the store is whatever the gate was given.
    """
    effects: list[str] = []
    told = [gate.run("order-17", lambda: effects.append("one") or {"id": 17}) for _ in range(3)]

    assert (told, effects) == ([{"id": 17}] * 3, ["one"])


@pytest.mark.requirement("D13")
def test_with_failures_remembered_a_stored_500_replays(gate: Gate) -> None:
    """
    The first caller sees the error itself; everybody after hears of it as data, and nothing runs again.
    """
    runs: list[str] = []

    def charge() -> None:
        runs.append("one")
        raise ServerError("500 Internal Server Error")

    with pytest.raises(ServerError):
        gate.run("charge-17", charge, remember="all")
    replays = []
    for _ in range(2):
        with pytest.raises(RecordedFailure) as told:
            gate.run("charge-17", charge, remember="all")
        replays.append((told.value.type, told.value.message))

    assert runs == ["one"]
    assert [replays[0]] * 2 == replays
    assert "ServerError" in replays[0][0]
    assert "500" in replays[0][1]


class TestTheUsualEffects:
    """Each made safe by its key."""

    @pytest.mark.requirement("D07")
    def test_a_charge_is_made_safe_by_the_key_that_is_passed_on(self, gate: Gate) -> None:
        """
        Its first answer never came; sent again, the provider sees the same key and charges nothing new.
        """
        provider: dict[str, str] = {}
        calls: list[str] = []

        def charge(operation: Operation) -> str:
            calls.append(operation.downstream_key("stripe"))
            provider.setdefault(calls[-1], f"ch_{len(provider) + 1}")
            if len(calls) == 1:
                raise TimeoutError("no answer")
            return provider[calls[-1]]

        with pytest.raises(TimeoutError):
            gate.run("charge-17", charge, guarantee="keyed")
        told = [gate.run("charge-17", charge, guarantee="keyed") for _ in range(2)]

        assert (told, len(provider), len(calls)) == (["ch_1", "ch_1"], 1, 2)

    @pytest.mark.requirement("D07")
    def test_a_mail_is_made_safe_by_its_message_id(self, gate: Gate) -> None:
        """
        The message id is the key: delivered three times, sent once; another message is another mail.
        """
        sent: list[str] = []

        @gate.once(key="mail:{message_id}")
        def send(message_id: str, to: str) -> str:
            sent.append(message_id)
            return f"queued {message_id}"

        told = [send(one, "the customer") for one in ("20260717.42.welcome", "20260717.42.welcome", "20260717.43")]

        assert sent == ["20260717.42.welcome", "20260717.43"]
        assert told[0] == told[1] != told[2]


@pytest.mark.requirement("A12")
def test_twenty_writers_of_one_record_lose_no_update(store: Any) -> None:
    """
    Each raises a counter five times by comparing and swapping. A busy store makes them wait, or says in our words that
    it is worth another try; no error of a driver is ever seen.
    """
    scope = f"test:{REAL.random(6).hex()}"
    first: Record = store.put(row(scope, attempt=0), None).record
    errors: list[BaseException] = []
    start = threading.Barrier(WRITERS)

    def write() -> None:
        start.wait()
        seen, raised = first, 0
        while raised < TIMES:
            try:
                standing = store.put(row(scope, attempt=seen.attempt + 1, fence=seen.fence + 1), seen.version)
            except OncewardError as error:
                if error.retry != "same-key":
                    errors.append(error)
                    return
                continue
            except BaseException as error:
                errors.append(error)
                return
            seen, raised = standing.record, raised + standing.landed

    threads = [threading.Thread(target=write) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counted = store.load(first.id).attempt
    print(f"{type(store).__name__}: {WRITERS} writers, {WRITERS * TIMES} updates, lost {WRITERS * TIMES - counted}")

    assert (errors, counted) == ([], WRITERS * TIMES)
