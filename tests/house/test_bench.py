"""The benchmarks run, count what they say they count, and time nothing that does not work. No times are judged here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import postgres, redis

ROOT = Path(__file__).resolve().parents[2]

NUMBERS = {"raw": 13, "raw-batched": 14, "ours": 15, "record": 12}
"""Of databases on the tests' Redis: raw adapters have the same keys."""

TWICE = """
class Twice:
    '''Runs the effect again on a replay.'''

    def __init__(self, folder, work):
        self.work, self.kept = work, {}

    def fresh(self, key, request):
        self.kept.setdefault(key, self.work.effect())
        return self.kept[key]

    replay = fresh

    async def afresh(self, key, request):
        return self.fresh(key, request)

    areplay = afresh

    def close(self):
        pass
"""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("planted", None)


def test_a_short_run_prints_ratios_and_aims(tmp_path: Path) -> None:
    """
    One round of one group: a table per case, a verdict per aim, every slice in the JSON file, and medians kept.
    """
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "bench", "--quick", "--rounds", "1", "--only", "keys", "--no-peers"]

    kept = tmp_path / "kept.json"
    done = subprocess.run(
        [*command, "--json", str(out), "--save", str(kept)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )

    assert done.returncode == 0, done.stderr
    assert "### 2 KB with floats" in done.stdout
    assert sum(line.startswith(("aim  met", "aim  MISSED")) for line in done.stdout.splitlines()) == 3
    keys: dict[str, Any] = json.loads(out.read_text())["keys"]
    assert keys["broken"] == {}
    assert set(keys["tables"]["200B"]["slices"]) == {"json", "ours", "ours-pure", "rfc8785"}
    found = json.loads(kept.read_text())["keys"]
    assert set(found["tables"]["200B"]["measured"]) == set(keys["tables"]["200B"]["slices"])
    assert (found["rounds"], found["peers"], len(found["aims"])) == (1, False, 3)
    assert {"before", "during"} == set(found["load"])


@pytest.mark.parametrize(
    ("group", "name"),
    [
        *(("SQLITE", name) for name in ("raw", "raw-group", "record", "record-group", "ours")),
        *(("METRICS", name) for name in ("ours-listening", "ours-metrics", "ours-journal", "hand-journal")),
    ],
)
def test_every_shape_of_slice_runs(group: str, name: str, tmp_path: Path) -> None:
    """
    In a process of its own, each shape does something, and its effects add up (the worker refuses them otherwise).
    """
    from bench import adapters
    from bench.interleave import Worker

    known = getattr(adapters, group)[name]
    files = "separate" if known.separate else "shared"
    worker = Worker(name, sys.executable, "bench.slices:Slices", tmp_path, known.place, files)
    try:
        done = {case: worker.ask(f"slice {case} 0.01")["operations"] for case in known.cases}
    finally:
        worker.quit()

    assert all(operations >= 1 for operations in done.values())


@pytest.mark.parametrize(
    ("group", "name"),
    [
        *((group, name) for group in ("POSTGRES", "REDIS") for name in ("raw", "raw-batched", "ours")),
        *((group, "record") for group in ("POSTGRES", "REDIS")),
    ],
)
def test_every_shape_of_slice_runs_against_a_server(group: str, name: str, tmp_path: Path) -> None:
    """
    The same against PostgreSQL and Redis: the driver alone, and ours.
    """
    from bench import adapters
    from bench.interleave import Worker

    known = getattr(adapters, group)[name]
    server = redis.running().url().partition("?")[0].rpartition("/")[0]
    url = _database() if group == "POSTGRES" else f"{server}/{NUMBERS[name]}"
    worker = Worker(name, sys.executable, "bench.slices:Slices", tmp_path, known.place, "shared", url)
    try:
        done = {case: worker.ask(f"slice {case} 0.01")["operations"] for case in known.cases}
    finally:
        worker.quit()

    assert all(operations >= 1 for operations in done.values())


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_tables_of_growth_have_something_to_purge(kind: str, tmp_path: Path) -> None:
    """
    Rows are made by hand, in the columns of today: of a hundred, ten are deleted and ten shrunk.
    """
    from bench.filling import fill

    from onceward import Gate

    server = redis.running().url().partition("?")[0].rpartition("/")[0]
    url = {"sqlite": f"sqlite:///{tmp_path}/a.db", "postgres": _database(), "redis": f"{server}/{NUMBERS['ours']}"}[
        kind
    ]
    url += f"?prefix=growth_{os.urandom(4).hex()}" if kind == "redis" else ""
    with Gate(url, scope="live:acme") as gate:
        gate.records.get("nothing")  # The tables are there.
        fill(url, 100)
        first, second = gate.purge(100), gate.purge(100)

    assert (first.forgotten, first.shrunk) == (10, 10)
    assert (second.forgotten, second.shrunk) == (0, 0)


@pytest.mark.parametrize("name", ["bare", "hand", "hand-pipelined", "hand-record", "ours"])
def test_atomic_mode_is_measured_against_the_same_by_hand(name: str, tmp_path: Path) -> None:
    """
    Both write a row and a key in one transaction, in every shape that is measured.
    """
    from bench import adapters
    from bench.interleave import Worker
    from bench.work import SETTLED

    known, url = adapters.ATOMIC[name], _database()
    worker = Worker(name, sys.executable, "bench.slices:Slices", tmp_path, known.place, "shared", url)
    try:
        done = sum(worker.ask(f"count {case} 5")["operations"] for case in known.cases if case.startswith("fresh"))
    finally:
        worker.quit()
    [(charges,)] = postgres.running().execute("SELECT count(*) FROM charges", url.rpartition("/")[2])

    assert done == 10
    before = 1 if name == "bare" else SETTLED + 2  # Settled before anything is timed, and checked in either colour.
    assert int(str(charges)) == done + before


def _database() -> str:
    """The URL of an empty database."""
    name = f"bench_{os.urandom(6).hex()}"
    postgres.running().execute(f"CREATE DATABASE {name}")
    return postgres.running().url(name)


def test_a_delay_is_a_delay() -> None:
    """
    What is sent through the proxy arrives that much later, each way, and arrives whole.
    """
    from bench.delay import delayed

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        delayed(listener.getsockname()[1], 0.02) as port,
        socket.create_connection(("127.0.0.1", port)) as near,
    ):
        far, _ = listener.accept()
        begin = time.monotonic()
        near.sendall(b"question")
        asked = far.recv(100)
        far.sendall(b"answer")
        answered = near.recv(100)
        took = time.monotonic() - begin
        far.close()

    assert (asked, answered) == (b"question", b"answer")
    assert took >= 0.04


def test_an_adapter_that_runs_an_effect_twice_is_not_timed(tmp_path: Path) -> None:
    """
    It is reported as broken before the first slice.
    """
    from bench.slices import Slices
    from bench.worker import Broken

    (tmp_path / "planted.py").write_text(TWICE)
    slices = Slices(tmp_path, "planted:Twice", "shared")

    with pytest.raises(Broken, match="4 effects for one key"):
        slices.check()
    slices.close()


@pytest.mark.parametrize(("separate", "one", "crowd"), [("separate", 4, 5), ("shared", 9, 9)])
def test_one_caller_has_a_file_apart_from_that_of_a_crowd(tmp_path: Path, separate: str, one: int, crowd: int) -> None:
    """
    What threads and tasks write makes no longer table for one caller, where an adapter has files of its own.
    """
    from bench.slices import Slices

    (tmp_path / "planted.py").write_text(TWICE)
    slices: Any = Slices(tmp_path, "planted:Twice", separate)
    for case, operations in (("fresh_seq", 3), ("fresh_aseq", 1), ("fresh_thr", 2), ("fresh_task", 3)):
        slices.count(case, operations)

    assert (len(slices._adapter.kept), len(slices._crowd.kept)) == (one, crowd)
    slices.close()


def test_syncs_are_counted_between_marks() -> None:
    """
    What stands before, after and between batches does not count, nor does the second half of an interrupted line.
    """
    from bench.fsyncs import syncs_between_marks

    log = """\
7 fsync(3) = 0
7 getsid(0) = 1
7 fdatasync(4) = 0
8 fsync(4 <unfinished ...>
8 <... fsync resumed>) = 0
7 getsid(0) = 1
7 fsync(3) = 0
7 getsid(0) = 1
7 getsid(0) = 1
"""

    assert syncs_between_marks(log) == [2, 0]


def test_a_ratio_is_taken_within_its_round() -> None:
    """
    A round in which everything was slow says as much as one in which everything was fast.
    """
    from bench.interleave import Slice, Table

    table = Table("fresh_seq", "raw")
    table.slices = {
        "raw": [Slice(100, 1.0, 0.5), Slice(1000, 1.0, 0.5), Slice(10, 1.0, 0.5)],
        "ours": [Slice(90, 1.0, 0.5), Slice(900, 1.0, 0.5), Slice(5, 1.0, 0.5)],
        "half": [Slice(90, 1.0, 0.5)],
    }

    assert table.ratio("ours") == 0.9
    assert table.ratio("half") is None
