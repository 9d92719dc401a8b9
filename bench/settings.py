"""What can be chosen about a run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

GROUPS = (
    "sqlite",
    "postgres",
    "atomic",
    "redis",
    "metrics",
    "keys",
    "growth",
    "retry",
    "http",
    "sql",
    "sql-postgres",
    "service",
    "ledger",
    "relay",
    "inbox",
    "agents",
)
ROUNDS = 7
ROUNDS_QUICK = 3
SLICE_SECONDS = 0.25
"""Long enough for a hundred durable writes on a slow disk, short against the disk's drift."""


class Settings(NamedTuple):
    """The choices."""

    rounds: int
    groups: tuple[str, ...]
    peers: bool
    json: Path | None
    save: Path | None = None
    seconds: float = SLICE_SECONDS
    seed: int = 1


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """From the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Ratios against the raw store and against peers. Only ratios are claims; the rest is context.",
    )
    parser.add_argument("--rounds", type=int, help=f"rounds of slices (default {ROUNDS})")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, metavar="GROUP", help=" ".join(GROUPS))
    parser.add_argument("--quick", action="store_true", help=f"{ROUNDS_QUICK} rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every slice to FILE")
    parser.add_argument("--save", type=Path, metavar="FILE", help="put medians and spreads of the groups into FILE")
    parser.add_argument("--no-peers", action="store_true", help="leave the peers out (nothing is installed)")
    chosen = parser.parse_args(arguments)
    rounds = chosen.rounds if chosen.rounds is not None else ROUNDS_QUICK if chosen.quick else ROUNDS
    if rounds < 1:
        parser.error("--rounds: at least 1")
    return Settings(rounds, tuple(chosen.only), not chosen.no_peers, chosen.json, chosen.save)
