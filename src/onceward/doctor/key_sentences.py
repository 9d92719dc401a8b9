"""
One sentence that describes a key: what it is made of, how long it holds, and what it refuses.

"Can you describe the idempotency key for every external call your agent makes in one sentence each? If not, that's the
gap."
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from onceward._core.durations import SECOND, format_micros
from onceward.doctor.box import CodePlace
from onceward.doctor.code_facts import KeyFact, OperationFact

_AFTER_A_CRASH: Final = {
    "blind": "after a crash a person decides",
    "keyed": "after a crash it is sent again under the same key",
    "probed": "after a crash it is looked up first",
    "atomic": "it commits with its record, or not at all",
    "repeatable": "after a crash it runs again",
}


@dataclass(frozen=True, slots=True)
class KeySentence:
    """A sentence about the key of one operation, and what it is made from."""

    name: str
    where: str
    """A place in a file, or a module."""
    sentence: str
    unresolved: tuple[str, ...] = ()
    """What is not known: the sentence leaves it open."""


def sentence_of_operation(operation: OperationFact, where: str = "") -> KeySentence:
    """The sentence about a declared operation."""
    parts = [_identity(operation.identified_by, operation.scope), _kept(operation)]
    if other := _others(operation):
        parts.append(f"the same key with another {other} is refused")
    elif operation.compared_by is None:
        parts.append("the same key with other arguments is refused")
    if operation.guarantee in _AFTER_A_CRASH:
        parts.append(_AFTER_A_CRASH[operation.guarantee])
    return KeySentence(
        operation.name, where or str(operation.place), f"{operation.name}: {'; '.join(parts)}.", operation.unresolved
    )


def sentences_of_code(operations: Sequence[OperationFact], keys: Iterable[KeyFact]) -> list[KeySentence]:
    """What the text shows: declared operations first, then the other keys that are made in it."""
    declared = {(one.place.path, one.name) for one in operations}
    found = [sentence_of_operation(one) for one in operations]
    seen: set[tuple[str, tuple[str, ...], tuple[str, ...]]] = set()
    for key in keys:
        if key.is_given or (key.place.path, key.used_by) in declared:
            continue
        identity = (key.used_by, key.made_of, key.words)
        if identity not in seen:
            seen.add(identity)
            found.append(_of_key(key))
    return found


def _of_key(key: KeyFact) -> KeySentence:
    texts = [one.strip(":/-_. ") for one in key.words]
    words = texts[0] if len(texts) == 1 else ""
    if key.made_of:
        what = f"one key per {_listed(key.made_of)}"
        what += f", under {words!r}" if words and len(words) <= 60 else ""
    else:
        what = f"the one key {words!r}" if words else "a key that is made elsewhere"
    open_ends = ("key",) if key.is_opaque or not (key.made_of or words) else ()
    return KeySentence(key.used_by, str(key.place), f"{key.used_by}: {what}.", open_ends)


def _identity(fields: tuple[str, ...] | None, scope: str | None) -> str:
    within = f"in the scope {scope!r}" if scope else "in the scope of its gate"
    if fields is None:
        return f"a key that a function makes, {within}"
    if not fields:
        return f"one key for all calls, {within}"
    return f"one key per {_listed(fields)}, {within}"


def _kept(operation: OperationFact) -> str:
    if operation.retain_seconds is None:
        return "the result is kept as long as its gate says"
    kept = f"the result is kept {_duration(operation.retain_seconds)}"
    if operation.tombstone_seconds is None:
        return kept
    if operation.tombstone_seconds == 0:
        return f"{kept}, and a retry after that runs again"
    return f"{kept}, and for {_duration(operation.tombstone_seconds)} after that a retry is refused"


def _others(operation: OperationFact) -> str:
    rest = [one for one in operation.compared_by or () if one not in (operation.identified_by or ())]
    return " or ".join(rest)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _duration(seconds: float) -> str:
    """As people say it: 24 hours, 30 days."""
    number, _, unit = format_micros(round(seconds * SECOND)).partition(" ")
    return f"{number} { {'h': 'hours', 'min': 'minutes', 's': 'seconds'}.get(unit, unit) }"


def place_of_module(module: str) -> CodePlace:
    """The place of something that was imported."""
    return CodePlace(module, 0)
