# blocking half: requeuing.py
"""
Doing a dead letter again by the app's own handler.
"""

from __future__ import annotations

import argparse

from onceward import AsyncDeadLetterBox
from onceward._core.letters import Letter
from onceward.cli.choosing import failed_again, the_one


async def requeue_async(box: AsyncDeadLetterBox, asked: argparse.Namespace) -> Letter:
    """Do the letter again that is asked for."""
    async with box.gate:  # The app was loaded for this command alone.
        found = await (box.get(asked.key) if asked.id is None else box.find(asked.id))
        letter = the_one(found, asked)
        try:
            await box.requeue(letter, did_not_happen=asked.did_not_happen)
        except Exception as error:
            raise failed_again(letter, error) from None
    return letter
