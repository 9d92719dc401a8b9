"""
What people state of what nobody can look into: `[tool.onceward.doctor]` in pyproject.toml.

    [tool.onceward.doctor.answers]
    failure-threshold = "five in a row: load test of 2030-03, ops/breakers.md"

    [tool.onceward.doctor.inside]
    "ledger.charge" = "a class of our own, in the same process"

An answer fills a box that cannot be known from here. It never fills one in which something was found to be missing.
What is `inside` only looks like a call to the outside.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from onceward._core.errors import ConfigurationError

BYTES_MAX: Final = 1_000_000
WORDS_MIN: Final = 10
"""Characters of a statement: "yes" is none."""


def find_config(start: Path) -> Path | None:
    """The nearest pyproject.toml at or above a folder."""
    folder = start.resolve()
    return next(
        (one / "pyproject.toml" for one in (folder, *folder.parents) if (one / "pyproject.toml").is_file()), None
    )


class DoctorSettings(NamedTuple):
    """What was stated, each with its reason."""

    answers: Mapping[str, str] = MappingProxyType({})
    """By the ids of boxes."""
    inside: Mapping[str, str] = MappingProxyType({})
    """By calls, as they are written."""


def read_doctor_settings(file: Path, boxes: Collection[str]) -> DoctorSettings:
    """The statements in a pyproject.toml. Raises ConfigurationError for what cannot be meant."""
    try:
        with file.open("rb") as opened:
            content = opened.read(BYTES_MAX + 1)
        if len(content) > BYTES_MAX:
            raise ConfigurationError(f"{file}: has more than {BYTES_MAX:,} bytes")
        table: Any = tomllib.loads(content.decode("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"{file}: cannot be read: {error.strerror}. Check the path and its permissions"
        ) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{file}: is not TOML: {error}") from None
    for name in ("tool", "onceward", "doctor"):
        table = _inner(table, name, file)
    where = f"{file}: [tool.onceward.doctor]"
    for name in table:
        if name not in DoctorSettings._fields:
            raise ConfigurationError(
                f"{where} has no setting {name!r}. The settings are: {', '.join(DoctorSettings._fields)}"
            )
    settings = DoctorSettings(_inner(table, "answers", file), _inner(table, "inside", file))
    for box in settings.answers:
        if box not in boxes:
            raise ConfigurationError(f"{where} has no box {box!r}. `onceward doctor --json` shows their ids")
    for name, words in ({**settings.answers, **settings.inside}).items():
        if not isinstance(words, str) or len(words.strip()) < WORDS_MIN:
            raise ConfigurationError(f"{where} {name} must be a sentence that says how you know")
    return settings


def _inner(table: Mapping[str, Any], name: str, file: Path) -> dict[str, Any]:
    found = table.get(name, {})
    if not isinstance(found, dict):
        raise ConfigurationError(f"{file}: {name} must be a table")
    return found
