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
REQUESTS = ("fresh_http", "replay_http")
WRITTEN = ("fresh_seq", "fresh_thr")
TRANSACTIONS = ("fresh_seq", "replay_seq", "fresh_thr")


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
    "record": Known("the rows of a record by hand", "bench.adapters.raw_record:RawRecord", WRITTEN, separate=False),
    "record-group": Known(
        "the rows of a record by hand, writer thread",
        "bench.adapters.raw_record:RawRecordGroup",
        ("fresh_thr",),
        separate=False,
    ),
    "ours": Known("onceward", "bench.adapters.ours:durable"),
    "ours-relaxed": Known("onceward, settle=relaxed", "bench.adapters.ours:relaxed"),
    "peer-e": Known("peer E 0.2.1 forced to FULL", "bench.adapters.peer_exactly_once:full", peer=True, separate=False),
    "peer-e-normal": Known(
        "peer E 0.2.1 as shipped (NORMAL)", "bench.adapters.peer_exactly_once:normal", peer=True, separate=False
    ),
    "agent-once": Known("agent-once 0.1.0", "bench.adapters.peer_agent_once:AgentOnce", peer=True, separate=False),
    "dbos": Known("dbos 3.3.0, file put into WAL", "bench.adapters.peer_dbos:wal", peer=True),
    "dbos-shipped": Known(
        "dbos 3.3.0 as shipped (rollback journal)", "bench.adapters.peer_dbos:shipped", SEQUENTIAL, peer=True
    ),
}

POSTGRES = {
    "raw": Known("raw, claim-or-get and settle", "bench.adapters.raw_postgres:RawPostgres", separate=False),
    "raw-batched": Known(
        "raw, batches by hand", "bench.adapters.raw_postgres:RawPostgresBatched", AWAITING, separate=False
    ),
    "record": Known(
        "the rows of a record by hand",
        "bench.adapters.raw_record_postgres:RawRecordPostgres",
        WRITTEN,
        separate=False,
    ),
    "ours": Known("onceward", "bench.adapters.ours:server", separate=False),
    "peer-e": Known("peer E 0.2.1", "bench.adapters.peer_exactly_once:postgres", peer=True, separate=False),
    "agent-once": Known("agent-once 0.1.0", "bench.adapters.peer_agent_once:AgentOnce", peer=True, separate=False),
    "idemkit": Known("idemkit 1.0.2", "bench.adapters.peer_idemkit:postgres", peer=True),
    "dbos": Known("dbos 3.3.0", "bench.adapters.peer_dbos:postgres", peer=True),
}

REDIS = {
    "raw": Known("raw, SET NX GET and SET", "bench.adapters.raw_redis:RawRedis", separate=False),
    "raw-batched": Known(
        "raw, pipelines by hand", "bench.adapters.raw_redis:RawRedisBatched", AWAITING, separate=False
    ),
    "record": Known(
        "the row of a record by hand", "bench.adapters.raw_record_redis:RawRecordRedis", WRITTEN, separate=False
    ),
    "ours": Known("onceward", "bench.adapters.ours:server", separate=False),
    "peer-e": Known("peer E 0.2.1", "bench.adapters.peer_exactly_once:redis", peer=True, separate=False),
    "idemkit": Known("idemkit 1.0.2", "bench.adapters.peer_idemkit:redis", peer=True),
    "powertools": Known(
        "powertools 3.37.0",
        "bench.adapters.peer_powertools:Powertools",
        ("fresh_seq", "replay_seq", "fresh_thr", "replay_thr"),
        peer=True,
        separate=False,
    ),
}

METRICS = {
    "ours": Known("onceward, nobody listens", "bench.adapters.ours:durable"),
    "ours-listening": Known("onceward, a listener counts events", "bench.adapters.ours:listening"),
    "ours-metrics": Known("onceward, Metrics listens", "bench.adapters.ours:metered"),
    "ours-journal": Known("onceward, a journal behind the work", "bench.adapters.ours:journaled", AWAITING),
    "hand-journal": Known("onceward, the same rows by hand", "bench.adapters.hand_journal:journaled", AWAITING),
}

ATOMIC = {
    "bare": Known("the bare transaction, no key", "bench.adapters.atomic:Bare", WRITTEN, separate=False),
    "hand-pipelined": Known("pipelined by hand", "bench.adapters.atomic:ByHandPipelined", TRANSACTIONS, separate=False),
    "hand": Known("the same by hand", "bench.adapters.atomic:ByHand", TRANSACTIONS, separate=False),
    "hand-record": Known(
        "the rows of a record by hand", "bench.adapters.atomic:RecordByHand", TRANSACTIONS, separate=False
    ),
    "ours": Known("onceward, gate.atomic", "bench.adapters.atomic:Ours", TRANSACTIONS, separate=False),
}

ATOMIC_LAST = {
    "hand-last": Known("by hand, the key last", "bench.adapters.atomic:ByHandLast", TRANSACTIONS, separate=False),
    "ours-last": Known('onceward, claim="last"', "bench.adapters.atomic:OursLast", TRANSACTIONS, separate=False),
}
"""Compared where the gate has that form."""

HTTP = {
    "bare": Known("bare application", "bench.http_app:bare", REQUESTS),
    "raw-sqlite": Known("by hand, raw group commit on SQLite", "bench.adapters.http_raw:sqlite", REQUESTS),
    "raw-postgres": Known("by hand, batches on PostgreSQL", "bench.adapters.http_raw:postgres", REQUESTS),
    "raw-redis": Known("by hand, pipelines on Redis", "bench.adapters.http_raw:redis", REQUESTS),
    "rules-sqlite": Known(
        "by hand, our rules in one function, SQLite", "bench.adapters.http_rules:sqlite", ("replay_http",)
    ),
    "ours-memory": Known("onceward, memory", "bench.adapters.http_ours:ours", REQUESTS),
    "ours-sqlite": Known("onceward, SQLite", "bench.adapters.http_ours:ours", REQUESTS),
    "ours-postgres": Known("onceward, PostgreSQL", "bench.adapters.http_ours:ours", REQUESTS),
    "ours-redis": Known("onceward, Redis", "bench.adapters.http_ours:ours", REQUESTS),
    "idemkit-postgres": Known(
        "idemkit 1.0.2, PostgreSQL", "bench.adapters.http_peers:idemkit_postgres", REQUESTS, peer=True
    ),
    "idemkit-redis": Known("idemkit 1.0.2, Redis", "bench.adapters.http_peers:idemkit_redis", REQUESTS, peer=True),
    "asgi-idempotency-header-redis": Known(
        "asgi-idempotency-header 0.2.0, Redis", "bench.adapters.http_peers:header_redis", REQUESTS, peer=True
    ),
}

SQLITE_NOTES = (
    "Every adapter syncs the disk before it answers (synchronous FULL), but for two that say otherwise: "
    "peer E as shipped is NORMAL and syncs nothing per operation; settle=relaxed syncs the claim only.",
    "Peer E (exactly-once) is forced to FULL with PRAGMA synchronous=FULL on its store's own connection; "
    "its option `fingerprint` is set, so that it compares requests as the others do.",
    "dbos has no option for the journal; its file is put into WAL before it is opened, which favours it.",
    "raw has no lease, no fence, no state but a result that is there or not, and no comparison of requests.",
)

POSTGRES_NOTES = (
    "Every adapter is on the same server, each in a database of its own: fsync and synchronous_commit on.",
    "raw has no lease, no fence, no owner, no comparison of requests; awaiting, it is an asyncpg pool of twenty.",
    "CPU time is the client's process only.",
)

REDIS_NOTES = (
    "Every adapter is on the same server, each in a database of its own.",
    "raw has no lease, no fence, no owner, no comparison of requests, no expiry; awaiting, it is redis.asyncio.",
    "powertools has no async form.",
    "CPU time is the client's process only.",
)

HTTP_NOTES = (
    "One worker of uvicorn (httptools, uvloop) each, the same versions for all; 32 connections, no pipelining; the "
    "client is a process of its own, and looks at every answer. CPU time is the server's process only.",
    "PostgreSQL: fsync and synchronous_commit on. Redis: append-only file, appendfsync always. SQLite: synchronous "
    "FULL. So every claim and every answer is on the disk before the client has it, for ours and for peers.",
    "asgi-idempotency-header does not compare requests, keeps no headers, and has no lease.",
    "By hand, raw: compares no requests. By hand, our rules: the same id, fingerprint and record as ours, in one "
    "function that knows nothing but a plain replay of JSON; the limit of a replay on SQLite.",
)
