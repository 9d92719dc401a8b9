"""Several processes at once write one chain; and kill -9 at every step leaves a trace of what was decided."""

from __future__ import annotations

import subprocess
import sys

import pytest
from audit_support import World, decide

from onceward.audit import DecisionLog

WRITER = """
import sys
from onceward.audit import CLI, Decision, DecisionLog, Operator

with DecisionLog.open(sys.argv[1]) as log:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(sys.argv[3])):
        operator = Operator(sys.argv[2], CLI)
        with log.deciding(Decision("record.release", f"{sys.argv[2]}-{number}", operator, tenant="acme")) as made:
            made.after = {"number": number}
"""
KILLED = """
import sys
from onceward.audit import CLI, Decision, DecisionLog, Operator
from onceward.runtime import failpoints

with DecisionLog.open(sys.argv[1]) as log:
    failpoints.declare("test.decided", "between the effect and its outcome")
    failpoints.arm(sys.argv[2], "kill")
    with log.deciding(Decision("record.release", sys.argv[2], Operator("alice", CLI))) as made:
        print("carried out", flush=True)
        failpoints.hit("test.decided")
"""
PROCESSES, EACH = 4, 12


@pytest.mark.slow
@pytest.mark.fault("entries-fork")
def test_entries_of_several_processes_are_one_chain(world: World) -> None:
    """
    They all begin at once, on an empty log: nobody's entry is lost, none has the same predecessor as another.
    """
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, world.url, f"writer-{number}", str(EACH)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number in range(PROCESSES)
    ]  # fmt: skip
    for one in writers:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in writers:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    ended = [one.communicate(timeout=300) for one in writers]
    assert [one.returncode for one in writers] == [0] * PROCESSES, ended
    with world.open() as log:
        report, found = log.verify(), log.find()

    assert (report.entries, report.findings) == (2 * PROCESSES * EACH, [])
    assert len({one.subject for one in found}) == PROCESSES * EACH
    assert {one.outcome for one in found} == {"done"}
    [(previous,)] = world.execute("SELECT count(DISTINCT previous) FROM onceward_audit_entries")
    assert previous == 2 * PROCESSES * EACH


POINTS = {
    "audit.intent.before": (False, None),
    "audit.intent.written": (False, None),
    "audit.intent.after": (False, "not known"),
    "test.decided": (True, "not known"),
    "audit.outcome.before": (True, "not known"),
    "audit.outcome.written": (True, "not known"),
    "audit.outcome.after": (True, "done"),
}
"""Where one is killed: whether it was carried out, and what the log says of it (None: nothing)."""


@pytest.mark.slow
@pytest.mark.fault("a-decision-is-carried-out-before-it-is-written")
def test_a_kill_at_any_step_leaves_a_trace_of_what_was_carried_out(world: World) -> None:
    """
    Nothing was carried out without an intent in the log. Whether an intent without an outcome was carried out is not
    known, and the log says no more than that. The chain is whole, and the next decision goes on with it.
    """
    with world.open() as log:
        decide(log)
        for point, (carried_out, says) in POINTS.items():
            done = subprocess.run(
                [sys.executable, "-c", KILLED, world.url, point],
                capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip
            found = [one for one in log.find() if one.subject == point]
            shown = [(one.outcome or "not known") for one in found]

            assert done.returncode == -9, done.stderr
            assert (done.stdout == "carried out\n", shown) == (carried_out, [] if says is None else [says]), point
            assert log.verify().findings == []
        decide(log)
        assert log.verify().findings == []


def test_threads_share_a_log(log: DecisionLog) -> None:
    """
    The service decides in threads, through one log.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda number: decide(log, subject=f"r{number}"), range(24)))

    assert (log.verify().entries, log.verify().findings, len(log.find())) == (48, [], 24)
