"""
Which record a command is about: its id, its digest as logs and errors show it, or scope and key.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from onceward._core.record import Record
from onceward._core.store_protocols import Store
from onceward.cli import exit_codes
from onceward.cli.argument_types import id_digits
from onceward.cli.command_table import Argument
from onceward.cli.store_argument import SEAL_KEYS, STORE
from onceward.gate.operator_actions import CANDIDATES_MAX, find_records, id_of_key

DIGITS_MORE = 8
"""Shown of each candidate beyond what was typed: 32 bits, enough to tell them apart."""

RECORD = (
    Argument("id", "the record's id, or its digest", metavar="ID", nargs="?", type=id_digits),
    Argument("--scope", "with --key: the scope of the gate", metavar="SCOPE"),
    Argument("--key", "with --scope: the key, as the caller gives it", metavar="KEY"),
    STORE,
    SEAL_KEYS,
)
"""The arguments of a command about one record: which it is, and the store it is in."""


def find_record(store: Store, args: argparse.Namespace) -> Record:
    """The record of a store that was named."""
    return one_record(
        args, lambda scope, key: store.load(id_of_key(scope, key)), lambda digits: find_records(store, digits)
    )


def one_record(
    args: argparse.Namespace,
    by_key: Callable[[str, str], Record | None],
    by_digits: Callable[[str], list[Record]],
) -> Record:
    """The record that was named, wherever it is looked for."""
    if args.id is None:
        if args.scope is None or args.key is None:
            raise exit_codes.UsageError("no record was named. Give its id or digest, or both --scope and --key")
        found = by_key(args.scope, args.key)
        if found is None:
            raise exit_codes.NoSuchRecord(
                "there is no record of that key in that scope: it was never claimed, or was forgotten"
            )
        return found
    if args.scope is not None or args.key is not None:
        raise exit_codes.UsageError(
            "it was named in two ways. Give the record's id or digest, or --scope and --key, but not both"
        )
    candidates = by_digits(args.id)
    if not candidates:
        raise exit_codes.NoSuchRecord(f"no record's id begins with {args.id}: it is in another store, or was forgotten")
    if len(candidates) > 1:
        shown = ", ".join(one.id.hex()[: len(args.id) + DIGITS_MORE] for one in candidates)
        more = " (and perhaps more)" if len(candidates) == CANDIDATES_MAX else ""
        raise exit_codes.DigestAmbiguous(f"several ids begin with {args.id}: {shown}{more}. Give more digits")
    return candidates[0]
