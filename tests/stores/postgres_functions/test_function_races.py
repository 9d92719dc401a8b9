"""Two callers, one key: the second waits at the constraint and is answered kindly, whichever language each speaks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from functions_support import REQUEST, SCOPE, WAITING, Connection, charge, claim, rows, settle

from onceward import Gate
from servers.postgres import needed

needed()

RACER = Path(__file__).with_name("function_racer.py")
LANGUAGES = ("SQL", "Python")
PATIENCE = 60
KEYS = [f"k{number}" for number in range(6)]


def in_python(gate: Gate, connection: Connection, key: str) -> str:
    """The whole operation under a gate, in the open transaction."""

    def work() -> str:
        connection.execute("INSERT INTO charges (key, who) VALUES (%s, 'Python')", (key,))
        return "Python"

    return str(gate.atomic(connection, key, work, request=REQUEST))


def wait_until_somebody_waits(url: str, pending: Future[Any]) -> bool:
    """Whether a statement was seen to wait for a lock; False if the caller was through before."""
    with psycopg.connect(url, autocommit=True) as watcher:
        while not pending.done():
            if watcher.execute(WAITING).fetchone() != (0,):
                return True
    return False


@pytest.mark.requirement("E25", "E22")
@pytest.mark.fault("functions-check-then-insert")
@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("second", LANGUAGES)
@pytest.mark.parametrize("first", LANGUAGES)
def test_the_second_caller_waits_and_is_answered_as_the_first_ended(
    url: str, first: str, second: str, ending: str
) -> None:
    """
    After a commit it replays the winner and writes no row; after a rollback it is the one. Its transaction goes on:
    what it had written before is committed.
    """
    with Gate(url, scope=SCOPE) as gate, ThreadPoolExecutor(1) as pool:
        speak: dict[str, Callable[[Connection], str]] = {
            "SQL": lambda connection: charge(connection, "k"),
            "Python": lambda connection: in_python(gate, connection, "k"),
        }
        with psycopg.connect(url) as one, psycopg.connect(url) as other:
            for connection in (one, other):
                connection.execute("INSERT INTO charges VALUES ('before', 'it')")  # A transaction of the caller's own.
            won = speak[first](one)
            pending = pool.submit(speak[second], other)
            waited = wait_until_somebody_waits(url, pending)
            getattr(one, ending)()
            error = pending.exception(PATIENCE)
            answer = None if error else pending.result()
            other.rollback() if error else other.commit()
    counts = dict(rows(url, "SELECT key || ' ' || who, count(*) FROM charges GROUP BY 1"))
    runner = first if ending == "commit" else second

    assert error is None
    assert (won, waited, answer) == (first, True, runner)
    assert counts == {f"k {runner}": 1, "before it": 2 if ending == "commit" else 1}
    assert rows(url, "SELECT state, attempt FROM onceward_records") == [("settled", 1)]


@pytest.mark.fault("functions-stale-snapshot")
@pytest.mark.parametrize("second", LANGUAGES)
def test_the_loser_of_a_released_key_is_answered_from_the_winners_record(url: str, second: str) -> None:
    """
    The key had been claimed before and let go, and both have seen that: the row is locked, and its version compared.
    """
    with (
        Gate(url, scope=SCOPE) as gate,
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(url) as one,
        psycopg.connect(url) as other,
    ):
        charge(one, "k")
        one.commit()
        rows(url, "UPDATE onceward_records SET state = 'released', codec = NULL, result = NULL; TRUNCATE charges")
        one.execute("SELECT FROM onceward_records FOR UPDATE")
        speak = charge if second == "SQL" else lambda connection, key: in_python(gate, connection, key)
        pending = pool.submit(speak, other, "k")
        waited = wait_until_somebody_waits(url, pending)
        won = charge(one, "k", "first")
        one.commit()
        answer = pending.result(PATIENCE)
        other.commit()

    assert (won, waited, answer) == ("first", True, "first")
    assert rows(url, "SELECT attempt FROM onceward_records") == [(2,)]
    assert rows(url, "SELECT who FROM charges") == [("first",)]


@pytest.mark.requirement("E11")
@pytest.mark.fault("functions-any-constraint")
def test_the_named_primary_key_is_the_judge_and_without_it_nothing_is_claimed(url: str, sql: Connection) -> None:
    """
    Somebody dropped it: a claim would have no judge, so it is refused, and nothing is written.
    """
    sql.execute("ALTER TABLE onceward_records DROP CONSTRAINT onceward_records_pkey")
    with pytest.raises(psycopg.errors.InvalidColumnReference, match="ON CONFLICT"):
        claim(sql, "k")
    sql.rollback()

    assert charge(sql, "k") == "SQL"


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_above_read_committed_the_loser_is_told_to_run_its_transaction_again(url: str, level: str) -> None:
    """
    It cannot see the winner's record in its snapshot: SQLSTATE 40001. Run again, it replays.
    """
    with psycopg.connect(url) as one, psycopg.connect(url) as other, ThreadPoolExecutor(1) as pool:
        other.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        other.execute("SELECT count(*) FROM charges")
        charge(one, "k")
        pending = pool.submit(charge, other, "k")
        waited = wait_until_somebody_waits(url, pending)
        one.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            pending.result(PATIENCE)
        other.rollback()

        assert (waited, charge(other, "k")) == (True, "SQL")


def test_a_callers_own_lock_timeout_surfaces_as_itself(url: str) -> None:
    """
    How long to wait is the caller's business: 55P03, and inside a savepoint the transaction goes on.
    """
    with psycopg.connect(url) as one, psycopg.connect(url) as other:
        charge(one, "k")
        other.execute("SET lock_timeout = '1ms'")
        other.commit()
        with pytest.raises(psycopg.errors.LockNotAvailable), other.transaction():
            claim(other, "k")
        one.commit()

        assert charge(other, "k") == "SQL"


@pytest.mark.slow
def test_processes_of_both_languages_race_and_some_are_killed(url: str) -> None:
    """
    Five that race for six keys, three of them killed between claim, work, settle and commit: each key has one row and
    one record, and everybody who lived to tell was told the same.
    """
    points = {"a": ("sql", "claimed"), "b": ("sql", "settled"), "c": ("python", "worked")}
    racers = points | {"e": ("sql", "-"), "f": ("python", "-")}
    running = []
    for number, (name, (language, point)) in enumerate(racers.items()):
        first, *others = KEYS[number % 3 :] + KEYS[: number % 3]
        command = [sys.executable, str(RACER), url, name, language, first, point, *others]
        running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for one in running:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    told = [one.communicate(timeout=PATIENCE)[0] for one in running]
    with psycopg.connect(url) as last:
        final = {key: charge(last, key, "last") for key in KEYS}
        last.commit()
    answers = [json.loads(text) for text in told if text]
    counts = Counter(key for (key,) in rows(url, "SELECT key FROM charges"))

    assert counts == Counter(KEYS)
    assert dict(rows(url, "SELECT key, who FROM charges")) == final
    assert all(one == final for one in answers)
    assert len(answers) >= 2
    assert rows(url, "SELECT DISTINCT state FROM onceward_records") == [("settled",)]
    assert {one.returncode for one in running} <= {0, -9}


@pytest.mark.parametrize("point", ["worked", "settled"])
def test_a_caller_in_sql_that_is_killed_on_its_way_leaves_nothing(url: str, point: str) -> None:
    """
    Between claim and commit, anywhere: no record, no row, and the next caller runs it.
    """
    done = subprocess.run(
        [sys.executable, str(RACER), url, "killed", "sql", "k", point], input="go\n", text=True, capture_output=True
    )
    with psycopg.connect(url) as after:
        answer = charge(after, "k", "after")
        after.commit()

    assert (done.returncode, answer) == (-9, "after")
    assert rows(url, "SELECT who FROM charges") == [("after",)]
    assert rows(url, "SELECT attempt FROM onceward_records") == [(1,)]


def test_a_deadlock_of_two_keys_in_two_orders_surfaces_as_itself(url: str) -> None:
    """
    PostgreSQL ends one of them with 40P01; the other goes on, and the one that was ended may run again.
    """
    with psycopg.connect(url) as one, psycopg.connect(url) as other, ThreadPoolExecutor(2) as pool:
        settle(one, claim(one, "a"))
        settle(other, claim(other, "b"))
        waiting = [pool.submit(charge, one, "b"), pool.submit(charge, other, "a")]
        errors = [future.exception(PATIENCE) for future in waiting]
        for connection, error in zip((one, other), errors, strict=True):
            connection.rollback() if error else connection.commit()

    assert Counter(type(error) for error in errors) == Counter([type(None), psycopg.errors.DeadlockDetected])
