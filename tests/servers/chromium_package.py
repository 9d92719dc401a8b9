"""
Chromium from Debian's packages, unpacked into `build/chromium`: no root is needed, and nothing is installed.

    make chromium                   fetch it
    fetched()                       the same, once for all workers of a run; or why it cannot be had

`apt-get` names what this machine has not got, downloads it and checks its signatures; `dpkg` unpacks it. A machine that
is not Debian, or has no network, is told so in words: what needs a browser is left out there.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "chromium"
PACKAGES = ("chromium-common", "chromium-headless-shell", "fonts-dejavu-core", "fonts-liberation")
"""The browser without its windows, its data, and letters: unpacked also where they are installed, to stand together."""
SECONDS_MAX = 300
TELL = "`make chromium` fetches it from Debian's packages"


class Unpacked(NamedTuple):
    """A browser that was unpacked, and what it needs to be told."""

    program: str
    environment: dict[str, str]


class CannotFetch(Exception):
    """Why there is no browser."""


def fetched() -> Unpacked | str:
    """The browser, fetched if it is not there; or why not. Whoever comes first fetches it, and the others wait."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = FOLDER / "ready.json"
        try:
            if not ready.exists() or not Path(json.loads(ready.read_text())["program"]).exists():
                ready.write_text(json.dumps(_fetch()._asdict()))
            return Unpacked(**json.loads(ready.read_text()))
        except CannotFetch as error:
            return f"NOT TESTED HERE: there is no Chromium, and {error}; on Debian, {TELL}"


def _fetch() -> Unpacked:
    for needed in ("apt-get", "dpkg"):
        if shutil.which(needed) is None:
            raise CannotFetch(f"this machine has no {needed}")
    try:
        # The machine's own lists may be missing, or so old that what they name is gone: then lists of our own are read.
        unpacked = _unpack(())
    except CannotFetch:
        unpacked = _unpack(_own_lists())
    place = FOLDER / "root"
    # Some libraries are in a folder of their package (libpulsecommon), found by a path that is not the machine's here.
    above = [*place.glob("usr/lib/*-linux-gnu*"), *place.glob("lib/*-linux-gnu*")]
    libraries = sorted({str(file.parent) for one in above for file in (*one.glob("lib*.so*"), *one.glob("*/lib*.so*"))})
    environment = {"FONTCONFIG_FILE": str(_fonts(place))}
    if libraries:
        environment["LD_LIBRARY_PATH"] = ":".join(libraries)
    blank = ("--no-sandbox", "--disable-gpu", f"--user-data-dir={FOLDER}/first", "--dump-dom", "about:blank")
    ran = _ran([unpacked, *blank], environment)
    if ran.returncode != 0:
        raise CannotFetch(f"the one from Debian's packages does not start ({_last(ran)})")
    return Unpacked(unpacked, environment)


def _unpack(options: Sequence[str]) -> str:
    """Download and unpack what is missing; where the program is."""
    place, archives = FOLDER / "root", FOLDER / "archives"
    for one in (place, archives):
        shutil.rmtree(one, ignore_errors=True)
        one.mkdir()
    wanted = _ran(["apt-get", *options, "-s", "-q", "--no-install-recommends", "install", *PACKAGES])
    missing = {line.split()[1] for line in wanted.stdout.splitlines() if line.startswith("Inst ")}
    if wanted.returncode != 0:
        raise CannotFetch(f"apt-get knows none ({_last(wanted)})")
    loaded = _ran(["apt-get", *options, "-q", "download", *sorted(missing | set(PACKAGES))], folder=archives)
    if loaded.returncode != 0:
        raise CannotFetch(f"apt-get could not download it ({_last(loaded)})")
    for one in sorted(archives.glob("*.deb")):
        if _ran(["dpkg", "-x", str(one), str(place)]).returncode != 0:
            raise CannotFetch(f"{one.name} cannot be unpacked")
    shutil.rmtree(archives)
    names = ("chromium-headless-shell", "headless_shell")
    programs = [one for one in place.glob("usr/lib/chromium/*") if one.name in names]
    if not programs:
        raise CannotFetch("Debian's package has no program where it was")
    return str(programs[0])


def _own_lists() -> list[str]:
    """Options with which apt-get works on lists of our own, which are read anew."""
    state, cache = FOLDER / "apt" / "state", FOLDER / "apt" / "cache"
    for one in (state / "lists" / "partial", cache / "archives" / "partial"):
        one.mkdir(parents=True, exist_ok=True)
    options = [
        *("-o", f"Dir::State={state}", "-o", "Dir::State::status=/var/lib/dpkg/status", "-o", f"Dir::Cache={cache}"),
        *("-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=20"),
    ]
    _ran(["apt-get", *options, "-q", "update"])  # One of several sources may be away: what is missing shows later.
    return options


def _fonts(place: Path) -> Path:
    """A configuration in which every page has the same letters on every machine."""
    file = place / "fonts.conf"
    chosen = "".join(
        f"<alias binding='same'><family>{asked}</family><prefer><family>{ours}</family></prefer></alias>"
        for asked, ours in (
            ("system-ui", "Liberation Sans"),
            ("sans-serif", "Liberation Sans"),
            ("ui-monospace", "DejaVu Sans Mono"),
            ("monospace", "DejaVu Sans Mono"),
        )
    )
    file.write_text(
        "<?xml version='1.0'?><!DOCTYPE fontconfig SYSTEM 'fonts.dtd'><fontconfig>"
        f"<dir>{place}/usr/share/fonts</dir><cachedir>{place}/fontcache</cachedir>{chosen}</fontconfig>"
    )
    return file


def _ran(
    command: Sequence[str], environment: dict[str, str] | None = None, folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            list(command),
            env={**os.environ, "LC_ALL": "C.UTF-8", **(environment or {})},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotFetch(f"{command[0]} did not come to its end ({type(error).__name__})") from None


def _last(ran: subprocess.CompletedProcess[str]) -> str:
    return (ran.stderr.strip().splitlines() or ["no reason given"])[-1][:200]


if __name__ == "__main__":
    found = fetched()
    if isinstance(found, str):
        sys.exit(found)
    print(found.program)
