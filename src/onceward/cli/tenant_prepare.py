"""
`onceward tenant prepare`: print what an administrator of PostgreSQL has to run before tenants' SQL is kept there.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from onceward._core.errors import ConfigurationError
from onceward.cli import exit_codes
from onceward.cli.command_table import Argument, Command
from onceward.cli.output import print_json, print_note, print_text


def _prepare(args: argparse.Namespace) -> int:
    """Print the script. Nothing is opened."""
    if find_spec("psycopg") is None:
        raise ConfigurationError("tenants' SQL on PostgreSQL needs psycopg: pip install 'onceward[postgres]'")
    from onceward.service.sql.postgres.preparation import ROLE, preparation_script

    script = preparation_script(args.database, role=args.role or ROLE, managed=args.managed)
    if args.json:
        print_json({"sql": script})
        return exit_codes.FINE
    print_text(script.rstrip("\n"))
    if args.managed:
        print_note(
            "without the superuser's part, only the SQL parser keeps tenants away from the server's catalogs and "
            "functions"
        )
    return exit_codes.FINE


PREPARE_COMMANDS = (
    Command(
        name="tenant prepare",
        summary="print the script with which an administrator prepares PostgreSQL for tenants' SQL",
        run=_prepare,
        arguments=(
            Argument("--database", "the database, which the service must not share", metavar="NAME", required=True),
            Argument("--role", "the role that the service logs in as", metavar="NAME", default_text="onceward"),
            Argument("--managed", "leave out what only a superuser can do", action="store_true"),
        ),
        examples=("onceward tenant prepare --database tenants", "onceward tenant prepare --database tenants --managed"),
        exit_codes=(exit_codes.FINE, exit_codes.USAGE),
        more="Nothing is opened or changed: the script goes to stdout, for psql. Running the script again "
        "is safe; run it again after an upgrade of PostgreSQL or Onceward.",
    ),
)
