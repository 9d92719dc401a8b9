"""
Dead letters: operations that were given up, kept with their evidence until somebody decides.

A letter is a record of a kind of its own, in the same store as the operation's record and changed like it, by
compare-and-swap. It is found by the same scope and key, so an operation that is given up again is the same letter,
counted up. Its text is JSON under a codec of its own, so that commands that show records never show a payload.

Doubt is sticky here, too: a letter that says "may have happened" goes on saying so, whatever a later attempt came to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeGuard

from onceward._core.attempt_history import TRIES_KEPT, AttemptSummary
from onceward._core.codec import shortened
from onceward._core.durations import SECOND
from onceward._core.errors import ResultInvalid, SchemaMismatch, SealBroken, SealKeyMissing, StoreContended
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.flow import RANDOM_BYTES, Flow, Load, Put
from onceward._core.keys import digest_of, kind_family, record_id
from onceward._core.operation import to_datetime
from onceward._core.record import NOW, Guarantee, Record, State, Write, shown_state
from onceward._core.sealing import is_sealed, unreadable_error
from onceward._core.stops import Stop
from onceward._core.verdict import Action, Certainty, Kind, Verdict

DEAD = "dead"
"""The kind of record that a letter is."""

CODEC = "dead/1"

KEEP = 30 * 24 * 3_600 * SECOND
"""A month from the last giving up: as long as a tombstone, so that both are still there after a holiday."""

PAYLOAD_BYTES_MAX = 65_536
"""Of a payload: arguments, not files. A larger one is left out, and the letter says so."""

NAME_CHARACTERS_MAX = 200

SPINS_MAX = 8
"""Writers that get in between. More of them, and something else is wrong."""

Payload = Literal["omitted", "plain", "sealed"]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An operation that was given up, and what is known about it. The first and last time are the store's, in UTC."""

    id: str
    digest: str
    """What commands and logs call this letter."""
    record: str
    """The digest of the operation's own record, whether there is one or not."""
    scope: str
    key: str = field(repr=False)
    keyed: bool
    """Whether the caller gave the key; without one it was made up here, and no record can be in doubt under it."""
    name: str
    """What the call was called; its handler is registered under this name."""
    request: str | None
    """Of an HTTP request of our clients: its method and address, without the query. Such a letter needs no handler."""
    fingerprint: str | None
    """Of the call's arguments, in hex; None if they have no canonical form."""
    reason: str
    """Why it was given up last: a word of `StopReason`, or "requeue" if it was tried again from here in vain."""
    verdict: Verdict
    """UNKNOWN if any attempt may have had its effect."""
    count: int
    """How often it was given up."""
    requeues: int
    """How often it was tried again from here, in vain."""
    attempts: int
    """How many attempts were made in all."""
    tries: tuple[AttemptSummary, ...]
    """How they ended: the first, and the latest."""
    retry_at: datetime | None
    """When the other side wants to be asked again, if it said so."""
    first_at: datetime
    last_at: datetime
    seconds_old: float
    """How long ago it was first given up."""
    seconds_left: float | None
    """How much longer it is kept."""
    payload: Payload
    """Whether the arguments were kept, and how."""
    payload_note: str | None
    """Why they were not kept, although they were meant to be."""
    payload_data: str | None = field(repr=False)
    version: bytes = field(repr=False)

    @property
    def error(self) -> str | None:
        """The type of the last error."""
        return self.tries[-1].error if self.tries else None

    @property
    def message(self) -> str | None:
        """What the last error said."""
        return self.tries[-1].message if self.tries else None

    @property
    def may_have_happened(self) -> bool:
        """Whether nobody knows if an attempt had its effect."""
        return self.verdict.happened is None


class StoredPayload(NamedTuple):
    """A payload as it is kept, or why it is not."""

    how: Payload = "omitted"
    data: str | None = None
    note: str | None = None


class DeadLetterDraft(NamedTuple):
    """A letter to be put."""

    id: bytes
    scope: str
    key: str
    name: str
    fingerprint: bytes | None
    document: dict[str, Any]


def dead_letter_id(scope: str, stored_key: str) -> bytes:
    """The id of the letter about an operation. The key is the one that is stored, with its environment."""
    return record_id(DEAD, scope, stored_key)


def clean_name(name: str) -> str:
    """A call's name as it is stored and looked up: without control characters, and not endless."""
    text = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in name)
    return shortened(text, NAME_CHARACTERS_MAX)


def draft_dead_letter(
    stop: Stop,
    scope: str,
    key: str,
    name: str,
    *,
    keyed: bool,
    fingerprint: bytes | None,
    payload: StoredPayload,
    request: str | None = None,
) -> DeadLetterDraft:
    """The letter about a call that was given up."""
    name = clean_name(name)
    document = {
        "name": name,
        "keyed": keyed,
        "fingerprint": None if fingerprint is None else fingerprint.hex(),
        "reason": stop.reason.value,
        "verdict": _verdict_document(stop.verdict),
        "count": 1,
        "requeues": 0,
        "attempts": stop.attempts,
        "tries": [_tried_document(one) for one in stop.tries[-TRIES_KEPT:]],
        "retryAt": None if stop.retry_at is None else stop.retry_at.isoformat(),
        "payload": payload._asdict(),
        "request": request,
    }
    return DeadLetterDraft(dead_letter_id(scope, key), scope, key, name, fingerprint, document)


# --- moves ---


def put_dead_letter(draft: DeadLetterDraft, keep: int) -> Flow[DeadLetter]:
    """Keep a letter: a new one, or the one that is there, counted up."""
    found: Record | None = None  # Most letters are new: the first put finds out.
    for _ in range(SPINS_MAX):
        document = draft.document if not is_dead_letter(found) else _counted_up(found, draft.document)
        chance = yield RANDOM_BYTES
        write = _write(draft, document, keep, found, chance)
        put = yield Put("dead", write, None if found is None else found.version)
        if put.landed or (put.record is not None and put.record.version == write.version):
            return dead_letter_of(put.record)
        found = put.record
    raise StoreContended


def note_failed_requeue(letter: DeadLetter, tried: AttemptSummary, verdict: Verdict, keep: int) -> Flow[None]:
    """
    Note that a requeue was in vain. If the letter has moved since it was read, somebody has noted it already (the
    handler's own policy, most likely), and it is left as it is.
    """
    found = yield Load("dead.load", bytes.fromhex(letter.id))
    if not is_dead_letter(found) or found.version != letter.version:
        return
    document = _document(found)
    made = document["attempts"] + 1
    sticky = letter.may_have_happened and verdict.happened is not None
    changed = {
        "reason": "requeue",
        "verdict": document["verdict"] if sticky else _verdict_document(verdict),
        "requeues": document["requeues"] + 1,
        "attempts": made,
        "tries": _bounded([*document["tries"], _tried_document(tried._replace(number=made))]),
    }
    draft = DeadLetterDraft(found.id, found.scope, found.key, found.operation, found.fingerprint, {})
    chance = yield RANDOM_BYTES
    yield Put("dead", _write(draft, document | changed, keep, found, chance), found.version)


def discard(id: bytes) -> Flow[bool]:
    """Let go of a letter and all that it holds; whether there was one. The empty row goes with the next purge."""
    found = yield Load("dead.load", id)
    for _ in range(SPINS_MAX):
        if not is_dead_letter(found):
            return False
        draft = DeadLetterDraft(found.id, found.scope, found.key, found.operation, found.fingerprint, {})
        chance = yield RANDOM_BYTES
        write = _write(draft, None, SECOND, found, chance)
        put = yield Put("dead.discard", write, found.version)
        if put.landed or (put.record is not None and put.record.version == write.version):
            return True
        found = put.record
    raise StoreContended


def lookup(id: bytes) -> Flow[Record | None]:
    """The record with this id, if there is one."""
    found: Record | None = yield Load("dead.load", id)
    return found


# --- reading ---


def is_dead_letter(found: Record | None) -> TypeGuard[Record]:
    """Whether a letter stands there: not one that was discarded, nor one whose time is over."""
    return found is not None and found.kind == DEAD and found.result is not None and shown_state(found) == State.SETTLED


def dead_letter_of(found: Record) -> DeadLetter:
    """A record of that kind as people and programs see it."""
    document = _document(found)
    try:
        verdict, payload = document["verdict"], document["payload"]
        return DeadLetter(
            id=found.id.hex(),
            digest=digest_of(found.id),
            record=digest_of(record_id("key", found.scope, found.key)),
            scope=found.scope,
            key=found.key,
            keyed=bool(document["keyed"]),
            name=str(document["name"]),
            request=document.get("request"),  # Not in letters of 0.1.0.
            fingerprint=document["fingerprint"],
            reason=str(document["reason"]),
            verdict=Verdict(
                Certainty(verdict["certainty"]), Kind(verdict["kind"]), Action(verdict["action"]), code=verdict["code"]
            ),
            count=int(document["count"]),
            requeues=int(document["requeues"]),
            attempts=int(document["attempts"]),
            tries=tuple(AttemptSummary(**{**one, "at": _moment(one["at"])}) for one in document["tries"]),
            retry_at=None if document["retryAt"] is None else _moment(document["retryAt"]),
            first_at=to_datetime(found.first_at),
            last_at=to_datetime(found.settled_at or found.first_at),
            seconds_old=found.age / SECOND,
            seconds_left=None if found.forget_left is None else found.forget_left / SECOND,
            payload=payload["how"],
            payload_note=payload["note"],
            payload_data=payload["data"],
            version=found.version,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ResultInvalid(
            f"dead letter {digest_of(found.id)} cannot be read: it was damaged, or written by another version"
        ) from error


def readable_dead_letters(found: Sequence[Record]) -> tuple[DeadLetter, ...]:
    """The letters among some records; those that cannot be read are left out."""
    letters = []
    for one in found:
        if is_dead_letter(one):
            try:
                letters.append(dead_letter_of(one))
            except (ResultInvalid, SchemaMismatch, SealBroken, SealKeyMissing):
                continue
    return tuple(letters)


def _document(found: Record) -> dict[str, Any]:
    if found.codec != CODEC:
        if is_sealed(found.codec, found.result):
            raise unreadable_error(found.result)
        raise SchemaMismatch(f"dead letter {digest_of(found.id)} was written by a newer version of Onceward; upgrade")
    try:
        document = json.loads(found.result or b"")
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ResultInvalid(f"dead letter {digest_of(found.id)} cannot be read: it was damaged")
    return document


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


# --- writing ---


def _counted_up(found: Record, new: dict[str, Any]) -> dict[str, Any]:
    try:
        dead_letter_of(found)
    except ResultInvalid:
        return new  # Damaged: nothing of it can be counted, and the new evidence must not be lost with it.
    old, unknown = _document(found), Certainty.UNKNOWN.value
    sticky = old["verdict"]["certainty"] == unknown and new["verdict"]["certainty"] != unknown
    return new | {
        "verdict": old["verdict"] if sticky else new["verdict"],
        "count": old["count"] + 1,
        "requeues": old["requeues"],
        "attempts": old["attempts"] + new["attempts"],
        "tries": _bounded([*old["tries"], *new["tries"]]),
    }


def _bounded(tries: list[Any]) -> list[Any]:
    return tries if len(tries) <= TRIES_KEPT else [tries[0], *tries[1 - TRIES_KEPT :]]


def _verdict_document(verdict: Verdict) -> dict[str, Any]:
    return {
        "certainty": verdict.certainty.value,
        "kind": verdict.kind.value,
        "action": verdict.action.value,
        "code": verdict.code,
    }


def _tried_document(tried: AttemptSummary) -> dict[str, Any]:
    return tried._asdict() | {"at": tried.at.isoformat()}


def _write(draft: DeadLetterDraft, document: Any, keep: int, over: Record | None, chance: bytes) -> Write:
    """The row; without a document, an empty one that is soon forgotten."""
    carries_on = is_dead_letter(over)
    return Write(
        id=draft.id,
        kind=DEAD,
        scope=draft.scope,
        key=draft.key,
        operation=draft.name,
        family=None if document is None else kind_family(DEAD),
        state=State.SETTLED.value,
        guarantee=Guarantee.REPEATABLE.value,
        doubt=0,
        fingerprint=draft.fingerprint or fingerprint_canonical(None),
        version=chance[16:32],
        token=chance[:16],
        fence=1 if over is None else over.fence + 1,
        attempt=1 if document is None else document["count"],
        first_at=over.first_at if over is not None and carries_on else NOW,
        settled_at=NOW,
        lease=None,
        replay=None,
        forget=keep,
        codec=None if document is None else CODEC,
        result=None if document is None else json.dumps(document, separators=(",", ":")).encode(),
        error=None,
        rise=True,
    )
