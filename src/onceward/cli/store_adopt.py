"""
`onceward store adopt`: say that the databases of a store's tenants are somewhere else from now on.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onceward.cli import exit_codes
from onceward.cli.command_table import Argument, Command
from onceward.cli.decisions import DECIDING, deciding
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.store_argument import STORE, existing_store_url
from onceward.cli.tenant_databases import FOLDER, SQL, SQL_VARIABLE, VARIABLE
from onceward.cli.text_tables import format_facts

if TYPE_CHECKING:  # Not imported before it is needed: `--help` does not wait for it.
    from onceward.service.sql_home import SqlHome


def _adopt(args: argparse.Namespace) -> int:
    """Replace the home of databases, after it was named."""
    from onceward.service.private_folder import make_private_folder
    from onceward.service.sql_home import adopt_sql_home, find_sql_home, folder_home

    url = existing_store_url(args)
    server, folder = _chosen(args)
    before = find_sql_home(url)
    subject = f"folder {folder}" if folder is not None else "PostgreSQL"
    with deciding(args, url, "sql.adopt", subject, before=None if before is None else _facts(before)) as made:
        if folder is not None:
            make_private_folder(str(folder))
            home = folder_home(folder)
        else:
            from onceward.service.sql.postgres.server_identity import server_home

            home = server_home(server)
        replaced = adopt_sql_home(url, home, args.replacing)
        made.after = {**_facts(home), "replaced": None if replaced is None else replaced.id}
    if replaced is None:
        print_note("nothing was replaced: there was nothing before")
    else:
        print_note(f"keys that ran in {replaced} are no longer known, unless its databases were moved here")
    if args.json:
        print_json({**_facts(home), "replaced": None if replaced is None else replaced.id})
    else:
        print_text(format_facts([("databases are in", str(home)), ("in place of", replaced and str(replaced))]))
    return exit_codes.FINE


def _chosen(args: argparse.Namespace) -> tuple[str, Path | None]:
    """The URL of the server, or the folder: from flags, or from the variables of the service."""
    if args.sql and args.folder:
        raise exit_codes.UsageError("give --folder or --sql, not both: databases are in one place")
    server = args.sql or ("" if args.folder else os.environ.get(SQL_VARIABLE, ""))
    folder = args.folder or ("" if server else os.environ.get(VARIABLE, ""))
    if not server and not folder:
        raise exit_codes.UsageError("say where the databases are now: --folder PATH, or --sql URL")
    if folder and not Path(folder).is_dir():
        raise exit_codes.UsageError(f"there is no folder {folder}; name the service's folder")
    return server, Path(folder) if folder else None


def _facts(home: SqlHome) -> dict[str, object]:
    return {"kind": home.kind, "id": home.id, "label": home.label}


ADOPT_COMMANDS = (
    Command(
        name="store adopt",
        summary="record that the databases of this store's tenants are now somewhere else",
        run=_adopt,
        arguments=(
            replace(FOLDER, help="the service's folder that has them now", default_text=f"${VARIABLE}"),
            replace(SQL, help="the PostgreSQL database that has them now", default_text=f"${SQL_VARIABLE}"),
            Argument("--replacing", "the id of the folder or database that no longer has them", metavar="ID"),
            *DECIDING,
            STORE,
        ),
        examples=("onceward store adopt --folder onceward-data --replacing 5d1f0c6b9a2e4f738a1d0b5c6e7f8091",),
        exit_codes=exit_codes.TO_LIST,
        more="A service that starts with another folder than the store's is refused, and says what to type here. For a "
        "folder that was lost, or replaced on purpose: keys that ran in the old one are not known in the new one, and "
        "would run "
        "again. A folder that was moved or restored together with its file folder-id does not need this.",
    ),
)
