"""
A real nginx for tests: the one that is here, or Debian's package, unpacked into a folder and not installed.

    with proxying(config, folder) as process: ...
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import ending

SECONDS_MAX = 120


@functools.cache
def program() -> str | None:
    """Its path; None where it cannot be had."""
    if here := shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin"):
        return here
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return None
    folder = ending.folder("onceward-nginx-")
    subprocess.run(["apt-get", "download", "nginx"], cwd=folder, capture_output=True, check=False, timeout=SECONDS_MAX)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(folder)], check=False, capture_output=True, timeout=SECONDS_MAX)
    found = folder / "usr" / "sbin" / "nginx"
    runs = found.exists() and subprocess.run([str(found), "-v"], capture_output=True, check=False).returncode == 0
    return str(found) if runs else None


def folders(folder: Path) -> str:
    """Settings by which it needs no folder but this one."""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return "access_log off; " + " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)


@contextmanager
def proxying(config: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """nginx with this configuration, for as long as it is needed; its files are in the folder."""
    (folder / "logs").mkdir(exist_ok=True)
    command = [str(program()), "-p", str(folder), "-c", str(config), "-g", "daemon off; error_log stderr;"]
    with (folder / "nginx.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(SECONDS_MAX)
