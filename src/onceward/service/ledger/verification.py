"""
What makes a delta count. A rule looks at a delta and says what is wrong with it, or nothing.

    inline      in the transaction that books it: what the rule refuses is not booked (422 `delta_refused`)
    queued      it is booked as `queued` and does not count; a worker asks the rule, and it is `verified` or `failed`

What a delta must be in any case (amount, customer, period, what it corrects) is decided when it is booked, and the
chain is written then, in either mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from onceward.service.ledger.hash_chain import ENTRY_COLUMNS, LedgerEntry, entry_seal
from onceward.stores.tables import Sql, SqlSteps

VERIFIED, QUEUED, FAILED = "verified", "queued", "failed"
VERIFY_MODES = ("inline", "queued")
BATCH = 100

DeltaRule: TypeAlias = Callable[[LedgerEntry], str | None]
"""Given an entry, what is wrong with it; None if nothing is. Asked again after a crash, so it only looks."""

_WAITING = f"""SELECT {ENTRY_COLUMNS} FROM onceward_ledger_entries WHERE status = 'queued'
    ORDER BY booked_at, id LIMIT :limit"""  # noqa: S608 - names of ours
_NOW = "SELECT :now"
_JUDGED = """UPDATE onceward_ledger_entries SET status = :status, failure = :failure, verified_at = :at, seal = :seal
    WHERE id = :id AND status = 'queued' RETURNING id"""


def accept_all(entry: LedgerEntry) -> str | None:
    """The default rule: what was booked is sound."""
    return None


def queued_entries(limit: int) -> SqlSteps[list[LedgerEntry]]:
    """Entries that wait for their verdict, oldest first."""
    return [LedgerEntry(*row) for row in (yield Sql(_WAITING, {"limit": limit}))]


def write_verdicts(verdicts: list[tuple[LedgerEntry, str | None]]) -> SqlSteps[int]:
    """Write verdicts down; how many. What another worker has judged meanwhile stays as it is."""
    [(now,)] = yield Sql(_NOW, {})
    judged = 0
    # In one order whoever judges, so that two workers with the same entries wait for each other and do not block.
    for entry, failure in sorted(verdicts, key=lambda verdict: verdict[0].id):
        status = VERIFIED if failure is None else FAILED
        seal = entry_seal(entry.hash, status, failure, now)
        values = {"id": entry.id, "status": status, "failure": failure, "at": now, "seal": seal}
        judged += len((yield Sql(_JUDGED, values)))
    return judged
