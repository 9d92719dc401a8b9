"""
mypy --strict and pyright, run once over some files: what they say, as (file, line, message).

pyright is the PyPI package with its `nodejs` extra: the checker is inside of the one wheel and Node in the other, so
nothing is fetched when it runs. (Without that extra it would fetch Node from elsewhere.)
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from doc_pages import ROOT, blocks, chains, scripts

SECONDS_MAX = 1_200
"""A checker that takes longer hangs."""


class Complaint(NamedTuple):
    """What a checker says about a line."""

    file: str
    line: int
    message: str


MYPY_LINE = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<message>.*)$")


RELAXED = "\n# mypy: allow-untyped-decorators, allow-subclassing-any\n"
"""
Django's decorators and bases are Any to whoever has no stubs of it.

Said in the files, below their last line, and not to mypy: what it knows of the sources from `make lint` would be of
other settings then, and everything would be read again, here and by the next `make lint`.
"""


def mypy(folder: Path) -> list[Complaint]:
    """The errors of `mypy --strict` in the files of a folder; the project's own settings say what has no types."""
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--strict"]
    command += ["--no-error-summary", "--hide-error-context", "--no-pretty", "--cache-dir", str(ROOT / ".mypy_cache")]
    for file in folder.glob("*.py"):
        file.write_text(file.read_text(encoding="utf-8") + RELAXED, encoding="utf-8")
    done = _run([*command, "."], folder)
    found = [MYPY_LINE.match(line) for line in done.stdout.splitlines()]
    complaints = [Complaint(one["file"].removeprefix("./"), int(one["line"]), one["message"]) for one in found if one]
    if done.returncode not in (0, 1) or (done.returncode == 1 and not complaints):
        raise RuntimeError(f"mypy could not run: {done.stdout}{done.stderr}")
    return complaints


def pyright(folder: Path) -> list[Complaint]:
    """The errors of pyright in the files of a folder, with its usual settings; what has no types has none here."""
    settings = {
        "include": ["."],
        "extraPaths": [str(ROOT / "src")],
        "pythonVersion": "3.11",
        "useLibraryCodeForTypes": False,
        "reportUnusedExpression": False,
        "reportAttributeAccessIssue": True,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = _run(command, folder)
    try:
        said = json.loads(done.stdout)["generalDiagnostics"]
    except (ValueError, KeyError) as error:
        raise RuntimeError(f"pyright could not run: {done.stdout}{done.stderr}") from error
    return [
        Complaint(
            Path(one["file"]).relative_to(folder.resolve()).as_posix(),
            one["range"]["start"]["line"] + 1,
            one["message"],
        )
        for one in said
        if one["severity"] == "error"
    ]


CHECKERS = {"mypy": mypy, "pyright": pyright}


def read(page: Path) -> str:
    """The text of a page."""
    return page.read_text(encoding="utf-8")


FOR_THE_LINTER = "# not run: an example for the linter"
"""Code as strangers write it, with names of modules that do not exist: the linter is what checks it."""


def write_scripts(pages: list[Path], folder: Path, *, text_of: Callable[[Path], str] = read) -> dict[str, str]:
    """Every python script of these pages as a file, with the page's own line numbers; which page each is from."""
    from_page = {}
    for page in pages:
        name = page.relative_to(ROOT).as_posix()
        for linked in chains(blocks(text_of(page))):
            for language, script in scripts(linked):
                if language == "python" and FOR_THE_LINTER not in script:
                    line = len(script) - len(script.lstrip("\n")) + 1
                    file = re.sub(r"\W", "_", f"{name.removesuffix('.md')}_{line}") + ".py"
                    (folder / file).write_text(script, encoding="utf-8")
                    from_page[file] = name
    return from_page


def on_pages(complaints: list[Complaint], from_page: dict[str, str]) -> list[str]:
    """Complaints as lines for whoever wrote the page: `docs/tutorial.md:31: message`."""
    placed = sorted((from_page[one.file], one.line, one.message) for one in complaints)
    return [f"{page}:{line}: {message}" for page, line, message in placed]


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
