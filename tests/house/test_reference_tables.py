"""Every setting, environment variable, command, route and option has its entry in the reference."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from onceward._core.terms import Options
from onceward.service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))

import reference_tables  # noqa: E402 - a tool, and not a package

REFERENCE = ROOT / "docs" / "reference"
NOT_VARIABLES = {"ONCEWARD_CLAIM"}  # A function in SQL.
VARIABLE = re.compile(r"\bONCEWARD(?:_[A-Z]+)+\b")


def page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", sorted(REFERENCE.glob("*.md")), ids=lambda file: file.name)
def test_the_tables_of_the_code_are_up_to_date(file: Path) -> None:
    """
    `tools/reference_tables.py` would change nothing.
    """
    text = file.read_text(encoding="utf-8")

    assert text == reference_tables.written(text)


def test_every_table_stands_on_a_page() -> None:
    """
    A table that no page has says nothing.
    """
    shown = {name for file in REFERENCE.glob("*.md") for name in re.findall(r"<!-- table: (\S+) -->", file.read_text())}

    assert shown == set(reference_tables.TABLES)


def test_every_variable_of_the_source_is_listed() -> None:
    """
    What the package reads from the environment is in the table, and nothing else is.
    """
    found = {
        name
        for file in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in VARIABLE.findall(node.value)
    }
    settings = {f"ONCEWARD_SERVE_{name.upper()}" for name in Settings.__dataclass_fields__}

    assert found - NOT_VARIABLES - settings == set(reference_tables.VARIABLES) - {"ONCEWARD_SERVE_NAME"}


def test_every_route_of_the_service_is_listed() -> None:
    """
    Each endpoint that the service publishes is in the reference of the service or of its part, with its method.
    """
    done = subprocess.run(
        [sys.executable, "-m", "onceward", "contract", "--service", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    routes = [route for app in json.loads(done.stdout)["apps"] for route in app["endpoints"]]
    pages = page("service") + page("ledger") + page("inbox")

    assert len(routes) > 20
    assert [route for route in routes if f"`{route}`" not in pages] == []


def test_every_option_of_a_gate_is_listed() -> None:
    """
    Each has its row, with its default and the reason.
    """
    assert [name for name in Options.__annotations__ if f"\n| `{name}` |" not in page("options")] == []


def test_a_stale_table_is_noticed() -> None:
    """
    A row that is missing comes back.
    """
    spoiled = page("settings").replace("| `port` |", "| `prot` |")

    assert reference_tables.written(spoiled) == page("settings") != spoiled
