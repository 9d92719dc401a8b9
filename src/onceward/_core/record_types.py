"""
What crosses the seam between the rules and the stores: plain tuples, because one of each is made for every call.

`Record` is what a store reads, `Write` is what it is given, `PutResult` is its answer; `PeekResult` is what a quick
look shows, and `Claimant` is what a caller brings. `Selection` says which records a scan shows, and `PurgeResult` what
a purge did. What records mean is decided in `record.py`.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final, NamedTuple

new_tuple: Final[Any] = tuple.__new__
"""
Builds a tuple of a type from all its fields in order, as in `new_tuple(Write, (...))`: a tenth of the time of
`Write(...)`, which is a Python function with as many parameters. For what is made several times in every call.
"""

NOW = 0
"""In a `Write`, an instant of 0 means: the store's clock at the moment of writing."""


class Record(NamedTuple):
    """One row, as read. Durations are microseconds on the store's clock at the moment of reading."""

    id: bytes
    kind: str
    scope: str
    key: str
    operation: str
    family: bytes | None
    """The id shared by records that live and expire together (the steps of one plan)."""
    state: str
    guarantee: str
    doubt: int
    fingerprint: bytes
    version: bytes
    token: bytes
    fence: int
    attempt: int
    first_at: int
    """Microseconds since 1970 on the store's clock: for showing, never for deciding."""
    settled_at: int | None
    age: int
    """Microseconds since `first_at`."""
    lease_left: int | None
    replay_left: int | None
    """None: replays for ever (or nothing to replay yet)."""
    forget_left: int | None
    """None: kept until something else happens to it."""
    codec: str | None
    result: bytes | None
    error: bytes | None
    holder: bytes | None = None
    """Which process made the claim (`holders.py` says how); None: it is not known, or nobody holds it."""


class PeekResult(NamedTuple):
    """What a quick look shows of a row: enough to replay it, nothing to decide anything else by."""

    state: str
    fingerprint: bytes
    replay_left: int | None
    forget_left: int | None
    codec: str | None
    result: bytes | None
    error: bytes | None
    first_at: int
    attempt: int
    fence: int


_PEEKED = itemgetter(*(Record._fields.index(name) for name in PeekResult._fields))


def peek_of(found: Record) -> PeekResult:
    """What a quick look at this record shows."""
    return new_tuple(PeekResult, _PEEKED(found))  # type: ignore[no-any-return]


class Write(NamedTuple):
    """One row, to be written. Durations are microseconds from the store's clock at the moment of writing."""

    id: bytes
    kind: str
    scope: str
    key: str
    operation: str
    family: bytes | None
    state: str
    guarantee: str
    doubt: int
    fingerprint: bytes
    version: bytes
    token: bytes
    fence: int
    """With `rise`: the least that the new fence may be. Without: the fence, unchanged."""
    attempt: int
    first_at: int
    """`NOW`, or the instant that was read."""
    settled_at: int | None
    """`NOW`, the instant that was read, or None."""
    lease: int | None
    replay: int | None
    forget: int | None
    codec: str | None
    result: bytes | None
    error: bytes | None
    rise: bool
    """The fence becomes the greatest of `fence`, the store's clock in microseconds and any purged fence plus one."""
    relaxed: bool = False
    """This write may skip the disk sync if the store offers that (a relaxed settle)."""
    holder: bytes | None = None


class PutResult(NamedTuple):
    """A store's answer to a put: did it land, and what stands there now."""

    landed: bool
    record: Record | None


class Claimant(NamedTuple):
    """What a caller brings to a key: identity, fingerprint and the kind of effect it has."""

    id: bytes
    kind: str
    scope: str
    key: str
    operation: str
    family: bytes | None
    guarantee: str
    fingerprint: bytes
    lease: int
    keyed_for: int
    """How long the downstream honours a key, in microseconds (for `keyed`)."""
    can_probe: bool
    holder: bytes | None = None
    """The process that asks; None: it does not say."""
    by_lease: bool = False
    """Whether a claim passes on only when its lease ends, whatever became of its holder."""


class PurgeResult(NamedTuple):
    """What one bounded purge did."""

    forgotten: int
    """Rows deleted: settled or released, and past their time to be forgotten."""
    shrunk: int
    """Rows made tombstones: settled, past their retention; result, codec and error are dropped, the rest stays."""


class Selection(NamedTuple):
    """Which records a scan is to show."""

    scope: str | None = None
    kind: str | None = None
    unsettled: bool = False
    """Only claimed and in-doubt records."""
    family: bytes | None = None
    """Only records of this family, by its index. A store may leave this out of account: whoever asks looks again."""
    before: bytes = b""
    """Only ids less than this one; empty: all. A store may leave it out of account, too."""


FIXED_BY_CLAIM: Final = (
    *("kind", "scope", "key", "operation", "family", "guarantee", "fingerprint", "fence", "attempt", "first_at"),
)
"""The fields that stay as a claim has written them, until the next claim: whoever ends or renews it carries them on."""


def record_from_write(write: Write, *, now: int, fence: int) -> Record:
    """What a store reads back right after `write` landed at its time `now` (microseconds) with that fence."""
    (id, kind, scope, key, operation, family, state, guarantee, doubt, fingerprint, version, token) = write[:12]
    (_, attempt, first_at, settled_at, lease, replay, forget, codec, result, error, _, _, holder) = write[12:]
    first_at = first_at or now
    # fmt: off
    landed: Record = new_tuple(Record, (
        id, kind, scope, key, operation, family, state, guarantee, doubt, fingerprint, version, token, fence, attempt,
        first_at, now if settled_at == NOW else settled_at, now - first_at, lease, replay, forget, codec, result, error,
        holder,
    ))
    # fmt: on
    return landed


def record_from_claimant(claimant: Claimant, *, first_at: int, attempt: int, fence: int) -> Record:
    """What a claimant knows of a record whose answer it was handed: enough to name it, nothing to write with."""
    return Record(
        claimant.id,
        claimant.kind,
        claimant.scope,
        claimant.key,
        claimant.operation,
        claimant.family,
        "settled",
        claimant.guarantee,
        0,
        claimant.fingerprint,
        b"",
        b"",
        fence,
        attempt,
        first_at,
        *(None, 0, None, None, None, None, None, None),
    )
