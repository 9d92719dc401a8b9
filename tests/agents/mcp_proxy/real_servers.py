"""
MCP servers of others, from npm and PyPI: installed once, by whichever test needs them first. Skips, and says why, where
they cannot be had.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NODE = ROOT / ".node" / "mcp-servers"
PYTHON = ROOT / ".venv-mcp-servers"
SECONDS_MAX = 300


def npm_server(name: str) -> list[str]:
    """The command of a server from npm."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("NOT TESTED HERE: no node or no npm on this machine; install Node.js 20 or later")
    program = NODE / "node_modules" / ".bin" / name
    NODE.mkdir(parents=True, exist_ok=True)
    with (NODE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            shutil.copyfile(Path(__file__).with_name("npm") / "package.json", NODE / "package.json")
            options = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
            _install("npm", ["npm", "install", *options], NODE)
    return ["node", str(program)]


def sqlite_server() -> list[str]:
    """The command of mcp-server-sqlite, in an environment of its own: it needs the SDK's first line."""
    program = PYTHON / "bin" / "mcp-server-sqlite"
    with (ROOT / ".node" / "python.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _install("venv", [sys.executable, "-m", "venv", str(PYTHON)], ROOT)
            _install("pip", [str(PYTHON / "bin" / "pip"), "install", "-q", "mcp-server-sqlite", "mcp<2"], ROOT)
    return ["env", "-u", "PYTHONPATH", str(program)]  # Our packages are not its own.


def _install(what: str, command: list[str], folder: Path) -> None:
    try:
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"NOT TESTED HERE: {what} did not end within {SECONDS_MAX} s")
    if ran.returncode != 0:
        last = (ran.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"NOT TESTED HERE: {what} could not install MCP servers ({last[:200]})")
