"""
Walking the whole decision log: is every entry what it was when it was written, and is none missing?

Everything is computed anew from what stands in the rows: each entry's hash, the chain from one to the next, the digest
of each text. A text may be missing only if an erasure of its tenant is in the chain. Entries taken off the end are
found by the head's row; if that was changed as well, by a head that somebody noted before (`expected`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from onceward._core.chained_hashes import DOES_NOT_FOLLOW, OTHER_HASH, ChainWalk
from onceward._core.errors import RequestInvalid
from onceward.audit.decision import DETAILS, ERASE, INTENT, OUTCOME, goes_with_tenant
from onceward.audit.decision_views import read_document
from onceward.audit.log_entries import GENESIS, LogEntry, entry_hash, text_digest
from onceward.runtime.progress import Progress, part_of, silent
from onceward.stores.tables import Flow, Sql, SqlSteps, read_tables

PAGE = 1_000
FINDINGS_MAX = 1_000
HASH_DIGITS = 64

_ENDS = """SELECT (SELECT number FROM onceward_audit_head WHERE one = 1),
    (SELECT hash FROM onceward_audit_head WHERE one = 1), (SELECT max(number) FROM onceward_audit_entries)"""
_ENTRIES = f"""SELECT {", ".join(f"e.{name}" for name in LogEntry._fields)}, n.tenant,
        i.number < e.number AND i.kind = 'intent' AND i.action = e.action AND i.via = e.via
            AND coalesce(i.tag, '') = coalesce(e.tag, '')
    FROM onceward_audit_entries AS e
    LEFT JOIN onceward_audit_tenants AS n ON n.tag = e.tag
    LEFT JOIN onceward_audit_entries AS i ON i.number = e.decision
    WHERE e.number > :after AND e.number <= :last ORDER BY e.number LIMIT :limit"""  # noqa: S608 - names of ours
_TEXTS = """SELECT number, part, salt, text FROM onceward_audit_texts
    WHERE number > :after AND number <= :last ORDER BY number, part"""
_ERASURES = """SELECT DISTINCT x.tag FROM onceward_audit_entries AS x
    WHERE x.action = :action AND x.kind = 'intent' AND x.tag IN (
        SELECT tag FROM onceward_audit_entries WHERE number > :after AND number <= :last)"""
_STRAYS = """SELECT DISTINCT t.number FROM onceward_audit_texts AS t
    LEFT JOIN onceward_audit_entries AS e ON e.number = t.number
    WHERE e.number IS NULL AND t.number <= :last ORDER BY t.number LIMIT :limit"""


class LogHead(NamedTuple):
    """The last entry of a log, as somebody may note it elsewhere."""

    number: int
    hash: str

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> LogHead:
        """A head as `verify` printed it."""
        number, _, hash = text.partition(":")
        is_number = number.isascii() and number.isdecimal() and len(number) <= 18
        is_hash = hash == GENESIS if number == "0" else len(hash) == HASH_DIGITS and {*hash} <= {*"0123456789abcdef"}
        if not (is_number and is_hash):
            raise RequestInvalid("a head is NUMBER:HASH, as `onceward audit verify` prints it")
        return cls(int(number), hash)


class LogFinding(NamedTuple):
    """An entry that is not what it was; or the log itself, without a number."""

    number: int | None
    fault: str


class LogReport(NamedTuple):
    """What a walk came to."""

    entries: int
    erased: int
    """Entries of which a text was erased with its tenant."""
    head: LogHead
    findings: list[LogFinding]


class _Read(NamedTuple):
    """An entry, and what stands beside it."""

    entry: LogEntry
    tenant: str | None
    follows_intent: bool
    texts: dict[str, tuple[str, str]]
    """Salt and text, by part."""
    erasure: bool
    """Whether the erasure of its tenant is in the chain, so that texts may be missing."""


class _Walk:
    """The log, as far as it has been walked."""

    def __init__(self, expected: LogHead | None) -> None:
        self.chain = ChainWalk(GENESIS)
        self.expected = expected
        self.entries = 0
        self.erased = 0

    def entry(self, read: _Read) -> Iterator[LogFinding]:
        """One more."""
        entry = read.entry
        if missing := self.chain.missing_before(entry.number):
            yield LogFinding(entry.number, missing)
        elif not self.chain.follows(entry.previous):
            yield LogFinding(entry.number, DOES_NOT_FOLLOW)
        if entry.hash != entry_hash(entry):
            yield LogFinding(entry.number, OTHER_HASH)
        if entry.kind == OUTCOME and not read.follows_intent:
            yield LogFinding(entry.number, f"it is the outcome of a decision that does not exist ({entry.decision})")
        yield from self._texts(read)
        if self.expected is not None and entry.number == self.expected.number and entry.hash != self.expected.hash:
            yield LogFinding(entry.number, "it is not the expected entry: the log was rewritten")
        self.chain.go_on(entry.number, entry.hash)
        self.entries += 1

    def _texts(self, read: _Read) -> Iterator[LogFinding]:
        entry, texts = read.entry, read.texts
        erased = False
        for part, digest in entry.parts.items():
            if part in texts:
                if text_digest(part, *texts[part]) != digest:
                    yield LogFinding(entry.number, f"its {part} is not what was written")
            elif read.erasure and goes_with_tenant(entry.kind, entry.action, entry.via, part):
                erased = True
            else:
                yield LogFinding(entry.number, f"its {part} is missing, although its tenant was not erased")
        for part in sorted(texts.keys() - entry.parts.keys()):
            yield LogFinding(entry.number, f"it has a text that was not written with it ({part})")
        self.erased += erased
        is_named = entry.kind == INTENT and DETAILS in texts and read.tenant is not None
        if is_named and read_document(texts[DETAILS][1]).get("tenant") != read.tenant:
            yield LogFinding(entry.number, "it is about another tenant than the log's table of tenants says")


def verify_log(expected: LogHead | None = None, progress: Progress = silent) -> Flow[LogReport]:
    """Walk everything, up to where the log ended when it was looked at: decisions may be made meanwhile."""
    head, last = yield from read_tables(_ends)
    findings: list[LogFinding] = []
    walk = _Walk(expected)
    while len(findings) < FINDINGS_MAX:
        page = yield from read_tables(partial(_page, walk.chain.number, last))
        for read in page:
            findings += walk.entry(read)
        part_of(progress, walk.entries, last, "entries")
        if len(page) < PAGE:
            break
    strays = yield from read_tables(partial(_strays, last))
    findings += (LogFinding(number, "it has a text but no entry") for number in strays)
    findings += _end_faults(head, last, walk.chain, expected)
    return LogReport(walk.entries, walk.erased, LogHead(walk.chain.number, walk.chain.head), findings[:FINDINGS_MAX])


def _end_faults(head: LogHead | None, last: int, chain: ChainWalk, expected: LogHead | None) -> Iterator[LogFinding]:
    if head is None:
        yield LogFinding(None, "the log has lost its head (onceward_audit_head)")
    elif head.number > last:
        yield LogFinding(
            last + 1, f"numbers {last + 1} to {head.number} are missing: entries were removed from the end"
        )
    elif head.number < last:
        yield LogFinding(head.number + 1, "it was added by hand: the log's head does not know of it")
    elif head.hash != chain.head:
        yield LogFinding(last or None, "the log's head names another entry than this last one")
    if expected is not None and expected.number > last:
        yield LogFinding(
            last + 1,
            f"numbers {last + 1} to {expected.number} are missing: the log was longer when that head was noted",
        )


def _ends() -> SqlSteps[tuple[LogHead | None, int]]:
    [(number, hash, last)] = yield Sql(_ENDS, {})
    return (None if number is None else LogHead(number, hash)), last or 0


def _page(after: int, last: int) -> SqlSteps[list[_Read]]:
    rows = yield Sql(_ENTRIES, {"after": after, "last": last, "limit": PAGE})
    if not rows:
        return []
    between = {"after": after, "last": rows[-1][0]}
    texts: dict[int, dict[str, tuple[str, str]]] = {}
    for number, part, salt, text in (yield Sql(_TEXTS, between)):
        texts.setdefault(number, {})[part] = (salt, text)
    # After the texts: whatever was missing there by an erasure, the erasure is seen here.
    erasures = {tag for (tag,) in (yield Sql(_ERASURES, {**between, "action": ERASE}))}
    return [
        _Read(entry, tenant, bool(follows), texts.get(entry.number, {}), entry.tag in erasures)
        for entry, tenant, follows in ((LogEntry(*row[:-2]), row[-2], row[-1]) for row in rows)
    ]


def _strays(last: int) -> SqlSteps[list[int]]:
    return [number for (number,) in (yield Sql(_STRAYS, {"last": last, "limit": PAGE}))]
