"""
Packages from npm for tests, in a folder of the project's own (`.node`): installed once, by whichever test needs them
first, and used without a network after that.

    folder = needed_packages()      # skips, and says why, where there is no node or no npm
    run_node(script, *arguments)

What is installed stands in `node/package.json`. No lock file is kept: it would name a registry's hosts.

    folder = built_client()         # the TypeScript client, with the compiler of its own lock file, compiled

Its lock file (`clients/typescript/package-lock.json`) names no host: `.npmrc` beside it sees to that.
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
CLIENT = ROOT / "clients" / "typescript"
QUIETLY = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--prefer-offline")
SECONDS_MAX = 300


def why_no_node() -> str | None:
    """What keeps anything of Node.js from being run here; None if nothing does."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "NOT TESTED HERE: no node or no npm on this machine; install Node.js 20 or later"
    return None


@functools.cache
def why_not() -> str | None:
    """What keeps the packages from being used here; None if nothing does."""
    if (reason := why_no_node()) is not None:
        return reason
    FOLDER.mkdir(exist_ok=True)
    wanted = hashlib.sha256(PACKAGES.read_bytes()).hexdigest()
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Workers of one run must not install side by side.
        done = FOLDER / "installed"
        if done.is_file() and done.read_text() == wanted:
            return None
        shutil.copyfile(PACKAGES, FOLDER / "package.json")
        reason = _why_not_installed(FOLDER, "install", "--no-package-lock")
        if reason is None:
            done.write_text(wanted)
    return reason


def _why_not_installed(folder: Path, *command: str) -> str | None:
    try:
        ran = subprocess.run(
            ["npm", *command, *QUIETLY],
            cwd=folder,
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


def built_client() -> Path:
    """The folder of the TypeScript client, compiled from what is there now; skips, loudly, where it cannot be."""
    if (reason := why_no_node()) is None:
        FOLDER.mkdir(exist_ok=True)
        with (FOLDER / "lock-client").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # Workers of one run must not install or compile side by side.
            reason = _why_client_not_installed()
            if reason is None:
                _compile_client()
    if reason is not None:
        pytest.skip(reason)
    return CLIENT


def _why_client_not_installed() -> str | None:
    wanted = _digest_of([CLIENT / "package-lock.json"])
    done = CLIENT / "node_modules" / ".installed"
    if done.is_file() and done.read_text() == wanted:
        return None
    reason = _why_not_installed(CLIENT, "ci")
    if reason is None:
        done.write_text(wanted)
    return reason


def _compile_client() -> None:
    wanted = _digest_of([CLIENT / "tsconfig.json", *sorted((CLIENT / "src").glob("*.ts"))])
    done = CLIENT / "node_modules" / ".compiled"
    if done.is_file() and done.read_text() == wanted and (CLIENT / "dist").is_dir():
        return
    shutil.rmtree(CLIENT / "dist", ignore_errors=True)
    told = compile_typescript(CLIENT / "tsconfig.json")
    if told:
        raise RuntimeError(f"the TypeScript client does not compile:\n{told}")
    done.write_text(wanted)


def compile_typescript(project: Path) -> str:
    """What the compiler complains about in a project; nothing, if it is content."""
    compiler = CLIENT / "node_modules" / "typescript" / "bin" / "tsc"
    command = ["node", str(compiler), "-p", str(project), "--pretty", "false"]
    ran = subprocess.run(command, cwd=project.parent, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    return ran.stdout + ran.stderr


def _digest_of(files: list[Path]) -> str:
    return hashlib.sha256(b"\0".join(one.name.encode() + b"\0" + one.read_bytes() for one in files)).hexdigest()
