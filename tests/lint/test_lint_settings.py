"""`[tool.onceward.lint]` in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward.errors import ConfigurationError
from onceward.lint.settings import LintSettings, find_settings, read_settings


def settings_of(text: str, folder: Path) -> LintSettings:
    file = folder / "pyproject.toml"
    file.write_text(f"[tool.onceward.lint]\n{text}\n")
    return read_settings(file)


def test_codes_are_selected_by_how_they_begin(tmp_path: Path) -> None:
    """
    `OW1` is all of Python; what is ignored is taken from it.
    """
    settings = settings_of('select = ["OW10", "OW904"]\nignore = ["OW106"]', tmp_path)

    assert sorted(settings.codes or ()) == ["OW101", "OW102", "OW103", "OW104", "OW105", "OW107", "OW904"]


def test_what_is_typed_goes_over_the_file(tmp_path: Path) -> None:
    """
    `--select` in place of the file's, `--ignore` besides.
    """
    settings = settings_of('select = ["OW10"]', tmp_path)

    assert settings.with_typed(["OW101", "OW102"], ["OW102"]).codes == frozenset({"OW101"})
    assert "OW101" not in (LintSettings().with_typed([], ["OW101"]).codes or ())


def test_patterns_are_relative_to_the_file(tmp_path: Path) -> None:
    """
    Files, folders and stars; for one code, or for all.
    """
    settings = settings_of(
        'exclude = ["generated", "old/*.py"]\nper-file-ignores = { "scripts/*" = ["OW11"] }', tmp_path
    )

    assert settings.is_excluded(tmp_path / "generated/deep/a.py")
    assert settings.is_excluded(tmp_path / "old/a.py")
    assert not settings.is_excluded(tmp_path / "new/old.py")
    assert not settings.tells("OW115", tmp_path / "scripts/a.py")
    assert settings.tells("OW101", tmp_path / "scripts/a.py")
    assert settings.tells("OW115", tmp_path / "app/a.py")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('selct = ["OW1"]', "has no setting 'selct'"),
        ('select = ["OW77"]', "there is no rule 'OW77'"),
        ('ignore = ["ow101"]', "Did you mean OW101"),
        ('ignore = [""]', "there is no rule ''"),
        ('select = "OW101"', "must be a list of strings"),
        ("exclude = [1]", "must be a list of strings"),
        ("per-file-ignores = 3", "must be a table"),
        ('per-file-ignores = { "a" = ["OWX"] }', "there is no rule 'OWX'"),
        ("select = [", "is not TOML"),
        ("x = " + "[" * 5000, "is not TOML"),
    ],
)
@pytest.mark.fault("lint-unknown-settings-pass")
def test_what_is_not_known_is_an_error(text: str, words: str, tmp_path: Path) -> None:
    """
    A typing mistake must not switch a rule off.
    """
    with pytest.raises(ConfigurationError, match=words):
        settings_of(text, tmp_path)


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    """
    At or above the folder; without one there are the defaults. Other tables are nobody's business here.
    """
    (tmp_path / "pyproject.toml").write_text('[tool.other]\nx = 1\n[tool.onceward.lint]\nignore = ["OW1"]\n')
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "c").mkdir()
    (tmp_path / "c/pyproject.toml").write_text("[project]\nname = 'c'\n")

    assert "OW101" not in (find_settings(tmp_path / "a/b").codes or ())
    assert find_settings(tmp_path / "c").codes is None
