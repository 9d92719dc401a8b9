"""
`onceward db`: move a tenant's database between the folder of a service and PostgreSQL, with its keys and plans.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceward._core.keys import ENVIRONMENTS
from onceward.audit import OpenDecision
from onceward.cli import exit_codes
from onceward.cli.access_arguments import tenant_name
from onceward.cli.command_table import Argument, Command
from onceward.cli.decisions import DECIDING, deciding
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.progress import progress_of
from onceward.cli.store_argument import VARIABLE
from onceward.cli.text_tables import format_facts, format_table
from onceward.runtime.progress import Progress, part_of

if TYPE_CHECKING:  # Not imported before they are needed: `--help` does not wait for them.
    from onceward.service.sql.moving import DatabasePlace, ImportReport


def _export(args: argparse.Namespace) -> int:
    """Write a database into a file."""
    from onceward.service.sql.moving import export_database

    place, file = _place(args), Path(args.file)
    if file.exists() and not args.overwrite:
        raise exit_codes.UsageError(f"{file} already exists; choose another name, or add --overwrite")
    place.check()
    action = "database.close" if args.close else "database.export"
    with _deciding_about(args, action, place) as made, _progress() as progress:
        done = export_database(place, file, close=args.close, progress=progress)
        made.after = {"rows": sum(done.totals.rows), "records": done.totals.records, "closed": done.closed}
    if not done.closed:
        print_note(
            "this database still takes writes. Later writes are not in the file, and a key may run "
            "on both sides. To move it, export it with --close"
        )
    document = {
        "file": str(file),
        "tables": dict(zip(done.tables, done.totals.rows, strict=True)),
        "records": done.totals.records,
        "closed": done.closed,
    }
    if args.json:
        print_json(document)
    else:
        rows = [(name, f"{count:,}") for name, count in zip(done.tables, done.totals.rows, strict=True)]
        print_text(format_table(("TABLE", "ROWS"), [*rows, ("(records of keys)", f"{done.totals.records:,}")]))
        print_text(format_facts([("file", file), ("closed", "yes" if done.closed else "no")]))
    return exit_codes.FINE


def _import(args: argparse.Namespace) -> int:
    """Bring a file's database to its new place."""
    from onceward.service.sql.moving import ImportOptions, MoveChoices, import_database
    from onceward.service.sql.moving.export_file import ExportFile

    file = Path(args.file)
    header = ExportFile(file).header
    place = _place(args, f"{header.tenant}/{header.database}", header.environment)
    options = ImportOptions(MoveChoices(dict(args.column_type), args.without), args.dry_run, args.restart)
    if args.dry_run:
        with _progress() as progress:
            report = import_database(file, place.where, options, progress=progress)
    else:
        with _deciding_about(args, "database.import", place) as made, _progress() as progress:
            report = import_database(file, place.where, options, progress=progress)
            made.after = {**_counts(report), "imported": not (report.obstacles or report.differs)}
    _print_import(args, report, header.closed)
    return exit_codes.NO if report.obstacles or report.differs else exit_codes.FINE


def _counts(report: ImportReport) -> dict[str, Any]:
    return {
        "rows": sum(one.rows for one in report.compared[:-1]),
        "records": report.compared[-1].rows if report.compared else 0,
        "obstacles": len(report.obstacles),
    }


def _print_import(args: argparse.Namespace, report: ImportReport, closed: bool) -> None:
    if args.json:
        shown = [{"what": one.what, "why": one.why, "advice": one.advice} for one in report.obstacles]
        compared = [one._asdict() for one in report.compared]
        print_json({"obstacles": shown, "compared": compared, "already": report.already})
        return
    if report.obstacles:
        rows = [(one.what, one.why, one.advice) for one in report.obstacles]
        print_text(format_table(("CANNOT BE MOVED", "WHY", "TO GO ON"), rows))
        print_note("nothing was written. Decide what to do about each of these, and run the command again")
        return
    if report.already:
        print_note("this file was imported there before; nothing was done")
        return
    if args.dry_run:
        print_note("everything fits; nothing was written")
        return
    lines = [
        (one.name, f"{one.rows:,}", one.digest[:16], "differs" if one.differences else "equal")
        for one in report.compared
    ]
    print_text(format_table(("READ AGAIN", "ROWS", "DIGEST", ""), lines))
    for one in report.compared:
        for line in one.differences:
            print_text(f"{one.name}: {line}")
    if report.differs:
        print_note(
            "the imported data is not what was exported, so it was not put into use. Export and import it again, with "
            "--restart"
        )
    elif not closed:
        print_note("its source was open when it was exported: what was written there since is not here")


def _reopen(args: argparse.Namespace) -> int:
    """Let a closed database take writes again."""
    from onceward.service.sql.moving import reopen_database

    place = _place(args)
    if args.yes != place.database:
        raise exit_codes.UsageError(
            "nothing was changed. If this database is in use where it was moved to, keys could run on both "
            "sides. Make sure it is not, then pass its name as --yes NAME"
        )
    place.check()
    with _deciding_about(args, "database.reopen", place) as made:
        was_closed = reopen_database(place)
        made.after = {"wasClosed": was_closed}
    if args.json:
        print_json({"wasClosed": was_closed})
    else:
        print_text(format_facts([("database", args.database), ("was closed", "yes" if was_closed else "no")]))
    return exit_codes.FINE


# What they share.


def _place(args: argparse.Namespace, named: str | None = None, environment: str | None = None) -> DatabasePlace:
    from onceward.service.sql.moving import DatabasePlace

    tenant, slash, database = (named or args.database).partition("/")
    if not slash:
        raise exit_codes.UsageError("write the database as TENANT/DATABASE, such as acme/shop")
    try:
        tenant_name(tenant)
    except argparse.ArgumentTypeError as error:
        raise exit_codes.UsageError(str(error)) from None
    return DatabasePlace(args.where, tenant, environment or args.environment, database)


@contextmanager
def _deciding_about(args: argparse.Namespace, action: str, place: DatabasePlace) -> Iterator[OpenDecision]:
    """Write a decision down in the log of the service whose database it is about."""
    subject = f"database {place.database}"
    with deciding(
        args, _log_url(args, place), action, subject, tenant=place.tenant, environment=place.environment
    ) as made:
        yield made


def _log_url(args: argparse.Namespace, place: DatabasePlace) -> str:
    """The store of that service: the one that was named, or else the one that `serve` uses by itself."""
    from onceward.service.settings import Settings, store_url_of

    named: str = args.store or os.environ.get(VARIABLE, "")
    if named or place.is_postgres:
        return named or place.where
    return store_url_of(Settings(folder=place.where))


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    with progress_of("moving") as line:
        yield lambda what, done, total: part_of(partial(_draw, line, what), done, total, "rows")


def _draw(line: Progress, what: str, share: float, words: str) -> None:
    line(share, f"{what}, {words}")


def _column_type(text: str) -> tuple[str, str]:
    column, equals, type = text.partition("=")
    if not equals or "." not in column or not type:
        raise argparse.ArgumentTypeError("write it as TABLE.COLUMN=TYPE, such as orders.note=text")
    return column, type


_WHERE = "the folder of a service, or the postgresql:// URL of its databases"
_DATABASE = Argument("database", "the tenant and its database", metavar="TENANT/DATABASE")
_FROM = Argument("--from", _WHERE, metavar="PLACE", dest="where", required=True)
_ENVIRONMENT = Argument("--environment", "the environment of the database", choices=ENVIRONMENTS, default="live")
_LOG = Argument(
    "--store",
    "the service's store, for its decision log",
    metavar="URL",
    default_text=f"${VARIABLE}, or the one in the folder or database",
)

COMMANDS = (
    Command(
        name="db export",
        summary="write a tenant's database into a file: rows, schema, and the records of its keys and plans",
        run=_export,
        arguments=(
            _DATABASE,
            Argument("file", "the file to write", metavar="FILE"),
            _FROM,
            _ENVIRONMENT,
            Argument("--close", "stop it from taking writes: for a move", action="store_true"),
            Argument("--overwrite", "replace the file if it exists", action="store_true"),
            *DECIDING,
            _LOG,
        ),
        examples=("onceward db export acme/shop shop.jsonl --from onceward-data --close",),
        exit_codes=exit_codes.TO_DECIDE,
        no="there is no such database",
        more=(
            "Takes one snapshot, while the service runs. With --close no key can run on both sides: "
            "writers are told that the database has moved. If it is killed, run it again. The file holds the tenant's "
            "data: only you can read it, and it stays until you delete it."
        ),
    ),
    Command(
        name="db import",
        summary="import a database from a file into a service's folder or PostgreSQL, and compare it row by row",
        run=_import,
        arguments=(
            Argument("file", "what `onceward db export` wrote", metavar="FILE"),
            Argument("--to", _WHERE, metavar="PLACE", dest="where", required=True),
            Argument("--dry-run", "only list what would not fit", action="store_true"),
            Argument(
                "--column-type",
                "give a column another type; may be repeated",
                metavar="TABLE.COLUMN=TYPE",
                type=_column_type,
                action="append",
                default=[],
            ),
            Argument(
                "--without",
                "leave out something that was listed; may be repeated",
                metavar="WHAT",
                action="append",
                default=[],
            ),
            Argument("--restart", "discard what an earlier import began", action="store_true"),
            *DECIDING,
            _LOG,
        ),
        examples=("onceward db import export.jsonl --to onceward-data",),
        exit_codes=exit_codes.TO_DECIDE,
        no="something cannot be moved, or what arrived differs",
        more=(
            "Whatever the target cannot hold is listed before anything is written, with what to do "
            "(exit code 1). If it is killed, run it again: it continues where it stopped. No service uses the database "
            "before it has been compared."
        ),
    ),
    Command(
        name="db reopen",
        summary="let a database that was closed for a move take writes again",
        run=_reopen,
        arguments=(
            _DATABASE,
            _FROM,
            _ENVIRONMENT,
            Argument(
                "--yes", "the name of the database again, to confirm that it is in use nowhere else", metavar="NAME"
            ),
            *DECIDING,
            _LOG,
        ),
        examples=("onceward db reopen acme/shop --from onceward-data --yes shop",),
        exit_codes=exit_codes.TO_DECIDE,
        no="there is no such database",
    ),
)
