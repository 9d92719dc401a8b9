"""
`onceward store install-functions`: the contract as functions of PostgreSQL, for whoever does not call from Python.
"""

from __future__ import annotations

import argparse

from onceward.cli import exit_codes
from onceward.cli.command_table import Argument, Command
from onceward.cli.output import print_json, print_text
from onceward.cli.store_argument import STORE, existing_store_url, store_url
from onceward.cli.text_tables import format_facts
from onceward.stores._store_kinds import kind_of, scheme_of

_SCHEMES = ("postgresql", "postgres")


def _install(args: argparse.Namespace) -> int:
    url = _postgres_url(args)
    kind_of(url)  # It says which package is missing.
    from onceward.stores import _postgres_function_installer as installer

    existing_store_url(args)
    if args.sql:
        sql = installer.planned_script(url, remove=args.remove)
        if args.json:
            print_json({"sql": sql})
        else:
            print_text(sql)
        return exit_codes.FINE
    move = installer.remove(url) if args.remove else installer.install(url)
    if args.json:
        print_json(move._asdict())
    else:
        facts = {name: value or "none" for name, value in move._asdict().items()}
        print_text(format_facts(facts.items()))
    return exit_codes.FINE


def _postgres_url(args: argparse.Namespace) -> str:
    url = store_url(args)
    scheme = scheme_of(url)
    if scheme not in _SCHEMES:
        raise exit_codes.UsageError(
            f"functions are installed in PostgreSQL, and this store is {scheme}://. With this store, call Onceward "
            "from Python, or `onceward serve` over HTTP"
        )
    return url


FUNCTION_COMMANDS = (
    Command(
        name="store install-functions",
        summary="make PostgreSQL functions that claim and settle in the caller's own transaction",
        run=_install,
        arguments=(
            Argument("--sql", "print the statements, for an administrator to run; change nothing", action="store_true"),
            Argument("--remove", "remove them; tables and records stay", action="store_true"),
            STORE,
        ),
        examples=("onceward store install-functions --sql --store sqlite:///agent.db  # exit 2",),
        exit_codes=exit_codes.TO_LIST,
        more="For stored procedures and other languages: the records are those of Python's gate.atomic. It is one "
        "transaction, and running it again is safe.",
    ),
)
