"""Which process this is, and when another one is proved dead: on real processes, namespaces and mounts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from holder_support import this_process

from onceward._core.holders import UNKNOWN, Process, encode_process
from onceward.runtime import processes
from onceward.runtime.environment import Environment

SLEEPS = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
NAMES_ITSELF = """
from onceward.runtime import processes
print(processes.current_process().hex(), flush=True)
"""
FORKS = """
import os
from onceward.runtime import processes
print(processes.current_process().hex(), flush=True)
child = os.fork()
if child == 0:
    print(processes.current_process().hex(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(processes.current_process().hex())
"""
SEES_THE_DEAD = """
import subprocess
from onceward.runtime import processes
me = processes._this()[0]
child = subprocess.Popen(["sleep", "1000"])
alive = me._replace(pid=child.pid, began=processes._stat(str(child.pid))[2])
before = processes.lives(alive)
child.kill()
child.wait()
print(before, processes.lives(alive), me.place is not None)
"""


def unshared(*options: str, script: str) -> list[str]:
    """What a script prints in namespaces of its own; skipped where the system does not allow any."""
    root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *root, "--pid", "--fork", "--kill-child", *options]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"namespaces cannot be made here: {type(error).__name__}")
    ran = subprocess.run([*command, *script.split("\0")], capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.split()


def python(script: str) -> str:
    """A script as arguments for `unshared`."""
    return "\0".join((sys.executable, "-c", script))


@pytest.fixture
def child() -> Iterator[tuple[subprocess.Popen[bytes], Process]]:
    """A process that lives, and what it would say of itself."""
    with subprocess.Popen(SLEEPS, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"up\n"
        began = processes._stat(str(started.pid))[2]
        try:
            yield started, this_process()._replace(pid=started.pid, began=began)
        finally:
            started.kill()


def test_this_process_names_itself() -> None:
    """
    Host, id and beginning; and the same bytes every time, so that a claim costs nothing for it.
    """
    me = this_process()

    assert (os.uname().nodename, os.getpid()) == (me.host, me.pid)
    assert me.place is not None
    assert me.began_at > 0
    assert processes.current_process() is Environment().process()


@pytest.mark.fault("a-forked-child-takes-its-parents-name")
def test_a_forked_child_has_a_name_of_its_own() -> None:
    """
    Otherwise its claims would be its parent's, and be taken from it when the parent ends.
    """
    ran = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=True)
    parents, childs, parents_again = ran.stdout.split()

    assert parents == parents_again
    assert parents != childs


def test_a_process_that_lives_is_seen(child: tuple[Any, Process]) -> None:
    """
    And so is this one.
    """
    assert processes.lives(child[1]) is True
    assert processes.lives(this_process()) is True


def test_one_that_is_gone_is_dead(child: tuple[subprocess.Popen[bytes], Process]) -> None:
    """
    Nobody has its id any more.
    """
    started, process = child
    started.kill()
    started.wait()

    assert processes.lives(process) is False


@pytest.mark.fault("a-zombie-is-taken-for-alive")
def test_a_zombie_is_dead(child: tuple[subprocess.Popen[bytes], Process]) -> None:
    """
    Killed, and not yet fetched by its parent: it does nothing any more.
    """
    started, process = child
    started.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)

    assert processes._stat(str(started.pid))[0] == "Z"
    assert processes.lives(process) is False


@pytest.mark.fault("a-reused-pid-is-believed")
def test_an_id_that_was_given_again_is_somebody_else(child: tuple[Any, Process]) -> None:
    """
    The same id with another beginning: whoever had it before is dead.
    """
    process = child[1]

    assert processes.lives(process._replace(began=process.began - 1)) is False
    assert processes.lives(this_process()._replace(began=this_process().began - 1)) is False


def test_a_process_whose_first_thread_has_ended_lives() -> None:
    """
    The kernel calls its first thread a zombie; the others work on.
    """
    script = (
        "import ctypes, platform, sys, threading\n"
        "threading.Thread(target=sys.stdin.read).start()\n"
        "print('up', flush=True)\n"
        "ctypes.CDLL(None).syscall({'x86_64': 60}.get(platform.machine(), 93), 0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        while processes._stat(str(started.pid))[0] != "Z":
            threading.Event().wait(0.001)
        process = this_process()._replace(pid=started.pid, began=processes._stat(str(started.pid))[2])
        lives = processes.lives(process)
        started.kill()

    assert lives is True


@pytest.mark.parametrize("part", ["machine", "boot", "space"])
@pytest.mark.fault("a-process-elsewhere-is-judged-here")
def test_a_process_of_another_place_is_not_judged(part: str) -> None:
    """
    Another machine, another boot, other namespaces: its id means nothing here. Nor if one of them is not known.
    """
    nobody = this_process()._replace(pid=2**22 + 1)

    assert processes.lives(nobody) is False
    assert processes.lives(nobody._replace(**{part: b"another!"})) is None
    assert processes.lives(nobody._replace(**{part: UNKNOWN})) is None


@pytest.mark.parametrize("own_proc", [True, False], ids=["own-proc", "hosts-proc"])
def test_a_process_in_a_pid_namespace_of_its_own_is_not_judged(own_proc: bool) -> None:
    """
    A container: its process 1 is not ours. If it sees our /proc and not its own, it does not judge either.
    """
    mounts = ["--mount-proc"] if own_proc else []
    [name] = unshared(*mounts, script=python(NAMES_ITSELF))
    me = this_process()
    theirs = bytes.fromhex(name)
    place = theirs[16:24]

    assert encode_process(me)[:16] == theirs[:16]
    assert encode_process(me)[16:24] != place
    assert (place == UNKNOWN) is not own_proc
    assert processes.lives(me._replace(space=place, pid=1)) is None


@pytest.mark.parametrize(("hidepid", "seen"), [("0", "False"), ("1", "None"), ("2", "None")])
@pytest.mark.fault("a-proc-that-hides-is-believed")
def test_a_proc_that_hides_processes_proves_nobody_dead(hidepid: str, seen: str) -> None:
    """
    With hidepid, who is not to be seen may live; without, the same process is seen to be dead.
    """
    mount = f'mount -t proc -o hidepid={hidepid} proc /proc && exec "$0" -c "$1"'
    script = "\0".join(("sh", "-c", mount, sys.executable, SEES_THE_DEAD))

    assert ["True", seen, "True"] == unshared("--mount", "--propagation", "private", script=script)


@pytest.mark.parametrize("missing", ["machine-id", "boot_id", "status", "stat"])
def test_what_cannot_be_read_is_not_known(missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    Then nobody is judged from here, and nobody judges us; host and id are told all the same.
    """
    read_text, read_bytes, opening = Path.read_text, Path.read_bytes, Path.open

    def hiding(method: Callable[..., Any]) -> Callable[..., Any]:
        def read(path: Path, *arguments: Any, **options: Any) -> Any:
            if path.name == missing:
                raise PermissionError(path)
            return method(path, *arguments, **options)

        return read

    for name, method in (("read_text", read_text), ("read_bytes", read_bytes), ("open", opening)):
        monkeypatch.setattr(Path, name, hiding(method))
    found = processes._look()

    assert found.place is None
    assert os.getpid() == found.pid
    assert found.host == os.uname().nodename


def test_a_line_of_mountinfo_that_is_not_procs_proves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    Something else is mounted over /proc, or nothing is: who is not to be seen may live.
    """
    proc = tmp_path / "self"
    proc.mkdir()
    monkeypatch.setattr(processes, "PROC", tmp_path)
    verdicts = []
    for lines in (
        "22 27 0:21 / /proc rw - proc proc rw\n",
        "22 27 0:21 / /proc rw - proc proc rw\n30 22 0:40 / /proc rw - fuse lxcfs rw\n",
        "22 27 0:21 / /proc rw - proc proc rw,hidepid=invisible\n",
        "1 1 0:1 / / rw - ext4 root rw\n",
        "",
    ):
        (proc / "mountinfo").write_text(lines)
        verdicts.append(processes._shows_everybody())

    assert verdicts == [True, False, False, False, False]
