"""What a run of the tests leaves behind: nothing, however it ends. And what it tells of itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from timing import reaches_a_clock

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS_MAX = 60

RUN = """
import os, subprocess, sys
from pathlib import Path
from servers import ending, postgres, redis
ending.begin()
ours = ending.folder("onceward-ending-")
ending.watch(ours)  # As a server does with its folder.
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
watched = Path(sys.argv[1])
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], cwd=watched, env={})
ending.watch(watched)
pids = [child.pid, other.pid]
for name in sys.argv[2].split(","):
    if name == "postgres":
        server = postgres.running()
        server.freeze()
        pids += [server._process.pid, *postgres._children(server._process.pid)]
    if name == "redis":
        pids.append(redis.running()._process.pid)
print(ours, *pids, flush=True)
if sys.argv[3] == "exit":
    os._exit(1)
sys.stdin.read()
"""


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def until(condition: object, *arguments: object) -> bool:
    """Wait, with patience, until something is so."""
    give_up = time.monotonic() + SECONDS_MAX
    while not (so := condition(*arguments)) and time.monotonic() < give_up:  # type: ignore[operator]
        time.sleep(0.02)
    return bool(so)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system does not tell what runs")
@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "exit"])
def test_what_a_run_started_ends_with_it_and_its_folders_go(tmp_path: Path, how: str) -> None:
    """
    Killed, asked to end, or gone without tidying: servers (also frozen ones), their children, other processes and the
    run's own folders are no more. A folder of somebody else's stays.
    """
    servers = ",".join({"postgres", "redis"} & {*os.environ.get("STORES", "postgres,redis").split(",")})
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path), servers, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
    )
    assert run.stdout is not None and run.stdin is not None
    folder, *pids = run.stdout.readline().split()
    if how != "exit":
        run.send_signal(signal.Signals[how])
    run.wait(SECONDS_MAX)
    run.stdout.close()
    run.stdin.close()

    assert len(pids) >= 2
    assert until(lambda: all(is_gone(int(pid)) for pid in pids))
    assert until(lambda: not Path(folder).exists())
    assert tmp_path.is_dir()


def sleeps() -> None:
    time.sleep(0)


class Helper:
    def waits(self) -> None:
        time.monotonic()

    def reckons(self) -> int:
        return 1


def test_a_test_is_marked_if_it_or_its_helpers_look_at_a_clock() -> None:
    """
    By what it runs: its own body, functions and methods of helpers that it names. Nothing else counts.
    """

    def by_function() -> None:
        sleeps()

    def by_method() -> None:
        Helper().waits()

    def by_text() -> str:
        return "postgresql://?onceward_lock_timeout=0.3"

    def not_at_all() -> int:
        return Helper().reckons()

    assert [reaches_a_clock(one) for one in (by_function, by_method, by_text, not_at_all)] == [True, True, True, False]


def test_the_mark_is_there_when_tests_are_chosen(request: pytest.FixtureRequest) -> None:
    """
    Given while collecting, before `-m` chooses: on this test, which waits for nothing at all.
    """
    time.sleep(0)

    assert request.node.get_closest_marker("timing") is not None


def test_what_was_left_out_is_told_in_one_line(tmp_path: Path) -> None:
    """
    Each reason once, with how often.
    """
    for name in ("docs/reference/requirements.md", "tests/conftest.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "tests" / "test_some.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('n', range(3))\n"
        "def test_a(n):\n    pytest.skip('no server here')\n"
        "@pytest.mark.skip(reason='not today')\n"
        "def test_b():\n    pass\n"
        "def test_c():\n    pass\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-c",
            os.devnull,
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
    )
    told = re.findall(r"^left out .*$", done.stdout, re.MULTILINE)

    assert told == ["left out 4: 3 x no server here; 1 x not today"], done.stdout + done.stderr


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system does not tell what runs")
def test_the_load_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """
    `tools/loaded.py`, killed in the middle: no busy process stays.
    """
    (tmp_path / "test_waits.py").write_text("def test_waits():\n    import time\n    time.sleep(600)\n")
    command = [sys.executable, "tools/loaded.py", "--load", "2", "--jobs", "0", "--times", "1", str(tmp_path)]
    loaded = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def children() -> list[int]:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == loaded.pid:
                found.append(int(stat.parent.name))
        return found

    assert until(lambda: len(children()) >= 3)
    started = children()
    loaded.kill()
    loaded.wait(SECONDS_MAX)
    burners = [pid for pid in started if not is_gone(pid)]
    for pid in burners:
        if b"pytest" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)

    assert until(lambda: all(is_gone(pid) for pid in started))
