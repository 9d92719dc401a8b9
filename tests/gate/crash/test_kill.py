"""
kill -9 at every boundary of an operation, with real processes and real files.

After the crash a retry by another process recovers: one effect for atomic, keyed and probed; for blind at most one,
and if nobody can know, the record says so.
"""

from __future__ import annotations

import signal
from multiprocessing import get_context

import pytest
from crash_support import Place
from sender import main

from onceward import InDoubt

pytestmark = pytest.mark.dose(1, of="place")

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


def crash(place: Place, guarantee: str, ending: str, failpoint: str) -> int:
    """Send the operation in a process of its own that is killed at a failpoint; its exit code."""
    process = PROCESSES.Process(target=main, args=(place.arguments(guarantee, ending, failpoint, "kill", "0"),))
    process.start()
    process.join(60)

    assert process.exitcode is not None
    return process.exitcode


def retry(place: Place, guarantee: str) -> object:
    """Send it again from this process, after the dead holder's lease."""
    return place.sender(guarantee).send()


@pytest.mark.parametrize("failpoint", DETACHED)
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_killed_at_a_failpoint_the_effect_happens_once_or_is_in_doubt(
    place: Place, guarantee: str, failpoint: str
) -> None:
    """
    Wherever the holder is killed, a retry ends with one effect, or says that nobody can know.
    """
    died = crash(place, guarantee, "return", failpoint)
    before = place.effects(guarantee)
    try:
        answer = retry(place, guarantee)
    except InDoubt:
        answer = InDoubt

    assert died == -signal.SIGKILL
    if guarantee == "blind" and answer is InDoubt:
        assert before == place.effects(guarantee)  # Nobody ran it again.
        assert before <= 1
    else:
        assert answer == CREATED
        assert place.effects(guarantee) == 1


@pytest.mark.parametrize("failpoint", ["call.before", "test.effect.after", "call.after", "settle.before"])
def test_killed_between_claim_and_settle_a_blind_operation_is_in_doubt(place: Place, failpoint: str) -> None:
    """
    A blind operation whose holder died with the claim is not run again until somebody decides.
    """
    crash(place, "blind", "return", failpoint)

    with pytest.raises(InDoubt):
        retry(place, "blind")
    with pytest.raises(InDoubt):
        retry(place, "blind")
    assert place.effects("blind") <= 1


@pytest.mark.requirement("B38")
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_killed_after_the_settle_and_before_the_reply_the_retry_replays(place: Place, guarantee: str) -> None:
    """
    The answer was committed and its reply lost: the retry is told the same answer, and nothing runs.
    """
    died = crash(place, guarantee, "return", "settle.after")

    assert died == -signal.SIGKILL
    assert retry(place, guarantee) == CREATED
    assert place.effects(guarantee) == 1


@pytest.mark.requirement("E09")
@pytest.mark.parametrize("failpoint", JOINED)
def test_killed_inside_the_callers_transaction_both_or_neither_exist(place: Place, failpoint: str) -> None:
    """
    Record and rows commit together: at every statement boundary, after recovery, both exist or neither does.
    """
    died = crash(place, "atomic", "return", failpoint)
    rows = place.effects("atomic")
    record = place.sender("atomic", later=0).record()

    assert died == -signal.SIGKILL
    assert rows == (1 if record is not None and record.state == "settled" else 0)
    assert retry(place, "atomic") == CREATED
    assert place.effects("atomic") == 1


@pytest.mark.parametrize("failpoint", ["doubt.before", "doubt.after"])
@pytest.mark.parametrize("guarantee", ["blind", "keyed", "probed"])
def test_killed_while_leaving_doubt_behind_the_doubt_stands(place: Place, guarantee: str, failpoint: str) -> None:
    """
    A time-out after the effect, and death while saying so: keyed and probed end with one effect, blind asks.
    """
    died = crash(place, guarantee, "time-out", failpoint)

    assert died == -signal.SIGKILL
    if guarantee == "blind":
        with pytest.raises(InDoubt):
            retry(place, guarantee)
    else:
        assert retry(place, guarantee) == CREATED
    assert place.effects(guarantee) == 1


@pytest.mark.parametrize("failpoint", ["release.before", "release.after"])
def test_killed_while_releasing_nothing_has_happened_twice(place: Place, failpoint: str) -> None:
    """
    The function proved that nothing happened, and died while the key was given back: never two effects.
    """
    died = crash(place, "keyed", "refuse", failpoint)

    assert died == -signal.SIGKILL
    assert place.effects("keyed") == 0
    assert retry(place, "keyed") == CREATED
    assert place.effects("keyed") == 1


def test_without_a_record_the_same_crash_charges_twice(place: Place) -> None:
    """
    The negative control: forget the record, and the very same retry has its effect a second time.
    """
    crash(place, "blind", "return", "settle.after")
    for file in place.folder.glob("store.db*"):
        file.unlink()

    assert retry(place, "blind") == CREATED
    assert place.effects("blind") == 2
