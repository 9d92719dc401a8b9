"""
kill -9 at every boundary of an operation, with real processes and real files.

After the crash a retry by another process recovers: one effect for atomic, keyed and probed; for blind at most one,
and if nobody can know, the record says so.
"""

from __future__ import annotations

import signal
from multiprocessing import get_context
from pathlib import Path

import pytest
from sender import LEASE_SECONDS, Sender, effects, main, prepare

from onceward import InDoubt

# Forked from a process that has imported everything: starting Python takes most of a second, and there are many.
PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload(["sender"])
CREATED = {"status": "created"}

DETACHED = (
    "claim.before",
    "claim.after",
    "call.before",
    "test.effect.after",
    "call.after",
    "settle.before",
    "settle.after",
    "sqlite.write.before",
    "sqlite.commit.after",
)
JOINED = (
    "begin.before",
    "begin.after",
    "claim.before",
    "claim.after",
    "call.before",
    "test.effect.after",
    "call.after",
    "settle.before",
    "settle.after",
    "commit.before",
    "commit.after",
)
GUARANTEES = ("blind", "keyed", "probed", "repeatable")


def crash(folder: Path, guarantee: str, ending: str, failpoint: str, skip: int = 0) -> int:
    """Send the operation in a process of its own that is killed at a failpoint; its exit code."""
    process = PROCESSES.Process(target=main, args=([str(folder), guarantee, ending, failpoint, "kill", str(skip)],))
    process.start()
    process.join(60)

    assert process.exitcode is not None
    return process.exitcode


def retry(folder: Path, guarantee: str, ending: str = "return") -> object:
    """Send it again from this process, after the dead holder's lease."""
    return Sender(folder, guarantee, ending, later=LEASE_SECONDS + 1).send()


@pytest.mark.parametrize("failpoint", DETACHED)
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_killed_at_a_failpoint_the_effect_happens_once_or_is_in_doubt(
    tmp_path: Path, guarantee: str, failpoint: str
) -> None:
    """
    Wherever the holder is killed, a retry ends with one effect, or says that nobody can know.
    """
    prepare(tmp_path)
    died = crash(tmp_path, guarantee, "return", failpoint)
    before = effects(tmp_path, guarantee)
    try:
        answer = retry(tmp_path, guarantee)
    except InDoubt:
        answer = InDoubt

    assert -signal.SIGKILL == died
    if guarantee == "blind" and answer is InDoubt:
        assert before == effects(tmp_path, guarantee)  # Nobody ran it again.
        assert before <= 1
    else:
        assert CREATED == answer
        assert 1 == effects(tmp_path, guarantee)


@pytest.mark.parametrize("failpoint", ["call.before", "test.effect.after", "call.after", "settle.before"])
def test_killed_between_claim_and_settle_a_blind_operation_is_in_doubt(tmp_path: Path, failpoint: str) -> None:
    """
    A blind operation whose holder died with the claim is not run again until somebody decides.
    """
    prepare(tmp_path)
    crash(tmp_path, "blind", "return", failpoint)

    with pytest.raises(InDoubt):
        retry(tmp_path, "blind")
    with pytest.raises(InDoubt):
        retry(tmp_path, "blind")
    assert effects(tmp_path, "blind") <= 1


@pytest.mark.requirement("B38")
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_killed_after_the_settle_and_before_the_reply_the_retry_replays(tmp_path: Path, guarantee: str) -> None:
    """
    The answer was committed and its reply lost: the retry is told the same answer, and nothing runs.
    """
    prepare(tmp_path)
    died = crash(tmp_path, guarantee, "return", "settle.after")

    assert -signal.SIGKILL == died
    assert CREATED == retry(tmp_path, guarantee)
    assert 1 == effects(tmp_path, guarantee)


@pytest.mark.requirement("E09")
@pytest.mark.parametrize("failpoint", JOINED)
def test_killed_inside_the_callers_transaction_both_or_neither_exist(tmp_path: Path, failpoint: str) -> None:
    """
    Record and rows commit together: at every statement boundary, after recovery, both exist or neither does.
    """
    prepare(tmp_path)
    died = crash(tmp_path, "atomic", "return", failpoint)
    rows = effects(tmp_path, "atomic")
    record = Sender(tmp_path, "atomic", "return").gate.records.get("charge:17")

    assert -signal.SIGKILL == died
    assert rows == (1 if record is not None and record.state == "settled" else 0)
    assert CREATED == retry(tmp_path, "atomic")
    assert 1 == effects(tmp_path, "atomic")


@pytest.mark.parametrize("failpoint", ["doubt.before", "doubt.after"])
@pytest.mark.parametrize("guarantee", ["blind", "keyed", "probed"])
def test_killed_while_leaving_doubt_behind_the_doubt_stands(tmp_path: Path, guarantee: str, failpoint: str) -> None:
    """
    A time-out after the effect, and death while saying so: keyed and probed end with one effect, blind asks.
    """
    prepare(tmp_path)
    died = crash(tmp_path, guarantee, "time-out", failpoint)

    assert -signal.SIGKILL == died
    if guarantee == "blind":
        with pytest.raises(InDoubt):
            retry(tmp_path, guarantee)
    else:
        assert CREATED == retry(tmp_path, guarantee)
    assert 1 == effects(tmp_path, guarantee)


@pytest.mark.parametrize("failpoint", ["release.before", "release.after"])
def test_killed_while_releasing_nothing_has_happened_twice(tmp_path: Path, failpoint: str) -> None:
    """
    The function proved that nothing happened, and died while the key was given back: never two effects.
    """
    prepare(tmp_path)
    died = crash(tmp_path, "keyed", "refuse", failpoint)

    assert -signal.SIGKILL == died
    assert 0 == effects(tmp_path, "keyed")
    assert CREATED == retry(tmp_path, "keyed")
    assert 1 == effects(tmp_path, "keyed")


def test_without_a_record_the_same_crash_charges_twice(tmp_path: Path) -> None:
    """
    The negative control: forget the record, and the very same retry has its effect a second time.
    """
    prepare(tmp_path)
    crash(tmp_path, "blind", "return", "settle.after")
    for file in tmp_path.glob("store.db*"):
        file.unlink()

    assert CREATED == retry(tmp_path, "blind")
    assert 2 == effects(tmp_path, "blind")
