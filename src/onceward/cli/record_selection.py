"""
Which record a command is about: its id, its digest as logs and errors show it, or scope and key.
"""

from __future__ import annotations

import argparse

from onceward._core.record import Record
from onceward._core.store_protocols import Store
from onceward.cli import exit_codes
from onceward.cli.command_parser import CommandParser, id_digits
from onceward.cli.store_argument import add_store_argument
from onceward.gate.operator_actions import CANDIDATES_MAX, find_records, id_of_key

DIGITS_MORE = 8
"""Shown of each candidate beyond what was typed: 32 bits, enough to tell them apart."""


def add_record_arguments(command: CommandParser) -> None:
    """Let a command take a record, and the store it is in."""
    command.add_argument("id", metavar="ID", nargs="?", type=id_digits, help="the record's id, or its digest")
    command.add_argument("--scope", metavar="SCOPE", help="with --key: the scope of the gate")
    command.add_argument("--key", metavar="KEY", help="with --scope: the key, as the caller gives it")
    add_store_argument(command)


def find_record(store: Store, asked: argparse.Namespace) -> Record:
    """The one record that is meant."""
    if asked.id is None:
        if asked.scope is None or asked.key is None:
            raise exit_codes.UsageError("which record? Give its id or digest, or both --scope and --key")
        found = store.load(id_of_key(asked.scope, asked.key))
        if found is None:
            raise exit_codes.NoSuchRecord(
                "there is no record of that key in that scope: it was never claimed, or was forgotten"
            )
        return found
    if asked.scope is not None or asked.key is not None:
        raise exit_codes.UsageError("give a record's id or digest, or --scope and --key, and not both")
    candidates = find_records(store, asked.id)
    if not candidates:
        raise exit_codes.NoSuchRecord(
            f"no record's id begins with {asked.id}: it is in another store, or was forgotten"
        )
    if len(candidates) > 1:
        shown = ", ".join(one.id.hex()[: len(asked.id) + DIGITS_MORE] for one in candidates)
        more = " (and perhaps more)" if len(candidates) == CANDIDATES_MAX else ""
        raise exit_codes.DigestAmbiguous(f"{asked.id} could be any of {shown}{more}; give more digits")
    return candidates[0]
