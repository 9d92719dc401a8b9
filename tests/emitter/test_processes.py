"""Real processes: killed, forked, ended, and side by side. Nothing is lost, and no key changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from onceward import Cadence, Emitter, Gate, Item, Retry
from onceward.environment import REAL
from onceward.stores import open_store
from onceward.testing.clock import StillEnvironment

# Each process gets the folder and what it is to do. What is sent is one line per item in the file `world`.
_PROGRAM = """
import os, signal, sys
from pathlib import Path
from onceward import Cadence, Emitter, Gate, Retry, failpoints

folder, what, first, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def send(items):
    with (folder / "world").open("a") as world:
        world.write("".join(f"{item.key} {item.data['number']}\\n" for item in items))

gate = Gate(f"sqlite:///{folder}/spool.db", scope="live:acme")
emitter = Emitter(gate, "usage", send, reference="usage:{number}", retry=Retry(), cadence=Cadence(size=10, seconds=60),
                  timer=what == "both")
if what.startswith("emit."):
    failpoints.arm(what, "kill", skip=15)
for number in range(first, last):
    emitter.emit({"number": number})
    if what == "both" and number % 10 == 9:
        emitter.tick()
if what == "fork":
    child = os.fork()
    if child == 0:
        assert emitter.flush().sent == 0
        emitter.emit({"number": 1_000})
        sys.exit(0 if emitter.flush().sent == 1 else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
if what.startswith("emit."):
    emitter.flush()
if what == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def _process(folder: Path, what: str, first: int, last: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _PROGRAM, str(folder), what, str(first), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _ended(process: subprocess.Popen[bytes]) -> int:
    _, said = process.communicate(timeout=60)
    if process.returncode > 0:
        raise AssertionError(said.decode())
    return process.returncode


def _world(folder: Path) -> list[str]:
    world = folder / "world"
    return world.read_text().splitlines() if world.exists() else []


def _restarted(folder: Path, hours: int = 1, **options: Any) -> list[str]:
    """An emitter of the same name, when every lease of the dead one has lapsed; what it sent."""
    later = StillEnvironment(wall_us=REAL.wall_us() + hours * 3_600_000_000)
    sent: list[str] = []

    def send(items: list[Item]) -> None:
        sent.extend(f"{item.key} {item.data['number']}" for item in items)

    with (
        Gate(
            open_store(f"sqlite:///{folder}/spool.db", environment=later),
            scope="live:acme",
            environment=later,
            **options,
        ) as gate,
        Emitter(
            gate,
            "usage",
            send,
            reference="usage:{number}",
            retry=Retry(environment=later),
            cadence=Cadence(size=10, seconds=60),
            timer=False,
        ) as emitter,
    ):
        emitter.tick()
        emitter.flush()
    return sent


def _lines(*numbers: int) -> list[str]:
    return [f"live:usage:{number} {number}" for number in numbers]


class TestKilled:
    """kill -9."""

    def test_what_was_emitted_is_sent_after_a_restart(self, tmp_path: Path) -> None:
        """
        Killed with 25 items in the spool and none sent: all 25 arrive, once, under the keys they had.
        """
        killed = _ended(_process(tmp_path, "kill", 0, 25))
        sent = _restarted(tmp_path)

        assert -signal.SIGKILL == killed
        assert [] == _world(tmp_path)
        assert _lines(*range(25)) == sorted(sent, key=lambda line: int(line.split()[1]))
        assert [] == _restarted(tmp_path)

    @pytest.mark.parametrize(
        ("failpoint", "taken"),
        [
            ("emit.before", 15),  # The sixteenth emit did not get as far as the store.
            ("emit.after", 16),  # It did, and its caller never heard.
            ("emit.settle.before", 25),  # Sent, not all settled: those are sent again.
            ("emit.settle.after", 25),
        ],
    )
    def test_killed_anywhere_nothing_is_lost_and_no_key_changes(
        self, tmp_path: Path, failpoint: str, taken: int
    ) -> None:
        """
        Every item that the store took arrives at least once, and all its deliveries are alike.
        """
        killed = _ended(_process(tmp_path, failpoint, 0, 25))
        before = _world(tmp_path)
        after = _restarted(tmp_path)

        assert -signal.SIGKILL == killed
        assert set(_lines(*range(taken))) == {*before, *after}
        assert len(after) == len(set(after))
        assert [] == _restarted(tmp_path)

    def test_the_check_can_fail(self, tmp_path: Path) -> None:
        """
        Without the time in which leases lapse, and without a look at who is dead, a restart finds nothing to take.
        """
        _ended(_process(tmp_path, "kill", 0, 5))

        assert [] == _restarted(tmp_path, hours=0, takeover="lease")

    def test_a_restart_sees_that_the_process_is_dead(self, tmp_path: Path) -> None:
        """
        On the same host nobody waits for its leases.
        """
        _ended(_process(tmp_path, "kill", 0, 5))

        assert _lines(*range(5)) == sorted(_restarted(tmp_path, hours=0))


class TestEnding:
    """A process that ends, or forks."""

    def test_a_process_that_ends_sends_what_waits(self, tmp_path: Path) -> None:
        """
        Nobody closed the emitter: the interpreter's exit does.
        """
        _ended(_process(tmp_path, "exit", 0, 5))

        assert _lines(*range(5)) == _world(tmp_path)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
    def test_a_forked_child_leaves_its_parents_items_alone(self, tmp_path: Path) -> None:
        """
        It has a spool of its own; what the parent took, the parent sends, once.
        """
        _ended(_process(tmp_path, "fork", 0, 5))

        assert sorted(_lines(1_000, *range(5))) == sorted(_world(tmp_path))


def test_two_processes_share_a_spool(tmp_path: Path) -> None:
    """
    Both emit the same hundred items and send on their own cadence: each item is sent once, by one of them.
    """
    both = [_process(tmp_path, "both", 0, 100) for _ in range(2)]
    ended = [_ended(one) for one in both]

    assert [0, 0] == ended
    assert Counter(_lines(*range(100))) == Counter(_world(tmp_path))
