"""
The demo's second act: the Reconciler, killed twice and resumed. See reconcile.py for the worker.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from mail_server import MailServer
from reconciler_drill import Drill, Tally

KILLS = [("reconciler.committed", 2), ("relay.deliver.after", 0)]
SCENES = [
    "kill -9: line 3 is committed, and the worker has not heard so",
    "kill -9: it began again; the mail server has taken a mail, and nobody has noted that",
    "the third worker is left alone, and comes to the end",
]


def second_act(refusing: bool, tell: Callable[[str], None]) -> int:
    """Play it; the exit code: 0 only for one expense and one mail a line."""
    with tempfile.TemporaryDirectory(prefix="onceward-demo-") as name:
        folder = Path(name)
        mails = folder / "mails.jsonl"
        tell("a bank statement of 6 lines is reconciled: an expense, a confirmation and a mail for each")
        with MailServer(file=mails) as server, Drill(folder, server.port, mails) as drill:
            scenes = iter(SCENES)
            kills = [{"place": at, "skip": skip} for at, skip in KILLS]
            tally = drill.run(
                f"sqlite:///{folder}/books.db", kills, constraint=refusing, tell=lambda _: tell(next(scenes))
            )
    _show(tally)
    return _told(tally, refusing)


def _show(tally: Tally) -> None:
    print(f"\n  {tally.lines} lines  ->  {tally.started} workers, {tally.killed} killed")
    print(f"  {'expenses':16}{tally.expenses:>4}   confirmations {tally.confirmations}")
    print(f"  {'mail deliveries':16}{tally.deliveries:>4}   at least once; a repeat has the Message-ID of the first")
    print(f"  {'mails':16}{tally.mails:>4}   after the receiver's recognition")
    ends = f"{tally.effects} executed, {tally.unended} without an end (killed)"
    print(f"  {'attempts':16}{tally.attempts:>4}   in the journal: {ends}\n")


def _told(tally: Tally, refusing: bool) -> int:
    if not tally.faults:
        print("ONE EXPENSE AND ONE MAIL A LINE. The constraint refused the rest; the journal tells of every attempt.")
        return 0
    print("!" * 72)
    print(f"!!! {tally.expenses} EXPENSES AND {tally.mails} MAILS FOR {tally.lines} LINES OF THE BANK.")
    print("!!! " + ("This must not happen." if refusing else "The journal saw it all, and stopped none of it."))
    print("!" * 72)
    return 1
