"""
Which dead letter a command means, and what is said if it failed again.
"""

from __future__ import annotations

import argparse
from typing import Any

from onceward._core.codec import message_of, type_name
from onceward._core.dead_letters import DeadLetter
from onceward._core.errors import OncewardError
from onceward.cli import exit_codes
from onceward.cli.text_tables import shorten

MESSAGE_CHARACTERS_MAX = 300
"""Of a handler's error, on the command line."""


def is_named_by_key(asked: argparse.Namespace) -> bool:
    """Whether it is named by scope and key; otherwise by its id."""
    if asked.id is None:
        if asked.scope is None or asked.key is None:
            raise exit_codes.UsageError("which dead letter? Give its id or digest, or both --scope and --key")
        return True
    if asked.scope is not None or asked.key is not None:
        raise exit_codes.UsageError("give a letter's id or digest, or --scope and --key, and not both")
    return False


def require_one_letter(found: tuple[DeadLetter, ...] | DeadLetter | None, asked: argparse.Namespace) -> DeadLetter:
    """The letter, if there is just one."""
    letters = list(found) if isinstance(found, tuple) else [] if found is None else [found]
    letter: DeadLetter = require_one(letters, asked)
    return letter


def require_one(candidates: list[Any], asked: argparse.Namespace) -> Any:
    """The one that is there."""
    if not candidates:
        which = "of that key in that scope" if asked.id is None else f"whose id begins with {asked.id}"
        raise exit_codes.NoSuchRecord(
            f"there is no dead letter {which}: it was discarded or forgotten, or is in another store"
        )
    if len(candidates) > 1:
        raise exit_codes.DigestAmbiguous(f"several dead letters begin with {asked.id}; give more digits")
    return candidates[0]


def requeue_error(letter: DeadLetter, error: Exception) -> OncewardError:
    """What a handler raised, as an error of ours."""
    if isinstance(error, OncewardError):
        return error
    said = shorten(message_of(error), MESSAGE_CHARACTERS_MAX)
    return exit_codes.RequeueFailed(
        f"{letter.name} failed again: {type_name(type(error))}: {said}; the letter was updated"
    )
