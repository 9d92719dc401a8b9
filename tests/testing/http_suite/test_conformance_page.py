"""The reference page says what the code does, check by check and promise by promise."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from onceward.testing import http_suite
from onceward.testing.http_suite import CHECKS, PROFILES, Expectations
from onceward.testing.http_suite.target import _KINDS

PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/http-conformance.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of every table under a heading of the page, without the tables' own headings."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [row for row in cells if row[0] not in ("check", "name")]


def shown(value: object) -> str:
    """A promise as the page writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(f"`{word}`" for word in value) or "any"
    return f"`{value}`" if isinstance(value, str) else str(value)


def test_every_check_is_on_the_page_as_it_is_in_the_code() -> None:
    """
    Its name, what it sends and what must hold, in the order in which they are made.
    """
    assert [[f"`{check.name}`", check.sends, check.must] for check in CHECKS] == rows("Checks")


def test_every_promise_of_every_profile_is_on_the_page() -> None:
    """
    A row a promise, a column a profile; and a sentence for each profile.
    """
    promises = [field.name for field in fields(Expectations) if field.name not in ("profile", "sentence")]

    assert [
        [f"`{name}`", *(shown(getattr(profile, name)) for profile in PROFILES.values())] for name in promises
    ] == rows("Profiles")
    assert [one.profile for one in PROFILES.values() if f"- **`{one.profile}`**: {one.sentence}" not in PAGE] == []


def test_every_part_of_a_description_is_on_the_page() -> None:
    """
    Names that a target's file may have, and no others.
    """
    named = {name for row in rows("The target") for name in re.findall(r"`\[?([a-z_0-9]+)\]?`", row[0])}

    assert named == {*_KINDS}


def test_every_public_name_is_on_the_page() -> None:
    """
    Whatever can be imported from `onceward.testing.http_suite`.
    """
    assert [name for name in http_suite.__all__ if not re.search(rf"\b{name}\b", PAGE)] == []
