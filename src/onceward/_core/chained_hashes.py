"""
Rows that follow each other by hash: what a hash is made of, and the walk that finds the row that does not follow.

The ledger's entries and the decision log are such rows. They are no signatures: whoever may write the whole database
may compute every hash anew. What nobody can do is to change the past and leave a later hash as others have seen it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from onceward._core.canonical import canonical, canonical_texts


def hash_members(*members: Any) -> str:
    """SHA-256 over the canonical form of what a row says, its kind first."""
    # Numbers as digits: a canonical number beyond 2**53 and one within are written by two rules, and one is enough.
    return sha256(canonical([str(one) if type(one) is int else one for one in members])).hexdigest()


def hash_texts(texts: list[str | None]) -> str:
    """`hash_members` of a row that has texts alone, its numbers written as digits already."""
    return sha256(canonical_texts(texts)).hexdigest()


class ChainWalk:
    """How far a chain has been walked: the last row's number, and its hash as it stands there."""

    def __init__(self, head: str) -> None:
        self.number = 0
        self.head = head

    def missing_before(self, number: int) -> str | None:
        """What is wrong if rows are missing before this one."""
        if number == self.number + 1:
            return None
        return f"numbers {self.number + 1} to {number - 1} are missing"

    def follows(self, previous: str) -> bool:
        """Whether a row names the one before it."""
        return previous == self.head

    def go_on(self, number: int, hash: str) -> None:
        """Walk past a row."""
        self.number, self.head = number, hash


DOES_NOT_FOLLOW = "it does not follow the entry before it (previous)"
OTHER_HASH = "its content does not match its hash"
