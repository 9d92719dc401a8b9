"""
Which dead letter a command is about: its id, its digest, or scope and key; and the error if it failed again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onceward._core.capabilities import capabilities_of
from onceward._core.codec import message_of, type_name
from onceward._core.dead_letters import DeadLetter
from onceward._core.errors import OncewardError
from onceward._core.store_protocols import AsyncStore, Store
from onceward.audit import OpenDecision
from onceward.cli import exit_codes
from onceward.cli.command_table import Argument
from onceward.cli.dead_messages import letter_name
from onceward.cli.decisions import deciding
from onceward.cli.store_argument import SEAL_KEYS, STORE
from onceward.cli.text_tables import shorten
from onceward.gate.record_decisions import environment_of
from onceward.service.access.scopes import tenant_of

MESSAGE_CHARACTERS_MAX = 300
"""Of a handler's error, on the command line."""

DEAD_LETTER = (
    Argument(
        "id", "the dead letter's id, or its digest; a message's is msg_...", metavar="ID", nargs="?", type=letter_name
    ),
    Argument("--scope", "with --key: the scope of the gate", metavar="SCOPE"),
    Argument("--key", "with --scope: the key, as the caller gives it", metavar="KEY"),
    STORE,
    SEAL_KEYS,
)
"""The arguments of a command about one dead letter: which it is, and the store it is in."""


@contextmanager
def deciding_requeue(
    args: argparse.Namespace, store: Store | AsyncStore, dead_letter: DeadLetter
) -> Iterator[OpenDecision]:
    """Write down that a dead letter is requeued, in the decision log beside the store that it is in."""
    scope = dead_letter.scope
    about: dict[str, Any] = {"tenant": tenant_of(scope), "environment": environment_of(scope)}
    before = {"scope": scope, "didNotHappen": args.did_not_happen}
    url = capabilities_of(store).tables
    with deciding(args, url, "letter.requeue", dead_letter.id, **about, before=before) as made:
        yield made


def is_named_by_key(args: argparse.Namespace) -> bool:
    """Whether it is named by scope and key; otherwise by its id."""
    if args.id is None:
        if args.scope is None or args.key is None:
            raise exit_codes.UsageError("no dead letter was named. Give its id or digest, or both --scope and --key")
        return True
    if args.scope is not None or args.key is not None:
        raise exit_codes.UsageError(
            "it was named in two ways. Give the dead letter's id or digest, or --scope and --key, but not both"
        )
    return False


def require_one_letter(found: tuple[DeadLetter, ...] | DeadLetter | None, args: argparse.Namespace) -> DeadLetter:
    """The one dead letter that a box found."""
    letters = list(found) if isinstance(found, tuple) else [] if found is None else [found]
    dead_letter: DeadLetter = require_one(letters, args)
    return dead_letter


def require_one(candidates: list[Any], args: argparse.Namespace) -> Any:
    """The only candidate; an error if there is none, or more than one."""
    if not candidates:
        which = "of that key in that scope" if args.id is None else f"whose id begins with {args.id}"
        raise exit_codes.NoSuchRecord(
            f"there is no dead letter {which}: it was discarded or forgotten, or is in another store"
        )
    if len(candidates) > 1:
        raise exit_codes.DigestAmbiguous(f"the ids of several dead letters begin with {args.id}. Give more digits")
    return candidates[0]


def requeue_error(dead_letter: DeadLetter, error: Exception) -> OncewardError:
    """What a handler raised, as an error of ours."""
    if isinstance(error, OncewardError):
        return error
    message = shorten(message_of(error), MESSAGE_CHARACTERS_MAX)
    return exit_codes.RequeueFailed(
        f"{dead_letter.name} failed again: {type_name(type(error))}: {message}. "
        "The dead letter stays, with this attempt"
    )
