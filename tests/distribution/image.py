"""
A Dockerfile carried out without Docker, and what a compose file starts: a folder in place of an image.

    image = carried_out(ROOT / "Dockerfile", folder)
    process = image.start(["onceward", "serve"], {"ONCEWARD_SERVE_PORT": "8600"})

Docker's own parser reads the file. FROM is an empty folder, with the Python of the tests in place of the base image's;
COPY takes what .dockerignore lets through; RUN is run by sh, with absolute paths inside the folder. Ownership is not
changed: what is started finds itself to be USER, by a user namespace, and everything here belongs to it.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dockerfile
import pytest

INSIDE = re.compile(r"(?P<before>^|[\s=:'\"])/(?=(?:opt|var|build|prepare\.py|relay\.toml)\b)")
"""Where an absolute path of the image begins."""
OWNER = re.compile(r" -[og] \d+")
OFFLINE = re.compile(r"No matching distribution|Could not find a version|NewConnectionError|Temporary failure")


@dataclass
class Image:
    """What the instructions came to so far."""

    root: Path
    base: Path
    """A folder with `python`: the base image's."""
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "root"
    command: list[str] = field(default_factory=list)
    healthcheck: list[str] = field(default_factory=list)
    stop_signal: str = ""
    ports: list[str] = field(default_factory=list)

    def inside(self, text: str) -> str:
        """A text with the image's absolute paths as they are here."""
        return INSIDE.sub(lambda found: f"{found['before']}{self.root}/", text)

    def variables(self, more: dict[str, str] | None = None) -> dict[str, str]:
        """The environment of a process in it: nothing of ours but what ends it with the run, and pip's settings."""
        kept = {name: value for name, value in os.environ.items() if name.startswith(("ONCEWARD_RUN", "PIP_", "SSL_"))}
        path = f"{self.base}:/usr/local/bin:/usr/bin:/bin"
        image = {name: self.inside(value).replace("$PATH", path) for name, value in self.environment.items()}
        return {**kept, "PATH": path, **image, **(more or {})}

    def start(self, command: list[str], variables: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
        """A container: this command, as its user, in its folder."""
        as_user: list[str] = []
        if os.geteuid() == 0 and shutil.which("unshare"):
            user, _, group = self.user.partition(":")
            as_user = ["unshare", "-U", f"--map-user={user}", f"--map-group={group or user}"]
        with log.open("ab") as opened:
            return subprocess.Popen(
                [*as_user, *map(self.inside, command)],
                cwd=self.root / self.folder.lstrip("/"),
                env=self.variables(variables),
                stdout=opened,
                stderr=opened,
                stdin=subprocess.DEVNULL,
            )


def context(root: Path) -> list[Path]:
    """The files that .dockerignore lets through; the last line that matches decides."""
    lines = [one for one in (root / ".dockerignore").read_text().splitlines() if one and not one.startswith("#")]

    def is_let_through(path: str) -> bool:
        found = True
        for line in lines:
            if any(fnmatch.fnmatch(path, one) for one in _patterns(line.removeprefix("!"))):
                found = line.startswith("!")
        return found

    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others"], cwd=root, check=False, capture_output=True
    ).stdout.decode()
    paths = filter(None, listed.split("\0")) if listed else _walked(root)
    return [Path(one) for one in paths if is_let_through(one) and (root / one).is_file()]


def _walked(root: Path) -> list[str]:
    found = []
    for folder, below, names in os.walk(root):
        below[:] = [one for one in below if not one.startswith((".venv", ".git", ".node"))]
        found += [os.path.relpath(Path(folder) / name, root) for name in names]
    return found


def _patterns(line: str) -> list[str]:
    """A line of .dockerignore for fnmatch: a folder's name is for all that is in it."""
    plain = [line, line.removeprefix("**/")] if line.startswith("**/") else [line]
    anywhere = [f"*/{one}" for one in plain[1:]]
    return [pattern for one in (*plain, *anywhere) for pattern in (one, f"{one}/*")]


def carried_out(file: Path, folder: Path) -> Image:
    """The last stage of a Dockerfile."""
    base, root = folder / "base", folder / "root"
    base.mkdir()
    (base / "python").write_text(f'#!/bin/sh\nexec {sys._base_executable} "$@"\n')
    (base / "python").chmod(0o755)
    stages: dict[str, Path] = {}
    image = Image(root, base)
    for one in dockerfile.parse_file(str(file)):
        if one.cmd.upper() == "FROM":
            # Every stage is at the same place, as it is in Docker: what was installed knows its path.
            if root.exists():
                name = next(iter(stages.keys() - {key for key, place in stages.items() if place != root}))
                stages[name] = root.rename(folder / name)
            root.mkdir()
            image = Image(root, base)
            stages[one.value[2] if len(one.value) > 2 else "last"] = root
        else:
            _carry_out(one, image, file.parent, stages)
    return image


def _carry_out(one: Any, image: Image, clone: Path, stages: dict[str, Path]) -> None:
    here = image.root / image.folder.lstrip("/")
    match one.cmd.upper():
        case "WORKDIR":
            image.folder = one.value[0]
            (image.root / image.folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "COPY":
            _copy(one, here, image.root, clone, stages)
        case "RUN":
            _run(image, here, OWNER.sub("", one.value[0]))
        case "ENV":
            image.environment |= dict(zip(one.value[::2], one.value[1::2], strict=True))
        case "USER":
            image.user = one.value[0]
        case "CMD":
            image.command = list(one.value)
        case "HEALTHCHECK":
            image.healthcheck = list(one.value[1:])
        case "STOPSIGNAL":
            image.stop_signal = one.value[0]
        case "EXPOSE":
            image.ports += one.value
        case "VOLUME":
            assert (image.root / one.value[0].lstrip("/")).is_dir()
        case other:
            raise AssertionError(f"{other}: this file does not know how to carry it out")


def _copy(one: Any, here: Path, root: Path, clone: Path, stages: dict[str, Path]) -> None:
    *sources, target = one.value
    place = root / target.lstrip("/") if target.startswith("/") else here / target
    for flag in one.flags:
        source = stages[flag.removeprefix("--from=")] / sources[0].lstrip("/")
        shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True)
        return
    known = context(clone)
    for source in sources:
        files = [file for file in known if file == Path(source) or Path(source) in file.parents]
        assert files, f"COPY {source}: .dockerignore lets nothing of it through"
        for file in files:
            is_folder = (clone / source).is_dir()
            to = place / file.relative_to(source) if is_folder else place / file.name
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(clone / file, to)


def _run(image: Image, here: Path, text: str) -> None:
    # Whether pip keeps what it fetched is about the size of an image.
    command = image.inside(text).replace("--no-cache-dir ", "")
    done = subprocess.run(
        ["sh", "-c", command], cwd=here, env=image.variables(), capture_output=True, text=True, check=False
    )
    if done.returncode and OFFLINE.search(done.stderr):
        pytest.skip(f"NOT TESTED HERE: pip reaches no index ({done.stderr.strip()[-200:]})")
    assert done.returncode == 0, done.stdout + done.stderr
