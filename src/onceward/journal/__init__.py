"""
The journal: what was tried and how it ended, for people to read. It protects nothing; the gate does.

    journal = Journal("sqlite:///agent.db", scope="live:acme", worker="reconciler-v1")
    with journal.run("march") as run, run.turn(1) as turn:
        with turn.call("record_expense", key=key, arguments=expense) as call:
            call.wrote(insert_once(...))         # 1: executed; 0: replayed

Writing never fails the work that is noted. May import: _core, runtime, stores, gate; the gate never imports it. Start
reading with `journal_async.py`; `notes.py` has what is written, `views.py` what is read.
"""

from onceward.journal.call_attempt import in_run
from onceward.journal.journal import Journal
from onceward.journal.journal_async import AsyncJournal
from onceward.journal.notes import CallOutcome, RunStatus
from onceward.journal.views import CallView, RunView, TurnView

__all__ = ["AsyncJournal", "CallOutcome", "CallView", "Journal", "RunStatus", "RunView", "TurnView", "in_run"]
