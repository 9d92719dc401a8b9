"""
`onceward migrate`: add a key to a table that has rows already, as a file to review or applied here.
"""

from __future__ import annotations

import argparse

from onceward.cli import exit_codes
from onceward.cli.command_table import Argument, Command
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.progress import progress_of
from onceward.cli.text_tables import escape_invisible, format_facts
from onceward.migrate.database import BATCH_ROWS, COPY_BYTES_MAX, LOCK_SECONDS, Application, Migrator, open_database
from onceward.migrate.formats import FORMATS, Request, generate
from onceward.migrate.hashing import HASHES
from onceward.migrate.rehearsal import rehearse
from onceward.migrate.reporting import SayAndDraw
from onceward.migrate.table import STEPS, MigrationStep, Table

_ROWS_MAX = 1_000_000


def _generate(args: argparse.Namespace) -> int:
    with open_database(args.database) as database:
        table = database.look(args.table, args.schema, args.hash)
        steps = tuple(map(MigrationStep, args.step)) if args.step else STEPS
        request = Request(args.format, args.hash, steps, args.down, args.after)
        text = generate(table, database.progress_of(table), request)
    if args.json:
        print_json({"table": table.name, "format": args.format, "text": text})
    else:
        print_text(text)
    return exit_codes.FINE


def _apply(args: argparse.Namespace) -> int:
    wanted = Application(args.hash, MigrationStep(args.until), args.batch)
    with open_database(args.database, args.lock_timeout) as database:
        table = database.look(args.table, args.schema, args.hash)
        if args.rehearse:
            return _rehearse(args, database, table, wanted)
        with progress_of("filling in keys") as line:
            rows = database.apply(table, wanted, SayAndDraw(_say, line))
        progress = database.progress_of(table)
    document = {"table": table.name, "rowsFilled": rows, **progress._asdict()}
    if args.json:
        print_json(document)
    else:
        facts = {"table": table.name, "rows filled": rows, **progress._asdict()}
        print_text(format_facts(facts.items()))
    return exit_codes.FINE


def _rehearse(args: argparse.Namespace, database: Migrator, table: Table, wanted: Application) -> int:
    with progress_of("filling in keys of the copy") as line:
        found = rehearse(database, table, wanted, SayAndDraw(_say, line), args.copy_max)
    if args.json:
        print_json({"good": found.is_good, **found._asdict()})
    else:
        for title, lines in (
            ("up", found.up),
            ("down, compared with before", found.down),
            ("up again, compared with up", found.again),
        ):
            print_text(f"{title}:")
            print_text("\n".join(f"  {escape_invisible(line)}" for line in lines) or "  no difference")
        print_note("the rehearsal ran on a copy; the table itself is unchanged")
    return exit_codes.FINE if found.is_good else exit_codes.NO


def _say(text: str) -> None:
    print_note(f"onceward: {escape_invisible(text)}")


def _rows(text: str) -> int:
    number = int(text)
    if not 1 <= number <= _ROWS_MAX:
        raise argparse.ArgumentTypeError(f"between 1 and {_ROWS_MAX:,}")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number <= 3_600:
        raise argparse.ArgumentTypeError("more than 0 and at most 3600 seconds")
    return number


_SHARED = (
    Argument("table", "the name of the table, as in the database", metavar="TABLE"),
    Argument(
        "--database",
        "your database: postgresql://user@host/database or sqlite:///app.db",
        metavar="URL",
        required=True,
    ),
    Argument("--schema", "PostgreSQL's schema", metavar="NAME", default="", default_text="found on the search path"),
    Argument("--hash", "what computes the keys of old rows; the result is the same", choices=HASHES, default="builtin"),
)

COMMANDS = (
    Command(
        name="migrate generate",
        summary="print the migration that adds a key to a table, for review; change nothing",
        run=_generate,
        arguments=(
            *_SHARED,
            Argument("--format", "what to print", choices=FORMATS, default="sql"),
            Argument("--down", "print how it is undone; other formats have both in one file", action="store_true"),
            Argument(
                "--step",
                "print this step only; may be repeated, in the order of the steps",
                action="append",
                choices=[step.value for step in STEPS],
            ),
            Argument("--after", "the migration before: a revision, or app.0004_name", metavar="NAME", default=""),
        ),
        examples=("onceward migrate generate expenses --database sqlite:///app.db",),
        exit_codes=exit_codes.TO_LIST,
        more="The order is add, backfill, tighten, constrain; a step before its turn is refused.",
    ),
    Command(
        name="migrate apply",
        summary="add a key to a table in batches, while others write to it; if it is killed, run it again",
        run=_apply,
        arguments=(
            *_SHARED,
            Argument(
                "--rehearse", "migrate a copy up, down and up again, and show the differences", action="store_true"
            ),
            Argument(
                "--until",
                "the last step; before `tighten`, all writers must send keys",
                choices=[step.value for step in STEPS],
                default=MigrationStep.CONSTRAIN.value,
            ),
            Argument("--batch", "rows for each transaction", metavar="ROWS", type=_rows, default=BATCH_ROWS),
            Argument(
                "--lock-timeout",
                "how long to wait for the table",
                metavar="SECONDS",
                type=_seconds,
                default=LOCK_SECONDS,
            ),
            Argument(
                "--copy-max", "bytes that a rehearsal may copy", metavar="BYTES", type=int, default=COPY_BYTES_MAX
            ),
        ),
        examples=("onceward migrate apply expenses --database sqlite:///app.db --rehearse",),
        exit_codes=exit_codes.TO_FIND,
        no="with --rehearse: the rehearsal went wrong",
        more="Progress is read from the schema itself. Nothing is dropped.",
    ),
)
