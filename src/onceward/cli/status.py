"""
`onceward status`: whether anybody is needed, and for what. What the dashboard shows is the same (`onceward.overview`).
"""

from __future__ import annotations

import argparse

from onceward.cli import exit_codes
from onceward.cli.command_table import Command
from onceward.cli.output import print_json, print_text
from onceward.cli.status_output import findings_text, look, status_document, verdict_text
from onceward.cli.store_argument import STORE


def _status(args: argparse.Namespace) -> int:
    """Show what waits for a person."""
    seen = look(args)
    if args.json:
        print_json(status_document(seen))
    else:
        print_text(findings_text(seen.findings, args))
        print_text(f"\n{verdict_text(seen)}")
    return exit_codes.NO if seen.needs_somebody else exit_codes.FINE


COMMANDS = (
    Command(
        name="status",
        summary="show whether anything needs you, why, and what to type",
        run=_status,
        arguments=(STORE,),
        examples=("onceward status  # exit 1", "onceward status --json  # exit 1"),
        exit_codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.STORE),
        no="something needs a person",
        more="Looks at records in doubt, dead letters (operations, messages, events), the relay, the inbox, operations "
        "in flight, breakers, the purge, whether the store lost anything, and a migration that stopped half-way. Exit "
        "code 1: something needs a person; 0: nothing does. Nothing is changed. PostgreSQL and Redis use indexes; a "
        "SQLite file is read from end to end.",
    ),
)
