# Made from requeuing_async.py by `make halves`: change that file, not this one.
"""
Doing a dead letter again by the app's own handler.
"""

from __future__ import annotations

import argparse

from onceward import DeadLetterBox
from onceward._core.letters import Letter
from onceward.cli.choosing import failed_again, the_one


def requeue(box: DeadLetterBox, asked: argparse.Namespace) -> Letter:
    """Do the letter again that is asked for."""
    with box.gate:  # The app was loaded for this command alone.
        found = box.get(asked.key) if asked.id is None else box.find(asked.id)
        letter = the_one(found, asked)
        try:
            box.requeue(letter, did_not_happen=asked.did_not_happen)
        except Exception as error:
            raise failed_again(letter, error) from None
    return letter
