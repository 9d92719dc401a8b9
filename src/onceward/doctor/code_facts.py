"""
What the code shows, as values: keys, retries, breakers, calls to the outside, declared operations.

What is not shown is None, never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from onceward.doctor.box import CodePlace


@dataclass(frozen=True, slots=True)
class KeyFact:
    """An expression that is used as a key."""

    place: CodePlace
    used_by: str
    """What is called with it, as it is written: `api.book`."""
    made_of: tuple[str, ...]
    """The names in it."""
    words: tuple[str, ...]
    """The fixed texts in it: `charge:`."""
    is_given: bool
    """Whether somebody else made it: a parameter, or a field of a request, that is handed on."""
    names_operation: bool
    """Whether it says which operation it is of."""
    is_opaque: bool
    """Whether a function makes it that this file does not show."""


@dataclass(frozen=True, slots=True)
class RetryFact:
    """Something that tries again."""

    place: CodePlace
    library: str
    """`onceward`, another one's name, or empty: written by hand."""
    classified: bool | None = None
    """Whether errors are distinguished."""
    network: bool | None = None
    """Whether it tries again after what a network or a server does."""
    limited: bool | None = None
    exponential: bool | None = None
    jitter: str | None = None
    """full, some, none."""
    capped: bool | None = None
    base: str | None = None
    """The first pause, as it is written."""
    mentions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BreakerFact:
    """A circuit breaker that is made."""

    place: CodePlace
    threshold: str | None
    recovery: str | None
    has_fallback: bool


@dataclass(frozen=True, slots=True)
class EffectFact:
    """A call that changes something outside."""

    place: CodePlace
    called: str
    effect: str
    """`POST`, `payment`, `mail`, `INSERT` and the like."""
    has_key: bool
    has_breaker: bool


@dataclass(frozen=True, slots=True)
class OperationFact:
    """An operation that is declared, as far as the text shows it."""

    place: CodePlace
    name: str
    identified_by: tuple[str, ...] | None
    compared_by: tuple[str, ...] | None
    guarantee: str | None
    retain_seconds: float | None
    tombstone_seconds: float | None
    scope: str | None
    unresolved: tuple[str, ...] = ()
    """What the text does not show: `retain`, `key`."""
    is_atomic: bool = False


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """A table with a key that the code makes."""

    place: CodePlace
    is_unique: bool | None
    """None: a part of the text is put in elsewhere."""
    is_required: bool
    """Whether the key is NOT NULL."""


@dataclass
class CodeFacts:
    """Everything that the Python files show."""

    files: int = 0
    unread: list[CodePlace] = field(default_factory=list)
    findings: dict[str, list[CodePlace]] = field(default_factory=dict)
    """By the linter's codes."""
    keys: list[KeyFact] = field(default_factory=list)
    retries: list[RetryFact] = field(default_factory=list)
    breakers: list[BreakerFact] = field(default_factory=list)
    effects: list[EffectFact] = field(default_factory=list)
    operations: list[OperationFact] = field(default_factory=list)
    fallbacks: list[CodePlace] = field(default_factory=list)
    """Where an open circuit is caught."""
    guards: list[CodePlace] = field(default_factory=list)
    """Inserts in Python that a constraint decides: insert_once, ON CONFLICT."""
    bare_inserts: list[CodePlace] = field(default_factory=list)
    """Inserts in Python that none does: neither a clause, nor a record in the same transaction."""
    merges: list[CodePlace] = field(default_factory=list)
    atomic: list[CodePlace] = field(default_factory=list)
    """Where record and rows commit together."""
    tables: list[KeyedTable] = field(default_factory=list)

    def found(self, *codes: str) -> list[CodePlace]:
        """Where the linter found any of these."""
        return [place for code in codes for place in self.findings.get(code, ())]
