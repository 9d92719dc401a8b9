"""The peers' environment: a virtual environment of its own, made on demand, with pinned versions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from bench.interleave import ROOT, progress

PLACE = ROOT / ".venv-bench"
PYTHON = PLACE / "bin" / "python"
PINNED = {
    "exactly-once": "0.2.1",
    "agent-once": "0.1.0",
    "dbos": "3.3.0",
    "idemkit": "1.0.2",
    "aws-lambda-powertools": "3.37.0",
}
DRIVERS = {
    "psycopg": "3.3.8",
    "psycopg-binary": "3.3.8",
    "asyncpg": "0.32.0",
    "redis": "8.1.0",
    "hiredis": "3.5.0",
    "boto3": "1.44.0",
}
"""
What the peers talk to servers with; and what powertools imports, although its Redis layer has no use for it.

psycopg and its binary are of one version, or nothing works: the peers bring whichever psycopg is the newest.
"""
NAMES = {"powertools": "aws-lambda-powertools", "peer-e": "exactly-once", "peer-e-normal": "exactly-once"}
"""Where an adapter is not named for its package. One package's name is a claim that our own pages do not make."""
HTTP = {"asgi-idempotency-header": "0.2.0", "fastapi": "0.162.4"}
"""The middleware, and what its Redis layer imports."""
SERVING = ("httptools", "starlette", "uvicorn", "uvloop")
"""What serves the application: the peers get the versions that are here, so that only the middleware differs."""
RETRY = {
    "tenacity": "9.2.1",
    "stamina": "26.1.0",
    "backoff": "2.2.1",
    "redress": "1.4.2",
    "pybreaker": "1.4.1",
    "circuitbreaker": "2.1.3",
    "interlock-cb": "2.8.2",
}


def prepare(pinned: Mapping[str, str] = PINNED | DRIVERS) -> dict[str, str]:
    """Make the environment; what could not be installed, and why."""
    try:
        if not PYTHON.exists():
            progress(f"making {PLACE.name} for the peers (once)")
            _run([sys.executable, "-m", "venv", str(PLACE)])
    except subprocess.CalledProcessError as error:
        return dict.fromkeys(pinned, f"no environment could be made: {_last_line(error)}")
    missing: dict[str, str] = {}
    for name, wanted in pinned.items():
        if _installed(name) == wanted:
            continue
        progress(f"installing {name}=={wanted}")
        try:
            _run([str(PYTHON), "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{name}=={wanted}"])
        except subprocess.CalledProcessError as error:
            missing[name] = f"cannot be installed: {_last_line(error)}"
    return missing


def http() -> dict[str, str]:
    """What the peers' HTTP middleware needs."""
    drivers = {name: DRIVERS[name] for name in ("asyncpg", "redis", "hiredis")}
    return {**{name: version(name) for name in SERVING}, **HTTP, "idemkit": PINNED["idemkit"], **drivers}


def package_of(adapter: str) -> str:
    """The package that an adapter needs."""
    return NAMES.get(adapter) or next(name for name in PINNED | HTTP if adapter.startswith(name))


def _installed(name: str) -> str | None:
    code = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    done = subprocess.run([str(PYTHON), "-c", code, name], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _last_line(error: subprocess.CalledProcessError) -> str:
    lines = (error.stderr or error.stdout or "").strip().splitlines()
    return lines[-1] if lines else f"exit {error.returncode}"
