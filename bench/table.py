"""
The table of the bench: one row per case, with the reference, the best raw way, the best peer, ours and the aim.

It is read from what was measured in one interleaved run of a group (`summary.py` has its form). The rules of judging:

- within five per cent of the best peer is level with it;
- where an aim lies above nine tenths of its limit in the same run, nine tenths of the limit is the aim (of CPU time,
  where less is better: the limit by nine tenths);
- a row is met or missed; neither is an error of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

LEVEL = 0.95
"""Of the best peer: as good."""
OF_LIMIT = 0.9
"""What may be asked for: no code of ours does as well as none at all."""

_SQLITE = ("peer-e", "agent-once", "dbos")
_POSTGRES = ("peer-e", "agent-once", "idemkit", "dbos")
_REDIS = ("peer-e", "idemkit", "powertools")
_RAW = ("raw", "raw-group", "raw-batched")
_RECORD = ("record", "record-group")
"""The rows of a record by hand: what has to be kept, kept by no code of ours."""


class Row(NamedTuple):
    """A case: where it is measured, against whom, and what is aimed at."""

    case: str
    reference: str
    group: tuple[str, ...]
    measured: str
    """The case within the group."""
    aim: float
    peers: tuple[str, ...] = ()
    limits: tuple[str, ...] = _RAW
    ours: str = "ours"
    more_cpu: bool = False
    """What counts is CPU time against the reference's, and aim and limit are the most and the least of it."""


class Judged(NamedTuple):
    """What came of a row; None is what was not measured."""

    row: Row
    limit: float | None
    peer: tuple[str, float] | None
    ours: Mapping[str, float] | None
    aim: float
    met: bool | None
    against_peer: str
    """ahead, level or behind; empty without a peer."""


def _row(
    case: str,
    reference: str,
    group: str,
    measured: str,
    aim: float,
    peers: tuple[str, ...],
    limits: tuple[str, ...] = _RAW,
) -> Row:
    return Row(case, reference, tuple(group.split("/")), measured, aim, peers, limits)


_RULES = "rules-sqlite"
"""The same questions as ours, by hand: raw does not compare requests."""


def _http(store: str, case: str, aim: float) -> Row:
    name = {"SQLite": "sqlite", "PostgreSQL": "postgres", "Redis": "redis"}[store]
    peers = {"redis": ("idemkit-redis", "asgi-idempotency-header-redis"), "postgres": ("idemkit-postgres",)}
    return Row(
        f"HTTP {case} on {store}, 32 connections",
        "bare Starlette",
        ("http",),
        f"{case}_http",
        aim,
        peers.get(name, ()),
        (_RULES if (name, case) == ("sqlite", "replay") else f"raw-{name}",),
        f"ours-{name}",
    )


_TWO_WRITES, _GROUP, _EVERYSEC = "two durable writes", "group commit thread", "redis/everysec"
_CLAIM, _POOL = "claim-or-get + settle", "asyncpg pool of 20"
_INSERT = "a bare INSERT, autocommit, no key"
_HERE = "BEGIN; INSERT; COMMIT in the caller's own process, no key"
_BARE_CPU = "CPU time of a bare application's durable write"
_KEPT = ("bare-kept",)
_HAND = ("hand",)
ROWS = (
    _row("SQLite FULL fresh, 1 caller", _TWO_WRITES, "sqlite", "fresh_seq", 0.95, _SQLITE, _RECORD),
    _row("SQLite replay, 1 caller", "SELECT + json.loads, no fingerprint", "sqlite", "replay_seq", 0.6, _SQLITE),
    _row("SQLite fresh, 8 threads", _TWO_WRITES, "sqlite", "fresh_thr", 1.7, _SQLITE, _RECORD),
    _row("SQLite fresh, 50 tasks", _GROUP, "sqlite", "fresh_task", 0.45, _SQLITE),
    _row("SQLite replay, 50 tasks", "SELECT on the event loop, no fingerprint", "sqlite", "replay_task", 0.45, _SQLITE),
    _row("PostgreSQL fresh, 1 caller", _CLAIM, "postgres", "fresh_seq", 0.95, _POSTGRES, _RECORD),
    _row("PostgreSQL replay, 1 caller", "claim-or-get, no fingerprint", "postgres", "replay_seq", 0.95, _POSTGRES),
    _row("PostgreSQL fresh, 8 threads", "a connection each", "postgres", "fresh_thr", 1.0, _POSTGRES, _RECORD),
    _row("PostgreSQL fresh, 50 tasks", _POOL, "postgres", "fresh_task", 2.2, _POSTGRES),
    _row("PostgreSQL replay, 50 tasks", f"{_POOL}, no fingerprint", "postgres", "replay_task", 3.2, _POSTGRES),
    *(
        Row(
            f"PostgreSQL atomic, {shape}",
            "the bare transaction without a key",
            ("atomic", "near"),
            case,
            aim,
            limits=("hand-record",),
        )
        for shape, case, aim in (("1 caller", "fresh_seq", 0.65), ("8 threads", "fresh_thr", 0.6))
    ),
    _row("Redis everysec fresh, 1 caller", "SET NX GET + SET", _EVERYSEC, "fresh_seq", 0.8, _REDIS, _RECORD),
    _row("Redis everysec replay, 1 caller", "SET NX GET, no fingerprint", _EVERYSEC, "replay_seq", 0.95, _REDIS),
    _row("Redis everysec fresh, 8 threads", "SET NX GET + SET", _EVERYSEC, "fresh_thr", 1.0, _REDIS),
    _row("Redis everysec fresh, 50 tasks", "redis.asyncio", _EVERYSEC, "fresh_task", 1.6, _REDIS),
    _row("Redis everysec replay, 50 tasks", "redis.asyncio, no fingerprint", _EVERYSEC, "replay_task", 2.0, _REDIS),
    _http("SQLite", "fresh", 0.28),
    _http("PostgreSQL", "fresh", 0.25),
    _http("Redis", "fresh", 0.2),
    _http("SQLite", "replay", 1.0),
    _http("PostgreSQL", "replay", 0.8),
    _http("Redis", "replay", 0.7),
    *(
        Row(f"SQL on PostgreSQL, {what}", _INSERT, ("sql-postgres",), measured, aim, limits=limits)
        for what, measured, aim, limits in (
            ("keyed INSERT, 1 caller", "write_one", 0.7, ("hand",)),
            ("keyed INSERT, 32 callers", "write_many", 0.45, ("hand",)),
            ("replay, 1 caller", "replay_one", 1.0, ()),
            ("replay, 32 callers", "replay_many", 1.0, ()),
        )
    ),
    *(
        Row(f"SQL on SQLite, keyed INSERT, {callers}", _HERE, ("sql",), measured, aim, limits=(limit,))
        for callers, measured, aim, limit in (
            ("1 caller", "one_caller", 0.5, "rules-process"),
            ("50 callers", "fifty_callers", 1.0, "hand-process"),
        )
    ),
    Row("the service, keyed write", _BARE_CPU, ("service",), "write", 1.5, limits=_HAND, more_cpu=True),
    Row("the service, replay", _BARE_CPU, ("service",), "replay", 1.7, limits=_HAND, more_cpu=True),
    Row("the service, read of one row", "the same by a bare application", ("service",), "read", 0.5, limits=_HAND),
    Row("the ledger, a hundred deltas a transaction", "two tables by hand", ("ledger",), "batches", 0.08, limits=()),
    *(
        Row(f"the relay, {store}", "http.client, a connection each", ("relay",), "deliver", aim, (), _KEPT, name)
        for store, name, aim in (("SQLite", "sqlite", 0.52), ("PostgreSQL", "postgres", 0.64))
    ),
    *(
        Row(
            f"{what}, SQLite {case}",
            "CPU time without it",
            ("metrics",),
            measured,
            1.15,
            limits=("hand-journal",) if ours == "ours-journal" else (),
            ours=ours,
            more_cpu=True,
        )
        for what, ours, case, measured in (
            ("a listener", "ours-listening", "fresh, 1 caller", "fresh_seq"),
            ("a listener", "ours-listening", "replay, 1 caller", "replay_seq"),
            ("a listener", "ours-listening", "fresh, 50 tasks", "fresh_task"),
            ("Metrics", "ours-metrics", "fresh, 1 caller", "fresh_seq"),
            ("Metrics", "ours-metrics", "replay, 1 caller", "replay_seq"),
            ("Metrics", "ours-metrics", "fresh, 50 tasks", "fresh_task"),
            ("a journal", "ours-journal", "fresh, 50 tasks", "fresh_task"),
        )
    ),
)
NOTES = (
    "Speed against the reference of the same round, the median of the rounds (least-greatest); more is better. CPU: "
    "the same by CPU time per operation (on a server: of the client's process). Rows of a listener, of metrics and of "
    "a journal are CPU time against the same without it, and those of the service's writes and replays CPU time of "
    "server and workers against a bare application's; less is better.",
    "The limit is the best raw way in the same run; of a fresh call of one caller, and of threads on SQLite and "
    "PostgreSQL, the rows of a record by hand. Raw compares no fingerprint: a replay of ours checks that the request "
    "is the same, and the reference does not.",
    "Within 5 % of the best peer is level. Where an aim lies above 0.9 of its limit, 0.9 of the limit is the aim.",
)
HEAD = "| case | reference = 1 | limit | best peer | ours | CPU | aim | |\n|---|---|---|---|---|---|---|---|"


def judge(row: Row, groups: Mapping[str, Any]) -> Judged:
    """One row, from what was measured."""
    place: Any = groups
    for name in row.group:
        place = (place or {}).get(name)
    table = ((place or {}).get("tables") or {}).get(row.measured) or {}
    found: Mapping[str, Mapping[str, float]] = table.get("measured") or {}
    ours = found.get(row.ours)
    if row.more_cpu:
        least = min((1 / found[name]["cpu"] for name in row.limits if name in found), default=None)
        most = row.aim if least is None else max(row.aim, least / OF_LIMIT)
        met = None if ours is None else 1 / ours["cpu"] <= most
        return Judged(row, least, None, ours, most, met, "")
    limit = max((found[name]["ratio"] for name in row.limits if name in found), default=None)
    peers = {name: found[name]["ratio"] for name in row.peers if name in found}
    best = max(peers, key=lambda name: peers[name], default=None)
    peer = None if best is None else (best, peers[best])
    aim = row.aim if limit is None else min(row.aim, OF_LIMIT * limit)
    if ours is None:
        return Judged(row, limit, peer, None, aim, None, "")
    return Judged(row, limit, peer, ours, aim, ours["ratio"] >= aim, _standing(ours["ratio"], peer))


def _standing(ours: float, peer: tuple[str, float] | None) -> str:
    if peer is None:
        return ""
    if ours >= peer[1] / LEVEL:
        return "ahead"
    return "level" if ours >= peer[1] * LEVEL else "behind"


def lines(groups: Mapping[str, Any], names: Mapping[str, str] | None = None) -> list[str]:
    """The table, row by row; cases that were not measured are left out."""
    shown = [_shown(one, names or {}) for row in ROWS if (one := judge(row, groups)).ours is not None]
    return [HEAD, *shown] if shown else []


def _shown(one: Judged, names: Mapping[str, str]) -> str:
    assert one.ours is not None
    row, verdict = one.row, "met" if one.met else "**missed**"
    limit = "-" if one.limit is None else f"{one.limit:.2f}"
    if row.more_cpu:
        most = f"at most {one.aim:.2f}" + ("" if one.aim == row.aim else f" (the limit by 0.9; else {row.aim:g})")
        return f"| {row.case} | {row.reference} | {limit} | - | - | {1 / one.ours['cpu']:.2f} | {most} | {verdict} |"
    peer = "-" if one.peer is None else f"{one.peer[1]:.2f} ({names.get(one.peer[0], one.peer[0])})"
    aim = f"{one.aim:.2f}" + ("" if one.aim == row.aim else f" (0.9 of the limit; else {row.aim:g})")
    ours = f"**{one.ours['ratio']:.2f}** ({one.ours['least']:.2f}-{one.ours['greatest']:.2f})"
    standing = f", {one.against_peer}" if one.against_peer else ""
    return (
        f"| {row.case} | {row.reference} | {limit} | {peer} | {ours} | {one.ours['cpu']:.2f} | {aim} | "
        f"{verdict}{standing} |"
    )
