"""What an installation brings along."""

from __future__ import annotations

import json
import sys
from typing import Any

from compare.peers import ANY, ROOT
from compare.questions import Data, Question
from compare.stage import NoAnswer, Stage

SMALLER = 0.8
"""Only what is clearly less is called less."""


def closure(name: str) -> dict[str, int]:
    """The packages that a package needs without any extra, itself included, and their bytes."""
    from importlib.metadata import PackageNotFoundError, distribution

    from pip._vendor.packaging.requirements import Requirement

    found: dict[str, int] = {}
    waiting = [name]
    while waiting:
        one = waiting.pop()
        try:
            package = distribution(one)
        except PackageNotFoundError:
            continue
        known = package.metadata["Name"].lower().replace("_", "-")
        if known in found:
            continue
        files = package.files or []
        found[known] = sum(size for file in files if file.suffix != ".pyc" and (size := _size(file)) is not None)
        for line in package.requires or []:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                waiting.append(needed.name)
    return found


def _size(file: Any) -> int | None:
    path = file.locate()
    return path.stat().st_size if path.is_file() else None


def ask(stage: Stage) -> Data:
    """Read what the installed packages say of themselves. Ours is what its wheel has: it needs no package."""
    if stage.peer.ours:
        files = [path for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix not in (".pyc", "")]
        return {"packages": 1, "megabytes": round(sum(path.stat().st_size for path in files) / 1e6, 2)}
    done = stage.run("-m", "compare.questions.install", stage.peer.name)
    if done.returncode != 0:
        raise NoAnswer(done.stderr[-400:])
    found = json.loads(done.stdout)
    return {"packages": len(found), "megabytes": round(sum(found.values()) / 1e6, 2)}


def better(ours: Data, theirs: Data) -> str | None:
    """It is smaller."""
    if theirs["megabytes"] < SMALLER * ours["megabytes"]:
        return f"({theirs['megabytes']} MB)"
    return None


def say(data: Data) -> str:
    """Packages and megabytes."""
    return f"{data['megabytes']} MB in {data['packages']} package{'' if data['packages'] == 1 else 's'}"


QUESTION = Question(
    name="install",
    title="How much does an installation add?",
    how=(
        "The package and what it needs without extras, without compiled bytecode. A driver or a server comes on "
        "top, for us as for the others."
    ),
    ask=ask,
    row="Installs",
    say=say,
    cell=say,
    right=lambda data: data["packages"] == 1,
    better=better,
    best=lambda ours: f"Install less than our {ours['megabytes']} MB",
    kind=ANY,
    order=41,
)

if __name__ == "__main__":
    print(json.dumps(closure(sys.argv[1])))
