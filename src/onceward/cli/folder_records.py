"""
`onceward records list` and `show` with `--folder`: the records of keyed SQL, in the databases of a service's tenants.

They are only read, so the service may run meanwhile. There is nothing to decide about them: each was committed together
with what its statement wrote.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from onceward._core.errors import RequestInvalid
from onceward._core.keys import ENVIRONMENTS, KEY_PARTS
from onceward._core.record import Record, shown_state
from onceward.cli import exit_codes
from onceward.cli.command_table import Argument
from onceward.cli.record_listing import ListedRecords
from onceward.cli.record_selection import one_record
from onceward.gate.operator_actions import id_of_key, id_of_step
from onceward.service.settings import DATABASES

if TYPE_CHECKING:
    from onceward.service.sql.database_files import DatabaseName
    from onceward.service.sql.database_records import DatabaseRecords

FOLDER = Argument("--folder", "use the databases in this service's folder instead of a store", metavar="PATH")

IN_FOLDER = (
    FOLDER,
    Argument("--tenant", "with --folder: only this tenant's databases", metavar="NAME"),
    Argument("--database", "with --folder: only databases of this name", metavar="NAME"),
)
"""The arguments of a list that looks into a service's folder."""


def check_no_folder(args: argparse.Namespace) -> None:
    """Refuse what only goes with --folder."""
    for name in ("tenant", "database"):
        if getattr(args, name) is not None:
            raise exit_codes.UsageError(f"--{name.replace('_', '-')} needs --folder, the folder of a service")


def list_in_folder(args: argparse.Namespace) -> ListedRecords:
    """One page. What is left out by its state is made up for from the next pages."""
    reader = _reader(args)
    names = _chosen(reader.everybody(), args)
    by_age = args.order == "age" or args.older_than is not None
    found: list[Record] = []
    after: str | None = args.after or ""
    try:
        while after is not None and len(found) < args.limit:
            left = args.limit - len(found)
            if by_age:
                page = reader.oldest(names, left, after, older_than=args.older_than or 0.0, scope=args.scope)
            else:
                page = reader.page(names, left, after, args.scope)
            records = [one.record for one in page.found]
            found += [one._replace(result=None) for one in records if args.state in (None, shown_state(one))]
            after = page.after
    except RequestInvalid as error:
        raise exit_codes.UsageError(str(error)) from None
    return ListedRecords(found, after)


def find_in_folder(args: argparse.Namespace) -> Record:
    """The record that was named. A step's key is `PLAN / STEP`, as it is listed."""
    reader = _reader(args)
    names = reader.everybody()

    def by_key(scope: str, key: str) -> Record | None:
        plan, slash, step = key.partition(KEY_PARTS)
        id = id_of_step(scope, plan, step) if slash else id_of_key(scope, key)
        found = reader.load(names, lambda _: id)
        return found[0].record if found else None

    return one_record(args, by_key, lambda digits: [one.record for one in reader.begin_with(names, digits)])


def _reader(args: argparse.Namespace) -> DatabaseRecords:
    from onceward.service.sql.database_records import DatabaseRecords  # Here, so that `--help` does not wait for it.

    if args.store is not None:
        raise exit_codes.UsageError("give --folder or --store, not both")
    return DatabaseRecords(Path(args.folder) / DATABASES)


def _chosen(names: list[DatabaseName], args: argparse.Namespace) -> list[DatabaseName]:
    from onceward.service.sql.database_files import namespace_of

    spaces = None if args.tenant is None else {namespace_of(one, args.tenant) for one in ENVIRONMENTS}
    return [
        one for one in names if (spaces is None or one.namespace in spaces) and args.database in (None, one.database)
    ]
