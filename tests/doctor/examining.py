"""A project in a folder, and what the doctor says of it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from onceward.doctor.box import BoxAnswer, BoxState
from onceward.doctor.code_reader import lint_settings, read_code
from onceward.doctor.examination import Evidence, examine
from onceward.doctor.settings_reader import DoctorSettings
from onceward.doctor.sql_reader import read_sql
from onceward.doctor.store_reader import StoreFacts

HERE = Path(__file__).parent
DOCUMENTS = HERE / "documents"
CHARGE_SQL = HERE.parent / "lint_sql/documents/charge_create.sql"


def write(folder: Path, **texts: str) -> Path:
    """Python files with these texts; the folder."""
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(dedent(text))
    return folder


def write_documents(folder: Path) -> Path:
    """The snippets of the document as a project."""
    for file in DOCUMENTS.glob("*.py.txt"):
        (folder / file.name.removesuffix(".txt")).write_text(file.read_text())
    return folder


def answers(
    folder: Path, *, settings: DoctorSettings | None = None, store: StoreFacts | None = None
) -> dict[str, BoxAnswer]:
    """What is said of each box."""
    stated = settings or DoctorSettings()
    lint = lint_settings(None, folder)
    code = read_code([folder], lint, tests=True)
    code.effects = [one for one in code.effects if one.called not in stated.inside]
    sql = read_sql([folder], lint, tests=True)
    evidence = Evidence(code, sql, stated.answers, store, None, store is not None)
    return {one.box.id: one.answer for one in examine(evidence)}


def missing(found: dict[str, BoxAnswer]) -> set[str]:
    """The boxes that are empty."""
    return {id for id, answer in found.items() if answer.state.is_empty}


def states(found: dict[str, BoxAnswer]) -> dict[str, BoxState]:
    """The state of each box."""
    return {id: answer.state for id, answer in found.items()}
