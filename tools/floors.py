"""
The lowest versions that pyproject.toml allows, as constraints for pip: `python tools/floors.py serve postgres`.

`make test-floors` installs them and runs a dose of the tests: a floor that nobody has tried is a guess.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9-]+)(?:\[[a-z,]+\])?>=(?P<floor>[0-9][0-9.]*)")


def floors(extras: list[str]) -> list[str]:
    """A line for each requirement of these extras: its name and its floor."""
    listed = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    lines = []
    for extra in extras:
        for one in listed[extra]:
            found = _REQUIREMENT.fullmatch(one)
            if found is None:
                raise SystemExit(f"{extra}: {one!r} has no floor of the form name>=version")
            lines.append(f"{found['name']}=={found['floor']}")
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(floors(sys.argv[1:])) + "\n")
