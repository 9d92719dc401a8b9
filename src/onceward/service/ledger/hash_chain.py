"""
The hashes that make a changed row visible: SHA-256 over the canonical form of its members, the kind first.

    customer    genesis = H(scope, customer, created_at): the head of a customer without entries
    entry       hash = H(everything it says, the hash of the customer's entry before it; of the first: the genesis)
                seal = H(hash, verdict)
    checkpoint  root = the seals of its entries, one hashed onto the other
                hash = H(everything it says, root, the hash of the checkpoint before it)
    mark        hash = H(everything it says, root up to its last entry, the hash of the checkpoint before it)

They are no signatures: whoever may write the whole database may compute them anew. What they cannot do is to change the
past and leave a checkpoint's hash as it was, which others have seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from onceward._core.chained_hashes import hash_members, hash_texts
from onceward._core.record_types import new_tuple

ID_DIGITS = 32


class LedgerEntry(NamedTuple):
    """A row of the entries, in the order of its columns."""

    id: str
    scope: str
    customer: str
    seq: int
    amount: int
    reason: str
    reference: str | None
    metadata: str | None
    corrects: str | None
    period: str
    booked_at: int
    previous: str
    hash: str
    status: str
    failure: str | None
    verified_at: int | None
    seal: str


class LedgerCheckpoint(NamedTuple):
    """A row of the checkpoints, in the order of its columns."""

    id: str
    scope: str
    customer: str
    number: int
    period: str
    balance: str
    """Billionths, as digits: a sum may be longer than a bigint."""
    deltas: int
    root: str
    closed_at: int
    previous: str
    hash: str


ENTRY_COLUMNS = ", ".join(LedgerEntry._fields)
CHECKPOINT_COLUMNS = ", ".join(LedgerCheckpoint._fields)


def genesis(scope: str, customer: str, created_at: int) -> str:
    """What a customer's first entry follows."""
    return hash_members("customer", scope, customer, created_at)


def entry_hash(entry: Sequence[Any]) -> str:
    """Of what an entry says, its verdict aside: the columns from `scope` to `previous` are looked at."""
    _, scope, customer, seq, amount, reason, reference, metadata, corrects, period, booked_at, previous = entry[:12]
    said = [scope, customer, str(seq), str(amount), reason, reference, metadata, corrects, period, str(booked_at)]
    return hash_texts(["entry", *said, previous])


def entry_id(hash: str) -> str:
    """An entry is named by its hash."""
    return f"dl_{hash[:ID_DIGITS]}"


def entry_seal(hash: str, status: str, failure: str | None, verified_at: int | None) -> str:
    """Of an entry and its verdict."""
    return hash_texts(["verdict", hash, status, failure, None if verified_at is None else str(verified_at)])


def sealed_entry(said: tuple[Any, ...], status: str, verified_at: int | None) -> LedgerEntry:
    """An entry of what it says (the columns from `scope` to `previous`), with its hash, its name and its seal."""
    hash = entry_hash(("", *said))
    seal = entry_seal(hash, status, None, verified_at)
    made: LedgerEntry = new_tuple(LedgerEntry, (entry_id(hash), *said, hash, status, None, verified_at, seal))
    return made


def chain_seals(root: str, seals: list[str]) -> str:
    """A root, gone on with."""
    for seal in seals:
        root = sha256(f"{root}:{seal}".encode()).hexdigest()
    return root


def checkpoint_hash(checkpoint: LedgerCheckpoint) -> str:
    """Of everything that a checkpoint says."""
    return hash_members("checkpoint", *checkpoint[1:10])


def checkpoint_id(hash: str) -> str:
    """A checkpoint is named by its hash."""
    return f"cp_{hash[:ID_DIGITS]}"


def mark_hash(scope: str, customer: str, period: str, seq: int, balance: str, root: str, previous: str) -> str:
    """Of everything that a mark says. No time: whoever asks again before the next entry gets the same mark."""
    return hash_members("mark", scope, customer, period, seq, balance, root, previous)


def mark_id(hash: str) -> str:
    """A mark is named by its hash."""
    return f"mk_{hash[:ID_DIGITS]}"


def receipt_id(hash: str) -> str:
    """A receipt is named by what it is for, so that there is one of it whenever it is asked for."""
    return f"rc_{hash_members('receipt', hash)[:ID_DIGITS]}"
