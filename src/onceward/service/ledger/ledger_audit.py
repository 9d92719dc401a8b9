"""
Walking a whole ledger: is every row what it was when it was written?

Everything is computed anew from what stands in the rows: the customer's genesis, each entry's hash, name and seal, the
chain from one to the next, each checkpoint's sum, root and hash, and the chain of those. What does not fit is named.
Read in pages, so that a ledger of any size is walked in a little memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from onceward._core.chained_hashes import DOES_NOT_FOLLOW, OTHER_HASH, ChainWalk
from onceward.runtime.progress import Progress, part_of, silent
from onceward.service.ledger.hash_chain import (
    CHECKPOINT_COLUMNS,
    ENTRY_COLUMNS,
    LedgerCheckpoint,
    LedgerEntry,
    chain_seals,
    checkpoint_hash,
    checkpoint_id,
    entry_hash,
    entry_id,
    entry_seal,
    genesis,
)
from onceward.service.ledger.verification import FAILED, QUEUED, VERIFIED
from onceward.stores.tables import Flow, Sql, SqlSteps, one_or_none, read_tables

PAGE = 1_000

_CUSTOMERS = """SELECT scope, customer, seq, head, closed, created_at FROM onceward_ledger_customers
    WHERE (scope, customer) > (:scope, :customer) ORDER BY scope, customer LIMIT :limit"""
_CUSTOMER = """SELECT scope, customer, seq, head, closed, created_at FROM onceward_ledger_customers
    WHERE scope = :scope AND customer = :customer"""
_ENTRIES = f"""SELECT {ENTRY_COLUMNS} FROM onceward_ledger_entries
    WHERE scope = :scope AND customer = :customer AND seq > :seq AND seq <= :last
    ORDER BY seq LIMIT :limit"""  # noqa: S608 - names of ours
_CHECKPOINTS = f"""SELECT {CHECKPOINT_COLUMNS} FROM onceward_ledger_checkpoints
    WHERE scope = :scope AND customer = :customer AND period <= :closed ORDER BY number"""  # noqa: S608
_STRAY_ENTRIES = """SELECT e.id, e.scope, e.customer FROM onceward_ledger_entries AS e
    LEFT JOIN onceward_ledger_customers AS c ON c.scope = e.scope AND c.customer = e.customer
    WHERE c.customer IS NULL OR e.seq > c.seq OR e.seq < 1 LIMIT :limit"""
_STRAY_CHECKPOINTS = """SELECT p.id, p.scope, p.customer FROM onceward_ledger_checkpoints AS p
    LEFT JOIN onceward_ledger_customers AS c ON c.scope = p.scope AND c.customer = p.customer
    WHERE c.customer IS NULL OR p.period > c.closed LIMIT :limit"""


class AuditFinding(NamedTuple):
    """A row that is not what it was."""

    table: str
    row: str
    """Its id; a customer's scope and name."""
    fault: str


class AuditReport(NamedTuple):
    """What a walk came to."""

    customers: int
    entries: int
    checkpoints: int
    findings: list[AuditFinding]


class _Customer(NamedTuple):
    scope: str
    customer: str
    seq: int
    head: str
    closed: str
    created_at: int

    @property
    def name(self) -> str:
        return f"{self.scope}/{self.customer}"


class _Walk:
    """One customer's rows, as far as they have been walked."""

    def __init__(self, customer: _Customer, checkpoints: list[LedgerCheckpoint]) -> None:
        self.customer = customer
        self.checkpoints = checkpoints
        self.chain = ChainWalk(genesis(customer.scope, customer.customer, customer.created_at))
        self.ends = [checkpoint.period for checkpoint in checkpoints]
        self.roots = [""] * len(checkpoints)
        self.sums = [0] * len(checkpoints)
        self.counts = [0] * len(checkpoints)
        self.queued = [0] * len(checkpoints)

    def entry(self, entry: LedgerEntry) -> Iterator[AuditFinding]:
        """One more entry."""
        if missing := self.chain.missing_before(entry.seq):
            yield AuditFinding("entries", self.customer.name, missing)
        elif not self.chain.follows(entry.previous) and not self.chain.number and entry.hash == entry_hash(entry):
            yield AuditFinding("customers", self.customer.name, "its first entry does not follow from it (created_at)")
        elif not self.chain.follows(entry.previous):
            yield AuditFinding("entries", entry.id, DOES_NOT_FOLLOW)
        yield from _entry_faults(entry)
        self.chain.go_on(entry.seq, entry.hash)
        # The checkpoint that closed the entry's period: the first whose period is not before it.
        for index, end in enumerate(self.ends):
            if entry.period <= end:
                self._count(index, entry)
                break

    def _count(self, index: int, entry: LedgerEntry) -> None:
        self.roots[index] = chain_seals(self.roots[index], [entry.seal])
        self.queued[index] += entry.status == QUEUED
        if entry.status == VERIFIED:
            self.sums[index] += entry.amount
            self.counts[index] += 1

    def end(self) -> Iterator[AuditFinding]:
        """After the last entry: the customer's row and the checkpoints."""
        customer = self.customer
        if self.chain.number < customer.seq:
            missing = self.chain.missing_before(customer.seq + 1)
            yield AuditFinding("customers", customer.name, f"{missing} (seq)")
        elif self.chain.head != customer.head:
            yield AuditFinding("customers", customer.name, "it does not name the last entry (head)")
        last = self.checkpoints[-1].period if self.checkpoints else ""
        if last != customer.closed:
            yield AuditFinding("customers", customer.name, "it does not name the last checkpoint's period (closed)")
        balance, previous = 0, genesis(customer.scope, customer.customer, customer.created_at)
        for index, checkpoint in enumerate(self.checkpoints):
            balance += self.sums[index]
            yield from self._checkpoint(index, checkpoint, balance, previous)
            previous = checkpoint.hash

    def _checkpoint(
        self, index: int, checkpoint: LedgerCheckpoint, balance: int, previous: str
    ) -> Iterator[AuditFinding]:
        facts = {
            "number": (checkpoint.number, index + 1),
            "previous": (checkpoint.previous, previous),
            "balance": (checkpoint.balance, str(balance)),
            "deltas": (checkpoint.deltas, self.counts[index]),
            "root": (checkpoint.root, self.roots[index]),
            "hash": (checkpoint.hash, checkpoint_hash(checkpoint)),
            "id": (checkpoint.id, checkpoint_id(checkpoint.hash)),
            "queued": (0, self.queued[index]),
        }
        wrong = [name for name, (stands, should) in facts.items() if stands != should]
        if wrong:
            yield AuditFinding("checkpoints", checkpoint.id, f"it does not fit what it closed ({', '.join(wrong)})")


def audit(progress: Progress = silent) -> Flow[AuditReport]:
    """Walk everything. Deltas may be booked meanwhile: each customer is walked up to where it was when looked at."""
    findings: list[AuditFinding] = []
    customers = entries = checkpoints = 0
    after = ("", "")
    total = yield from read_tables(_total)
    while True:
        page = yield from read_tables(partial(_page, after))
        for customer in page:
            walked = yield from _walk(customer, partial(_told, progress, entries, total))
            findings += walked.findings
            entries, checkpoints = entries + walked.entries, checkpoints + walked.checkpoints
        customers += len(page)
        if len(page) < PAGE:
            break
        after = (page[-1].scope, page[-1].customer)
    findings += yield from read_tables(_strays)
    return AuditReport(customers, entries, checkpoints, findings)


def audit_customer(scope: str, customer: str) -> Flow[AuditReport | None]:
    """Walk the chain of one customer; None if there is no such one."""
    found = yield from read_tables(partial(_one, scope, customer))
    return None if found is None else (yield from _walk(found))


def _walk(customer: _Customer, told: Callable[[int], None] = lambda entries: None) -> Flow[AuditReport]:
    walk = _Walk(customer, (yield from read_tables(partial(_closed, customer))))
    findings: list[AuditFinding] = []
    entries = 0
    while True:
        rows = yield from read_tables(partial(_entries, customer, walk.chain.number))
        for entry in rows:
            findings += walk.entry(entry)
        entries += len(rows)
        told(entries)
        if len(rows) < PAGE:
            break
    findings += walk.end()
    return AuditReport(1, entries, len(walk.checkpoints), findings)


def _told(progress: Progress, before: int, total: int, entries: int) -> None:
    part_of(progress, before + entries, total, "entries")


def _total() -> SqlSteps[int]:
    """How many entries there should be."""
    [(entries,)] = yield Sql("SELECT sum(seq) FROM onceward_ledger_customers", {})
    return int(entries or 0)


def _one(scope: str, customer: str) -> SqlSteps[_Customer | None]:
    row = one_or_none((yield Sql(_CUSTOMER, {"scope": scope, "customer": customer})))
    return None if row is None else _Customer(*row)


def _entry_faults(entry: LedgerEntry) -> Iterator[AuditFinding]:
    hash = entry_hash(entry)
    if entry.hash != hash or entry.id != entry_id(hash):
        yield AuditFinding("entries", entry.id, OTHER_HASH)
    if entry.seal != entry_seal(entry.hash, entry.status, entry.failure, entry.verified_at):
        yield AuditFinding("entries", entry.id, "its verdict differs from the sealed one")
    elif entry.status not in (VERIFIED, QUEUED, FAILED):
        yield AuditFinding("entries", entry.id, "its verdict is not a known one")


def _page(after: tuple[str, str]) -> SqlSteps[list[_Customer]]:
    rows = yield Sql(_CUSTOMERS, {"scope": after[0], "customer": after[1], "limit": PAGE})
    return [_Customer(*row) for row in rows]


def _entries(customer: _Customer, seq: int) -> SqlSteps[list[LedgerEntry]]:
    values = {"scope": customer.scope, "customer": customer.customer, "seq": seq, "last": customer.seq, "limit": PAGE}
    return [LedgerEntry(*row) for row in (yield Sql(_ENTRIES, values))]


def _closed(customer: _Customer) -> SqlSteps[list[LedgerCheckpoint]]:
    values = {"scope": customer.scope, "customer": customer.customer, "closed": customer.closed}
    return [LedgerCheckpoint(*row) for row in (yield Sql(_CHECKPOINTS, values))]


def _strays() -> SqlSteps[list[AuditFinding]]:
    """Rows that belong to nobody: the walk by customers does not meet them."""
    entries = yield Sql(_STRAY_ENTRIES, {"limit": PAGE})
    checkpoints = yield Sql(_STRAY_CHECKPOINTS, {"limit": PAGE})
    return [
        *(AuditFinding("entries", id, f"no customer {scope}/{customer} has it") for id, scope, customer in entries),
        *(
            AuditFinding("checkpoints", id, f"no customer {scope}/{customer} has it")
            for id, scope, customer in checkpoints
        ),
    ]
