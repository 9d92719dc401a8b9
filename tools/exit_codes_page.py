"""
Write the page of exit codes from the table of commands: what each code means, and which command ends with which.

    python tools/exit_codes_page.py            write docs/reference/exit-codes.md
    python tools/exit_codes_page.py --check    exit code 1 if the page is not what would be written
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from onceward.cli.command_table import GROUPS, Command
from onceward.cli.exit_codes import INTERRUPTED, MEANINGS, NO, PIPE_CLOSED

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "exit-codes.md"

HEAD = """# Exit codes

Scripts branch on the exit code, people read the message, and programs that pass `--json` read `code` and
`retry` on stderr. After 2 and 3 nothing was changed. After 4 or 130 a command that does many things may have done
some of them; run it again to continue. `onceward COMMAND --help` ends with the codes of that command.

| code | meaning |
|---|---|
"""

COMMANDS = """
Every command may also end with 130 or 141. For a script, 1 is an answer; after 4, try again later:

```console
$ onceward store init --store sqlite:///agent.db
$ onceward status --store sqlite:///agent.db
...
Nothing needs attention.
$ onceward records list --in-doubt --fail-if-any --store sqlite:///agent.db
$ onceward records show e9bb26a3a693 --store sqlite:///agent.db  # exit 1
onceward: no record's id begins with e9bb26a3a693: ...
$ onceward records lst  # exit 2
onceward: there is no command 'lst'. Did you mean list? ...
$ onceward status --store postgresql://nobody@127.0.0.1:1/shop  # exit 4
onceward: PostgreSQL at 127.0.0.1:1, database shop cannot be reached...
```

## By command

| command | codes | 1 means |
|---|---|---|
"""


def page() -> str:
    """The page."""
    meanings = "".join(f"| {code} | {words} |\n" for code, words in MEANINGS.items())
    rows = "".join(map(_row, commands()))
    return HEAD + meanings + COMMANDS + rows


def commands() -> list[Command]:
    """Every command, in the order of `onceward --help`."""
    return [one for group in GROUPS for one in import_module(f"onceward.cli.{group}").COMMANDS]


def _row(command: Command) -> str:
    codes = ", ".join(str(code) for code in command.exit_codes if code not in (INTERRUPTED, PIPE_CLOSED))
    return f"| `onceward {command.name}` | {codes} | {command.no if NO in command.exit_codes else ''} |\n"


def main(arguments: list[str] | None = None) -> int:
    """Write or compare the page."""
    if "--check" in (sys.argv[1:] if arguments is None else arguments):
        return 0 if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
