"""The reference says what the code says: its tables are compared, line by line."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from onceward._core import errors
from onceward._core.errors import OncewardError
from onceward.cli.contract import field_docs
from onceward.http import PROFILES, Profile
from onceward.http.server import profile as source
from onceward.http.server.problems import STATUSES, title_of
from onceward.http.server.profile import NEVER_STORED, STORED_HEADERS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "http-server.md"
CLASSES = {one.code: one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, OncewardError)}


def shown(value: Any) -> str:
    if value is None:
        return "the gate's"
    if isinstance(value, tuple):
        return ", ".join(f"`{one}`" for one in value) or "none"
    return f"`{value!r}`" if isinstance(value, bool) else f"`{value}`"


def table_of_fields() -> list[str]:
    reasons = field_docs(source, "Profile")
    rows = ["| field | default | what it says |", "|---|---|---|"]
    for field in fields(Profile):
        value = getattr(PROFILES["default"], field.name)
        default = "see below" if field.name == "stored_headers" else "none" if field.name == "probe" else shown(value)
        rows.append(f"| `{field.name}` | {default} | {reasons[field.name]} |")
    return rows


def table_of_profiles() -> list[str]:
    default = PROFILES["default"]
    differing = [
        field.name
        for field in fields(Profile)
        if field.name != "name" and len({getattr(one, field.name) for one in PROFILES.values()}) > 1
    ]
    rows = ["| | " + " | ".join(f"`{name}`" for name in PROFILES) + " |", "|---|" + "---|" * len(PROFILES)]
    for name in differing:
        cells = [
            shown(getattr(one, name)) if one is default or getattr(one, name) != getattr(default, name) else ""
            for one in PROFILES.values()
        ]
        rows.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return rows


def table_of_refusals() -> list[str]:
    rows = ["| code | status | retry | meaning |", "|---|---|---|---|"]
    for code, status in STATUSES.items():
        shown_status = f"{status}, or `mismatch_status`" if code == "key_reused" else str(status)
        rows.append(f"| `{code}` | {shown_status} | {CLASSES[code].retry.value} | {title_of(CLASSES[code])} |")
    return rows


@pytest.mark.parametrize("made", [table_of_fields, table_of_profiles, table_of_refusals])
def test_a_table_is_what_the_code_says(made: Any) -> None:
    """
    Every line of it, in order. `python tests/http/server/test_http_server_docs.py` prints them anew.
    """
    assert "\n".join(made()) in PAGE.read_text(encoding="utf-8")


def test_the_lists_of_headers_are_what_the_code_says() -> None:
    """
    Both of them.
    """
    page = PAGE.read_text(encoding="utf-8")

    assert f"these headers: {shown(STORED_HEADERS)}." in page
    assert f"whatever it names: {shown(tuple(sorted(NEVER_STORED)))}." in page


if __name__ == "__main__":
    for table in (table_of_profiles, table_of_fields, table_of_refusals):
        print("\n".join(table()), end="\n\n")
