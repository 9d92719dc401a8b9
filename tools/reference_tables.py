"""
Write the tables of the reference that are the code's own: settings, environment variables, commands.

    .venv/bin/python tools/reference_tables.py            write them into their pages
    .venv/bin/python tools/reference_tables.py --check    say which are out of date; exit code 1 if any is

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

from onceward.cli.command_table import GROUPS
from onceward.cli.contract import field_docs
from onceward.service import settings

PAGES = Path(__file__).resolve().parents[1] / "docs" / "reference"
TABLE = re.compile(r"(?<=<!-- table: )(?P<name>[\w-]+) -->\n.*?(?=<!-- end of table -->)", re.DOTALL)

VARIABLES = {
    "ONCEWARD_STORE": "commands that take `--store`: the store's URL",
    "ONCEWARD_SEAL_KEYS": "commands that take `--seal-keys`: the file with the keys of sealed values",
    "ONCEWARD_ACTOR": "commands that decide: who is deciding, for the decision log (`--actor`)",
    "ONCEWARD_MCP_RUN": "`onceward mcp`: the piece of work that the calls belong to (`--run`)",
    "ONCEWARD_PEPPER": "the service, and commands for tokens: the secret that hashes tokens; several: `NEW,OLD`",
    "ONCEWARD_TOKEN": "`Client`, and `onceward dead requeue --send-to`: the token",
    "ONCEWARD_API_KEY": "`onceward.http` clients: the credential of the API that is called",
    "ONCEWARD_RETRIES": "retry policies: `on`, `off` (one attempt), or `no-sleep` (no pauses), for tests",
    "ONCEWARD_SERVE_NAME": "`onceward serve`: the setting NAME, in capitals; see above",
}
"""Every variable that the package reads, and what for. A test compares it with the source."""


def settings_table() -> list[str]:
    """Every setting of the service."""
    texts = field_docs(settings, "Settings")
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    return rows + [f"| `{one.name}` | {_shown(one.default)} | {texts[one.name]} |" for one in fields(settings.Settings)]


def variables_table() -> list[str]:
    """Every environment variable."""
    return ["| variable | read by |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in VARIABLES.items())]


def commands_table() -> list[str]:
    """Every command."""
    commands = (one for group in GROUPS for one in import_module(f"onceward.cli.{group}").COMMANDS)
    return [
        "| command | what it does |",
        "|---|---|",
        *(f"| `onceward {one.name}` | {one.summary} |" for one in commands),
    ]


TABLES: dict[str, Callable[[], list[str]]] = {
    "settings": settings_table,
    "variables": variables_table,
    "commands": commands_table,
}


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    if default in ("", ()):
        return "none"
    if isinstance(default, float):
        return f"`{default:.10g}`"
    return f"`{default}`"


def written(page: str) -> str:
    """The page with its tables as they should be."""
    return TABLE.sub(lambda found: "\n".join([f"{found['name']} -->", *TABLES[found["name"]](), ""]), page)


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description="Write the tables of the reference that are the code's own.")
    parser.add_argument("--check", action="store_true", help="only say what is out of date")
    check = parser.parse_args().check
    stale = []
    for file in sorted(PAGES.glob("*.md")):
        page = file.read_text(encoding="utf-8")
        if written(page) != page:
            stale.append(file.name)
            if not check:
                file.write_text(written(page), encoding="utf-8")
    for name in stale:
        print(f"{name} {'is out of date: run tools/reference_tables.py' if check else 'was written'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
