"""
The late finisher: a holder that is stopped past its lease, is overtaken, and wakes up to finish.

It changes nothing, is told so, and is handed the winner's outcome. Real processes, SIGSTOP and SIGCONT.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from crash_support import Place

pytestmark = pytest.mark.dose(1, of="place")

HERE = Path(__file__).parent
CREATED = {"status": "created"}


def stopped(place: Place, guarantee: str, ending: str, failpoint: str) -> subprocess.Popen[str]:
    """A sender that has stopped itself at a failpoint."""
    command = [sys.executable, str(HERE / "sender.py"), *place.arguments(guarantee, ending, failpoint, "stop", "0")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _, status = os.waitpid(process.pid, os.WUNTRACED)

    assert os.WIFSTOPPED(status), process.communicate()
    return process


def woken(process: subprocess.Popen[str]) -> dict[str, object]:
    """Let the sender go on, and hear what it was told."""
    os.kill(process.pid, signal.SIGCONT)
    out, err = process.communicate(timeout=60)

    assert out, err
    answer: dict[str, object] = json.loads(out)
    return answer


@pytest.mark.parametrize("failpoint", ["call.before", "test.effect.after", "call.after", "settle.before"])
@pytest.mark.parametrize("guarantee", ["keyed", "probed"])
def test_a_late_success_changes_nothing_and_is_told_the_winners_answer(
    place: Place, guarantee: str, failpoint: str
) -> None:
    """
    Overtaken while it was stopped, a holder that then succeeds stores nothing and learns the winner's answer.
    """
    zombie = stopped(place, guarantee, "return", failpoint)
    winner = place.sender(guarantee)
    answer = winner.send()
    stands = winner.record()

    assert answer == CREATED
    assert woken(zombie) == {"lost": CREATED, "cause": None}
    assert stands is not None
    assert stands.fence == winner.record().fence  # type: ignore[union-attr]
    assert winner.send() == CREATED
    if guarantee == "keyed":
        assert place.effects(guarantee) == 1


@pytest.mark.parametrize("ending", ["time-out", "refuse"])
def test_a_late_failure_changes_nothing_and_is_told_the_winners_answer(place: Place, ending: str) -> None:
    """
    Overtaken while it was stopped, a holder that then fails neither releases nor doubts the winner's record.
    """
    zombie = stopped(place, "keyed", ending, "call.before")
    winner = place.sender("keyed")
    answer = winner.send()
    told = woken(zombie)
    stands = winner.record()

    assert answer == CREATED
    assert {"lost": CREATED, "cause": "TimeoutError" if ending == "time-out" else "NothingHappened"} == told
    assert stands is not None
    assert stands.state == "settled"
    assert winner.send() == CREATED
    assert place.effects("keyed") == 1


def test_a_stopped_blind_holder_is_not_overtaken_and_may_still_finish(place: Place) -> None:
    """
    Nobody runs a blind operation whose holder's lease ran out; so the holder itself may still say what happened.
    """
    from onceward import InDoubt

    zombie = stopped(place, "blind", "return", "test.effect.after")
    other = place.sender("blind")
    with pytest.raises(InDoubt):
        other.send()

    assert woken(zombie) == {"answer": CREATED}
    assert other.send() == CREATED
    assert place.effects("blind") == 1


@pytest.mark.requirement("E19", "E20")
def test_racing_processes_have_one_effect_and_equal_answers(place: Place) -> None:
    """
    Eight processes send the same atomic operation at once: one wins, the losers' rows are undone, all hear the same.
    """
    command = [sys.executable, str(HERE / "sender.py"), *place.arguments("atomic", "return")]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    answers = [racer.communicate(timeout=60) for racer in racers]

    assert [json.dumps({"answer": CREATED})] * 8 == [out.strip() for out, _ in answers], answers
    assert place.effects("atomic") == 1
