"""Someone who can write to the store may be able to run code in the callers."""

from __future__ import annotations

import base64
import os
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from compare.questions import Data, Question
from compare.stage import Stage

KEY = ("order-1", {"amount": 5})


class Planted:
    """Unpickled, it makes a folder."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self._path,)


def pickled(value: Any) -> bytes | None:
    """The bytes of a pickle, if a stored value is one: as it is, or in base64."""
    raw = value.encode() if isinstance(value, str) else value
    if not isinstance(raw, bytes):
        return None
    for candidate in (raw, _decoded(raw)):
        if candidate and candidate[:1] == b"\x80" and candidate[-1:] == b".":
            return candidate
    return None


def _decoded(raw: bytes) -> bytes:
    try:
        return base64.b64decode(raw, validate=True)
    except ValueError:
        return b""


def plant(file: Path, made: Path) -> int:
    """Replace every stored pickle by one of ours; how many there were."""
    found = 0
    ours = pickle.dumps(Planted(str(made)))
    with closing(sqlite3.connect(file)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            cursor = connection.execute(f'SELECT * FROM "{table}"')
            names = [column[0] for column in cursor.description]
            for row in cursor.fetchall():
                for name, value in zip(names, row, strict=True):
                    if pickled(value) is None:
                        continue
                    shown = ours if isinstance(value, bytes) else base64.b64encode(ours).decode()
                    connection.execute(f'UPDATE "{table}" SET "{name}" = ? WHERE "{name}" IS ?', (shown, value))
                    found += 1
        connection.commit()
    return found


def ask(stage: Stage) -> Data:
    """Call once; look for pickles in the file, and put one there that makes a folder; call again."""
    stage.answers(KEY)
    made = stage.folder / "made-by-a-pickle"
    found = sum(plant(file, made) for file in stage.folder.glob("*.db"))
    stage.answers(KEY, name="second")
    return {"pickles": found, "ran": made.exists()}


def say(data: Data) -> str:
    """Whether what was planted ran."""
    if data["ran"]:
        return "results are stored as pickles, and one that was planted in the file ran code in the next caller"
    return "pickles are stored, and one that was planted did not run" if data["pickles"] else "no pickles are stored"


QUESTION = Question(
    name="unpickled",
    title="Someone can write to the store. Does that run code in the callers?",
    how="Every pickle in the SQLite file is replaced by one that makes a folder; then the call is replayed.",
    ask=ask,
    say=say,
    cell=lambda data: "runs code" if data["ran"] else "no",
    right=lambda data: not data["ran"] and not data["pickles"],
    order=24,
    only=("Onceward", "agent-once", "exactly-once", "dbos", "idempotent-tools", "idemkey"),
)
