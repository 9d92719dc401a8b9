"""
Packages from npm for tests, in a folder of the project's own (`.node`): installed once, by whichever test needs them
first, and used without a network after that.

    folder = needed_packages()      # skips, and says why, where there is no node or no npm
    run_node(script, *arguments)

What is installed stands in `node/package.json`. No lock file is kept: it would name a registry's hosts.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path(__file__).parent / "node" / "package.json"
FOLDER = ROOT / ".node"
SECONDS_MAX = 300


@functools.cache
def why_not() -> str | None:
    """What keeps the packages from being used here; None if nothing does."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "NOT TESTED HERE: no node or no npm on this machine; install Node.js 20 or later"
    FOLDER.mkdir(exist_ok=True)
    wanted = hashlib.sha256(PACKAGES.read_bytes()).hexdigest()
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Workers of one run must not install side by side.
        done = FOLDER / "installed"
        if done.is_file() and done.read_text() == wanted:
            return None
        shutil.copyfile(PACKAGES, FOLDER / "package.json")
        options = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        try:
            ran = subprocess.run(
                ["npm", "install", *options],
                cwd=FOLDER,
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"NOT TESTED HERE: npm did not install its packages within {SECONDS_MAX} s"
        if ran.returncode != 0:
            last = (ran.stderr.strip().splitlines() or ["no reason given"])[-1]
            return f"NOT TESTED HERE: npm could not install its packages ({last[:200]})"
        done.write_text(wanted)
    return None


def needed_packages() -> Path:
    """The folder with `node_modules`; the test is skipped, loudly, where it cannot be had."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    return FOLDER


def run_node(script: Path, *arguments: str, seconds: float = 60.0) -> str:
    """What a script prints. It finds the packages as if it stood beside them."""
    folder = needed_packages()
    ran = subprocess.run(
        ["node", str(script), *arguments],
        env={**os.environ, "NODE_PATH": str(folder / "node_modules")},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout
