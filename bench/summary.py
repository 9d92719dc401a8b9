"""What is kept of a run: medians and spreads, the day, the versions and the load, merged by group into one file."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import statistics
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.settings import Settings

LIBRARIES = ("psycopg", "asyncpg", "redis", "hiredis", "uvicorn", "uvloop", "starlette", "orjson")
LEFT_OUT = frozenset({"slices", "rounds", "purges"})
"""What has one value for every slice: its medians are kept beside it."""
LOAD_EVERY_SECONDS = 5.0


@dataclass
class Load:
    """The machine's load (of one minute) before and during a group. What the group itself causes is part of it."""

    before: float
    during: list[float] = field(default_factory=list)


@contextmanager
def watched() -> Iterator[Load]:
    """Look at the load every few seconds."""
    load, over = Load(os.getloadavg()[0]), threading.Event()

    def look() -> None:
        while not over.wait(LOAD_EVERY_SECONDS):
            load.during.append(os.getloadavg()[0])

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield load
    finally:
        over.set()
        watcher.join()
        load.during.append(os.getloadavg()[0])


def of_group(measured: Mapping[str, Any], settings: Settings, load: Load, seconds: float) -> dict[str, Any]:
    """A group as it is kept: each has its own day and load, because it may be measured alone."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "took": round(seconds),
        "rounds": settings.rounds,
        "peers": settings.peers,
        "load": {"before": round(load.before, 1), "during": round(statistics.median(load.during), 1)},
        "machine": machine(),
        **condensed(dict(measured)),
    }


def machine() -> dict[str, Any]:
    """Where it ran."""
    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: found for name in LIBRARIES if (found := _version(name))},
    }


def condensed(value: Any) -> Any:
    """Without single slices, and with four digits."""
    if isinstance(value, dict):
        kept = {name: condensed(one) for name, one in value.items() if name not in LEFT_OUT}
        if "slices" in value and "reference" in value:
            kept["measured"] = condensed(_measured(value["slices"], value["reference"]))
        return kept
    if isinstance(value, list | tuple):
        return [condensed(one) for one in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _measured(slices: Mapping[str, list[dict[str, float]]], reference: str) -> dict[str, dict[str, float]]:
    """By adapter: the median ratio of speeds and its spread, the ratio by CPU time, and figures for orientation."""
    found = {}
    compared = slices.get(reference, [])
    for name, own in slices.items():
        if not own or len(own) != len(compared):
            continue  # It broke on the way.
        pairs = list(zip(own, compared, strict=True))
        ratios = [_rate(one) / _rate(other) for one, other in pairs]
        found[name] = {
            "ratio": statistics.median(ratios),
            "least": min(ratios),
            "greatest": max(ratios),
            "cpu": statistics.median(_cpu(other) / _cpu(one) for one, other in pairs),
            "rate": statistics.median(_rate(one) for one in own),
            "cpu_us": 1e6 * statistics.median(_cpu(one) for one in own),
        }
    return found


def _rate(one: Mapping[str, float]) -> float:
    return one["operations"] / one["seconds"]


def _cpu(one: Mapping[str, float]) -> float:
    return max(one["cpu"], 1e-9) / one["operations"]


def save(path: Path, groups: Mapping[str, Any]) -> None:
    """Put the groups into the file; those that were not measured now stay as they are."""
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept.update(groups)
    path.write_text(as_text(kept), encoding="utf-8")


def as_text(groups: Mapping[str, Any]) -> str:
    """In one order, so that a change shows what was measured anew; one adapter of one case a line."""
    return _lines(dict(groups), 0) + "\n"


def _lines(value: Any, depth: int) -> str:
    if not isinstance(value, dict) or not any(isinstance(one, dict | list) for one in value.values()):
        return json.dumps(value)
    inner = ",\n".join(
        f"{' ' * (depth + 1)}{json.dumps(name)}: {_lines(one, depth + 1)}" for name, one in value.items()
    )
    return f"{{\n{inner}\n{' ' * depth}}}"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
