"""
The first commands, `make serve` and `make test`: they set themselves up, say what they do, and if they cannot, what to
type.

What is not here (an old Python, one without venv) is played by small programs under its name.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from distribution_support import ROOT

MAKE = shutil.which("make") or "make"
MEGABYTES_MAX = 60
TOOLS = ("sh", "bash", "mkdir", "date", "du", "cut", "tail", "grep", "head", "env", "rm", "cat")
"""What the script is made of, besides a Python."""
WAIT_SECONDS = 300

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="NOT TESTED HERE: no make on this machine")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder that is the whole PATH: the usual tools, and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(str(shutil.which(tool)))
    return folder


def program(path: Path, name: str, text: str) -> None:
    """A program of that name on the PATH."""
    (path / name).write_text(f"#!/bin/sh\n{text}\n")
    (path / name).chmod(0o755)


def made(path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`make`, as a newcomer types it, with nothing else on the PATH."""
    kept = {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "HOME", "SSL_", "ONCEWARD_RUN"))
    }
    return subprocess.run(
        [MAKE, "--no-print-directory", *arguments],
        cwd=ROOT, env={**kept, "PATH": str(path), **environment}, capture_output=True, text=True, check=False,
        timeout=WAIT_SECONDS,
    )  # fmt: skip


OLD = 'case "$*" in *print*) echo 3.9.2 ;; *) exit 1 ;; esac'


class TestPython:
    """The Python that is there will not do."""

    @pytest.mark.fault("an-old-python-is-found-out-by-a-traceback")
    @pytest.mark.parametrize("target", ["serve", "test"])
    def test_an_old_one_with_a_newer_beside_it(self, target: str, path: Path, tmp_path: Path) -> None:
        """
        The newer one is named as it can be typed; one that does not run is passed over.
        """
        program(path, "python3", OLD)
        program(path, "python3.14", "exit 127")
        program(path, "python3.12", "exit 0")
        said = made(path, target, f"SERVE_VENV={tmp_path}/serve", f"VENV={tmp_path}/venv")

        assert said.returncode == 2
        assert f"make {target}: python3 is Python 3.9.2, and Onceward needs 3.11 or later. Type:" in said.stderr
        assert f"\n  make {target} PYTHON=python3.12\n" in said.stderr
        assert [(tmp_path / name).exists() for name in ("serve", "venv")] == [False, False]

    def test_an_old_one_alone(self, path: Path, tmp_path: Path) -> None:
        """
        How to get a newer one, and how to name it then.
        """
        program(path, "python3", OLD)
        said = made(path, "serve", f"SERVE_VENV={tmp_path}/serve").stderr

        assert "python3 is Python 3.9.2, and Onceward needs 3.11 or later. Install one:" in said
        assert "sudo apt install python3 python3-venv" in said
        assert "make serve PYTHON=python3.13" in said

    def test_none_at_all(self, path: Path, tmp_path: Path) -> None:
        """
        The same; or the name of one that is there under another name.
        """
        nothing = made(path, "serve", f"SERVE_VENV={tmp_path}/serve").stderr
        program(path, "python3.11", "exit 0")
        other = made(path, "serve", f"SERVE_VENV={tmp_path}/serve").stderr

        assert "there is no python3 that runs. Install Python 3.11 or later:" in nothing
        assert "\n  make serve PYTHON=python3.11\n" in other

    def test_one_without_the_module_for_environments(self, path: Path, tmp_path: Path) -> None:
        """
        As Debian's is without python3-venv: which package to install, with its version.
        """
        program(path, "python3", f'case "$*" in *ensurepip*) exit 1 ;; esac\nexec {sys.executable} "$@"')
        said = made(path, "serve", f"SERVE_VENV={tmp_path}/serve")

        minor = f"{sys.version_info.major}.{sys.version_info.minor}"
        assert said.returncode == 2
        assert f"\n  sudo apt install python{minor}-venv\n  make serve\n" in said.stderr
        assert not (tmp_path / "serve").exists()


def test_a_folder_that_cannot_be_written_to(path: Path) -> None:
    """
    Elsewhere, or make it yours: both can be typed.
    """
    program(path, "python3", f'exec {sys.executable} "$@"')
    said = made(path, "serve", "SERVE_VENV=/proc/nowhere/serve")

    assert said.returncode == 2
    assert "make serve: cannot write to /proc/nowhere/serve: " in said.stderr
    assert "\n  make serve SERVE_VENV=~/.cache/onceward/serve SERVE='--folder ~/onceward-data'\n" in said.stderr
    assert f"sudo chown -R \"$USER\" '{ROOT}'" in said.stderr


def test_a_port_in_use_is_told_as_it_is_typed_here(tmp_path: Path) -> None:
    """
    Settings of the service are typed differently under make: it says so.
    """
    (tmp_path / "ready").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        folder = sysconfig.get_path("scripts").removesuffix("/bin")
        settings = f"SERVE=--port {port} --folder {tmp_path}/data"
        said = made(Path("/usr/bin:/bin"), "serve", f"SERVE_VENV={folder}", f"SERVE_STAMP={tmp_path}/ready", settings)

    assert f"cannot listen on 127.0.0.1:{port}: " in said.stderr
    assert f"--port {port + 1}" in said.stderr
    assert "Settings are typed like this: make serve SERVE='--port 8601'" in said.stderr


@pytest.mark.slow
@pytest.mark.fault("a-half-made-environment-is-taken-for-a-whole-one")
def test_pip_that_fails_is_quoted_and_the_next_try_begins_where_it_must(tmp_path: Path) -> None:
    """
    An environment without pip, as Debian leaves it behind, is made anew; then there is no index, and it says so.
    """
    place = tmp_path / "serve"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (tmp_path / "empty").mkdir()
    nothing = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "empty"), "PIP_CONFIG_FILE": os.devnull}
    said = made(Path("/usr/bin:/bin"), "serve", f"SERVE_VENV={place}", f"PYTHON={sys.executable}", **nothing)

    assert "  1 of 2: an environment of its own in" in said.stdout
    assert "make serve: pip could not install what serving needs. It said:" in said.stderr
    assert "No matching distribution found for hatchling" in said.stderr
    assert f"All of it is in {place}/install.log." in said.stderr
    assert not (place / ".ready").exists()


@pytest.mark.slow
def test_it_sets_itself_up_says_so_and_serves(tmp_path: Path) -> None:
    """
    From nothing, as a newcomer: each step is said before it is done, the size when it is done, and it is a small one.
    The second time there is nothing to set up.
    """
    place, data = tmp_path / "serve", tmp_path / "data"
    first = served(place, data)
    if "pip could not install" in first:
        pytest.skip(f"NOT TESTED HERE: pip reaches no index ({first[-300:]})")
    second = served(place, data)
    kilobytes = subprocess.run(["du", "-sk", str(place)], capture_output=True, text=True, check=True).stdout.split()[0]

    order = [
        "make serve: setting itself up, once",
        "1 of 2: ",
        "2 of 2: what ",
        "  ready: ",
        "Onceward is listening on",
    ]
    assert [first.find(one) for one in order] == sorted(first.find(one) for one in order)
    assert all(one in first for one in order), first
    told = re.search(r"ready: (\d+) MB", first)
    assert told is not None
    assert int(told[1]) < MEGABYTES_MAX
    assert int(kilobytes) < MEGABYTES_MAX * 1024
    assert len(re.findall(r"^  curl ", first, re.MULTILINE)) == len(re.findall(r"^  curl ", second, re.MULTILINE)) == 3
    assert "setting itself up" not in second
    assert f"{place}/bin/onceward token create --tenant demo" in second.replace(
        os.path.relpath(place, ROOT), str(place)
    )


def served(place: Path, data: Path) -> str:
    """What `make serve` prints until it listens; then it is stopped, as by Ctrl-C."""
    command = [MAKE, "--no-print-directory", "serve", f"SERVE_VENV={place}", f"PYTHON={sys.executable}"]
    process = subprocess.Popen(
        [*command, f"SERVE=--port 0 --folder {data} --first-token stdout"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if "Stop with Ctrl-C" in line:
            os.killpg(process.pid, signal.SIGINT)
    process.wait(WAIT_SECONDS)
    process.stdout.close()
    return text


def test_make_test_says_what_it_installs_and_how_long_it_takes() -> None:
    """
    Before it begins; nothing is run here.
    """
    dry = [MAKE, "-n", "test", "STAMP=no-such-environment/.ready", "VENV=no-such-environment"]
    planned = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    installs = next(line for line in planned.splitlines() if "make_environment.sh" in line)

    assert re.search(r"\d+ packages, \d+ MB; .*minute", installs)
    assert "-c requirements/constraints.txt -r requirements/dev.txt" in installs
    assert re.search(r'^echo "make test: .*minutes', planned, re.MULTILINE)
    assert planned.index("make test: ") < planned.index("ruff check")
