"""
The adapters by name: where each lives, which Python it runs under, and what has to be said about it.

Only names here; a module is imported in the one process that runs it.
"""

from __future__ import annotations

from typing import NamedTuple

SEQUENTIAL = ("fresh_seq", "replay_seq")
BLOCKING = (*SEQUENTIAL, "fresh_aseq", "fresh_thr", "replay_thr")
AWAITING = ("fresh_task", "replay_task")
ALL = (*BLOCKING, *AWAITING)


class Known(NamedTuple):
    """An adapter, before it is started."""

    label: str
    place: str
    """module:factory"""
    cases: tuple[str, ...] = ALL
    peer: bool = False
    """Runs in the peers' environment."""
    separate: bool = True
    """Whether async callers have a file of their own (settled keys are then made in both)."""


SQLITE = {
    "raw": Known("raw, two durable writes", "bench.adapters.raw:Raw", BLOCKING, separate=False),
    "raw-group": Known("raw group commit, writer thread", "bench.adapters.raw:RawGroup", separate=False),
    "ours": Known("onceward", "bench.adapters.ours:durable"),
    "ours-relaxed": Known("onceward, settle=relaxed", "bench.adapters.ours:relaxed"),
    "exactly-once": Known(
        "exactly-once 0.2.1 forced to FULL", "bench.adapters.peer_exactly_once:full", peer=True, separate=False
    ),
    "exactly-once-normal": Known(
        "exactly-once 0.2.1 as shipped (NORMAL)", "bench.adapters.peer_exactly_once:normal", peer=True, separate=False
    ),
    "agent-once": Known("agent-once 0.1.0", "bench.adapters.peer_agent_once:AgentOnce", peer=True, separate=False),
    "dbos": Known("dbos 3.3.0, file put into WAL", "bench.adapters.peer_dbos:wal", peer=True),
    "dbos-shipped": Known(
        "dbos 3.3.0 as shipped (rollback journal)", "bench.adapters.peer_dbos:shipped", SEQUENTIAL, peer=True
    ),
}

NOTES = (
    "Every adapter syncs the disk before it answers (synchronous FULL), but for two that say otherwise: "
    "exactly-once as shipped is NORMAL and syncs nothing per operation; settle=relaxed syncs the claim only.",
    "exactly-once is forced to FULL with PRAGMA synchronous=FULL on its store's own connection; "
    "its option `fingerprint` is set, so that it compares requests as the others do.",
    "dbos has no option for the journal; its file is put into WAL before it is opened, which favours it.",
    "raw has no lease, no fence, no state but a result that is there or not, and no comparison of requests.",
)
