# Made from dead_letter_requeue_async.py by `make halves`: change that file, not this one.
"""
`onceward dead requeue --app`: requeue a dead letter with the app's own handler.
"""

from __future__ import annotations

import argparse

from onceward._core.dead_letters import DeadLetter
from onceward.cli.dead_letter_selection import deciding_requeue, requeue_error, require_one_letter
from onceward.gate.dead_letter_box import DeadLetterBox


def requeue_letter(box: DeadLetterBox, args: argparse.Namespace) -> DeadLetter:
    """Requeue the dead letter that the arguments name."""
    with box.gate:  # The app was loaded for this command alone.
        found = box.get(args.key) if args.id is None else box.find(args.id)
        dead_letter = require_one_letter(found, args)
        with deciding_requeue(args, box.gate.store, dead_letter):
            try:
                box.requeue(dead_letter, did_not_happen=args.did_not_happen)
            except Exception as error:
                raise requeue_error(dead_letter, error) from None
    return dead_letter
