"""Real processes, in both colours: killed, forked, ended, and side by side. Nothing is lost, and no key changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from colours import COLOURS, Colour
from onceward import AsyncEmitter, AsyncGate, Emitter, Gate, Retry
from onceward.messaging.emitter import Cadence, Item
from onceward.runtime.environment import REAL
from onceward.stores import open_async_store, open_store
from onceward.testing.clock import StillEnvironment

_TESTS = str(Path(__file__).resolve().parents[2])

# Each process gets the folder and what it is to do. What is sent is one line per item in the file `world`.
_PROGRAM = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from colours import Colour
from onceward import AsyncEmitter, AsyncGate, Emitter, Gate, Retry
from onceward.messaging.emitter import Cadence; from onceward.runtime import failpoints

colour, folder, what = Colour(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
first, last = int(sys.argv[5]), int(sys.argv[6])

def send(items):
    with (folder / "world").open("a") as world:
        world.write("".join(f"{item.key} {item.data['number']}\\n" for item in items))

gate = colour.pick(Gate, AsyncGate)(f"sqlite:///{folder}/spool.db", scope="live:acme")
emitter = colour.pick(Emitter, AsyncEmitter)(
    gate, "usage", colour.coloured(send), reference="usage:{number}", retry=Retry(),
    cadence=Cadence(size=10, seconds=60), timer=what == "both",
)
if what.startswith("emit."):
    failpoints.arm(what, "kill", skip=15)
for number in range(first, last):
    colour.run(emitter.emit, {"number": number})
    if what == "both" and number % 10 == 9:
        colour.run(emitter.tick)
if what == "fork":
    child = os.fork()
    if child == 0:
        colour.forked()
        assert colour.run(emitter.flush).sent == 0
        colour.run(emitter.emit, {"number": 1_000})
        colour.exit_child(0 if colour.run(emitter.flush).sent == 1 else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
if what.startswith("emit."):
    colour.run(emitter.flush)
if what == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if what in ("both", "fork"):
    colour.run(emitter.close)
"""


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    """One of the two: see `colours`."""
    made = Colour(request.param)
    yield made
    made.close()


def _process(colour: Colour, folder: Path, what: str, first: int, last: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _PROGRAM, _TESTS, colour.name, str(folder), what, str(first), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _ended(process: subprocess.Popen[bytes]) -> int:
    _, said = process.communicate(timeout=60)
    if process.returncode > 0:
        raise AssertionError(said.decode())
    return process.returncode


def _world(folder: Path) -> list[str]:
    world = folder / "world"
    return world.read_text().splitlines() if world.exists() else []


def _restarted(colour: Colour, folder: Path, hours: int = 1, **options: Any) -> list[str]:
    """An emitter of the same name, when every lease of the dead one has lapsed; what it sent."""
    later = StillEnvironment(wall_us=REAL.wall_us() + hours * 3_600_000_000)
    sent: list[str] = []

    def send(items: list[Item]) -> None:
        sent.extend(f"{item.key} {item.data['number']}" for item in items)

    opened: Any = colour.pick(open_store, open_async_store)
    gates: Any = colour.pick(Gate, AsyncGate)
    emitters: Any = colour.pick(Emitter, AsyncEmitter)
    store = opened(f"sqlite:///{folder}/spool.db", environment=later)
    gate = gates(store, scope="live:acme", environment=later, **options)
    emitter = emitters(
        gate,
        "usage",
        colour.coloured(send),
        reference="usage:{number}",
        retry=Retry(environment=later),
        cadence=Cadence(size=10, seconds=60),
        timer=False,
    )
    colour.run(emitter.tick)
    colour.run(emitter.flush)
    colour.run(emitter.close)
    colour.run(gate.close)
    return sent


def _lines(*numbers: int) -> list[str]:
    return [f"live:usage:{number} {number}" for number in numbers]


class TestKilled:
    """kill -9."""

    def test_what_was_emitted_is_sent_after_a_restart(self, colour: Colour, tmp_path: Path) -> None:
        """
        Killed with 25 items in the spool and none sent: all 25 arrive, once, under the keys they had.
        """
        killed = _ended(_process(colour, tmp_path, "kill", 0, 25))
        sent = _restarted(colour, tmp_path)

        assert killed == -signal.SIGKILL
        assert _world(tmp_path) == []
        assert _lines(*range(25)) == sorted(sent, key=lambda line: int(line.split()[1]))
        assert _restarted(colour, tmp_path) == []

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
        self, colour: Colour, tmp_path: Path, failpoint: str, taken: int
    ) -> None:
        """
        Every item that the store took arrives at least once, and all its deliveries are alike.
        """
        killed = _ended(_process(colour, tmp_path, failpoint, 0, 25))
        before = _world(tmp_path)
        after = _restarted(colour, tmp_path)

        assert killed == -signal.SIGKILL
        assert set(_lines(*range(taken))) == {*before, *after}
        assert len(after) == len(set(after))
        assert _restarted(colour, tmp_path) == []

    def test_the_check_can_fail(self, colour: Colour, tmp_path: Path) -> None:
        """
        Without the time in which leases lapse, and without a look at who is dead, a restart finds nothing to take.
        """
        _ended(_process(colour, tmp_path, "kill", 0, 5))

        assert _restarted(colour, tmp_path, hours=0, takeover="lease") == []

    def test_a_restart_sees_that_the_process_is_dead(self, colour: Colour, tmp_path: Path) -> None:
        """
        On the same host nobody waits for its leases.
        """
        _ended(_process(colour, tmp_path, "kill", 0, 5))

        assert _lines(*range(5)) == sorted(_restarted(colour, tmp_path, hours=0))


class TestEnding:
    """A process that ends, or forks."""

    def test_what_waits_when_a_process_ends_is_not_lost(self, colour: Colour, tmp_path: Path) -> None:
        """
        Nobody closed the emitter. One that blocks is closed by the interpreter's exit, and sends; one that awaits has
        no loop any more, and what waits is for the next emitter of its name.
        """
        _ended(_process(colour, tmp_path, "exit", 0, 5))
        sent = _world(tmp_path)
        left = _restarted(colour, tmp_path, hours=0)

        assert (_lines(*range(5)) if not colour.awaits else []) == sent
        assert _lines(*range(5)) == sorted([*sent, *left])

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
    def test_a_forked_child_leaves_its_parents_items_alone(self, colour: Colour, tmp_path: Path) -> None:
        """
        It has a spool of its own; what the parent took, the parent sends, once.
        """
        _ended(_process(colour, tmp_path, "fork", 0, 5))

        assert sorted(_lines(1_000, *range(5))) == sorted(_world(tmp_path))


def test_two_processes_share_a_spool(colour: Colour, tmp_path: Path) -> None:
    """
    Both emit the same hundred items and send on their own cadence: each item is sent once, by one of them.
    """
    both = [_process(colour, tmp_path, "both", 0, 100) for _ in range(2)]
    ended = [_ended(one) for one in both]

    assert ended == [0, 0]
    assert Counter(_lines(*range(100))) == Counter(_world(tmp_path))
