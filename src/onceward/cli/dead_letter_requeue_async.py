# blocking half: dead_letter_requeue.py
"""
`onceward dead requeue --app`: requeue a dead letter with the app's own handler.
"""

from __future__ import annotations

import argparse

from onceward._core.dead_letters import DeadLetter
from onceward.cli.dead_letter_selection import deciding_requeue, requeue_error, require_one_letter
from onceward.gate.dead_letter_box_async import AsyncDeadLetterBox


async def requeue_letter_async(box: AsyncDeadLetterBox, args: argparse.Namespace) -> DeadLetter:
    """Requeue the dead letter that the arguments name."""
    async with box.gate:  # The app was loaded for this command alone.
        found = await (box.get(args.key) if args.id is None else box.find(args.id))
        dead_letter = require_one_letter(found, args)
        with deciding_requeue(args, box.gate.store, dead_letter):
            try:
                await box.requeue(dead_letter, did_not_happen=args.did_not_happen)
            except Exception as error:
                raise requeue_error(dead_letter, error) from None
    return dead_letter
