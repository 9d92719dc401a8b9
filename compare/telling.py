"""How far it is, on stderr."""

from __future__ import annotations

import sys


def progress(text: str) -> None:
    """Say it."""
    print(f"compare: {text}", file=sys.stderr, flush=True)
