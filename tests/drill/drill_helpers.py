"""What the tests of the drill share: a drill in a line, what a database holds, and what is left behind."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from onceward.drill.drill_run import DrillOrder, run_drill
from onceward.stores import Selection, Store, open_store

NURSERY = "onceward.drill.nursery_process"


def drilled(*names: str, url: str = "", **more: Any) -> dict[str, Any]:
    """The document of a drill."""
    return run_drill(DrillOrder(names, url, **more), lambda _: None)


def entry_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    """The entry of one proof."""
    [found] = [entry for entry in document["proofs"] if entry["name"] == name]
    return dict(found)


def rows_of_file(path: Path) -> dict[str, int]:
    """Every table of a SQLite file, and how many rows it has."""
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables}


def scopes_of(store: Store) -> set[str]:
    """Whose records a store holds."""
    return {record.scope for record in store.scan(b"", 500, Selection())}


def scopes_at(url: str) -> set[str]:
    """Whose records the store of a URL holds."""
    with closing(open_store(url)) as store:
        return scopes_of(store)


def nurseries_of(parent: int) -> list[int]:
    """The nurseries that a process has started and that live."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode(errors="replace")
            above = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if NURSERY in words and above == parent:
            found.append(int(place.name))
    return found
