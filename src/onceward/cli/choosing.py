"""
Which dead letter a command means, and what is said if it failed again.
"""

from __future__ import annotations

import argparse
from typing import Any

from onceward._core.codec import message_of, type_name
from onceward._core.errors import OncewardError
from onceward._core.letters import Letter
from onceward.cli import exits
from onceward.cli.tables import shortened

MESSAGE_CHARACTERS_MAX = 300
"""Of a handler's error, on the command line."""


def is_by_key(asked: argparse.Namespace) -> bool:
    """Whether it is named by scope and key; otherwise by its id."""
    if asked.id is None:
        if asked.scope is None or asked.key is None:
            raise exits.UsageError("which dead letter? Give its id or digest, or both --scope and --key")
        return True
    if asked.scope is not None or asked.key is not None:
        raise exits.UsageError("give a letter's id or digest, or --scope and --key, and not both")
    return False


def the_one(found: tuple[Letter, ...] | Letter | None, asked: argparse.Namespace) -> Letter:
    """The letter, if there is just one."""
    letters = list(found) if isinstance(found, tuple) else [] if found is None else [found]
    letter: Letter = only(letters, asked)
    return letter


def only(candidates: list[Any], asked: argparse.Namespace) -> Any:
    """The one that is there."""
    if not candidates:
        which = "of that key in that scope" if asked.id is None else f"whose id begins with {asked.id}"
        raise exits.NoSuchRecord(
            f"there is no dead letter {which}: it was discarded or forgotten, or is in another store"
        )
    if len(candidates) > 1:
        raise exits.DigestAmbiguous(f"several dead letters begin with {asked.id}; give more digits")
    return candidates[0]


def failed_again(letter: Letter, error: Exception) -> OncewardError:
    """What a handler raised, as an error of ours."""
    if isinstance(error, OncewardError):
        return error
    said = shortened(message_of(error), MESSAGE_CHARACTERS_MAX)
    return exits.RequeueFailed(f"{letter.name} failed again: {type_name(type(error))}: {said}; the letter was updated")
