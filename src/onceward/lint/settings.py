"""
What a project wants to be told: `[tool.onceward.lint]` in pyproject.toml, with what was typed put over it.

    [tool.onceward.lint]
    select = ["OW1", "OW2", "OW9"]            # codes, or how they begin; all of them if it is left out
    ignore = ["OW110"]
    exclude = ["migrations/legacy/*"]
    per-file-ignores = { "tests/*" = ["OW101"] }

Names and codes that are unknown are errors: a typing mistake must not switch a rule off.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from onceward._core.errors import ConfigurationError
from onceward.lint.rule_table import all_rules, matching_codes

CONFIG_BYTES_MAX = 1_000_000
"""Of a pyproject.toml: far above any that people wrote."""


@dataclass(frozen=True)
class LintSettings:
    """Which codes are told, and where. Patterns are as in a shell, on paths relative to `root`."""

    codes: frozenset[str] | None = None
    """None: all of them."""
    exclude: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, frozenset[str]] = field(default_factory=dict)
    root: Path = Path()

    def tells(self, code: str, path: Path) -> bool:
        """Whether this code is wanted for that file."""
        if self.codes is not None and code not in self.codes:
            return False
        return not any(
            code in codes and self._matches(path, pattern) for pattern, codes in self.per_file_ignores.items()
        )

    def is_excluded(self, path: Path) -> bool:
        """Whether that file is not looked at."""
        return any(self._matches(path, pattern) for pattern in self.exclude)

    def with_typed(self, select: list[str], ignore: list[str]) -> LintSettings:
        """The settings after `--select` (in place of the file's) and `--ignore` (besides the file's)."""
        codes = matching_codes(select, "--select") if select else self.codes
        if ignore:
            codes = (frozenset(all_rules()) if codes is None else codes) - matching_codes(ignore, "--ignore")
        return replace(self, codes=codes)

    def _matches(self, path: Path, pattern: str) -> bool:
        relative = Path(os.path.relpath(path, self.root)).as_posix()
        folder = pattern.rstrip("/")
        return fnmatchcase(relative, pattern) or fnmatchcase(relative, f"{folder}/*")


def find_settings(start: Path) -> LintSettings:
    """The settings of the nearest pyproject.toml at or above a folder; the defaults if there is none."""
    for folder in (start.resolve(), *start.resolve().parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            return read_settings(file)
    return LintSettings()


def read_settings(file: Path) -> LintSettings:
    """The settings in a pyproject.toml. Raises ConfigurationError for what it does not know."""
    try:
        with file.open("rb") as opened:
            content = opened.read(CONFIG_BYTES_MAX + 1)
        if len(content) > CONFIG_BYTES_MAX:
            raise ConfigurationError(f"{file}: has more than {CONFIG_BYTES_MAX:,} bytes")
        document = tomllib.loads(content.decode("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{file}: is not TOML: {error}") from None
    table: Any = document
    for name in ("tool", "onceward", "lint"):
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise ConfigurationError(f"{file}: {name} must be a table")
    return _settings(table, f"{file}: [tool.onceward.lint]", file.parent)


def _settings(table: dict[str, Any], where: str, root: Path) -> LintSettings:
    known = ("select", "ignore", "exclude", "per-file-ignores")
    for name in table:
        if name not in known:
            raise ConfigurationError(f"{where} has no setting {name!r}. The settings are: {', '.join(known)}")
    per_file = table.get("per-file-ignores", {})
    if not isinstance(per_file, dict):
        raise ConfigurationError(f"{where} per-file-ignores must be a table of patterns, each with a list of codes")
    settings = LintSettings(
        exclude=tuple(_texts(table.get("exclude", []), f"{where} exclude")),
        per_file_ignores={
            pattern: matching_codes(_texts(codes, f"{where} {pattern!r}"), f"{where} {pattern!r}")
            for pattern, codes in per_file.items()
        },
        root=root,
    )
    select = _texts(table.get("select", []), f"{where} select")
    ignore = _texts(table.get("ignore", []), f"{where} ignore")
    if select:
        settings = replace(settings, codes=matching_codes(select, f"{where} select"))
    if ignore:
        wanted = frozenset(all_rules()) if settings.codes is None else settings.codes
        settings = replace(settings, codes=wanted - matching_codes(ignore, f"{where} ignore"))
    return settings


def _texts(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ConfigurationError(f'{where} must be a list of strings, such as ["OW101"]')
    return value
