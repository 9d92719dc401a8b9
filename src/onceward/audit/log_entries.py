"""
The entries of the decision log: rows, their hashes, and the steps that append them and erase texts.

    text     digest = H(part, salt, text): without salt and text, it says nothing
    entry    hash = H(everything it says, the digests of its texts, the hash of the entry before it)

An intent is written before anything is decided, its outcome after. Whoever appends holds the head's row, so entries of
any number of processes are one chain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from onceward._core.canonical import canonical
from onceward._core.chained_hashes import hash_members
from onceward._core.errors import IllegalMove, RequestInvalid, StoreCorrupt
from onceward.audit.decision import (
    ACTOR,
    DETAILS,
    ERASE,
    INTENT,
    OUTCOME,
    REASON,
    SUBJECT,
    SUBJECT_CHARACTERS_MAX,
    Decision,
    check_line,
    goes_with_tenant,
)
from onceward.stores.tables import Schema, Sql, SqlSteps, one_or_none
from onceward.stores.tables.sql_steps import declare_failpoints

SCHEMA = Schema("audit", "onceward.audit", 1, "the first decision of an operator makes them")
GENESIS = ""
ID_DIGITS = 32
SALT_BYTES = 32
TAG_BYTES = 16
ERASED_AT_ONCE = 200

declare_failpoints(
    {
        "audit.intent": "what is about to be decided is written down",
        "audit.outcome": "the outcome of a decision is written down",
        "audit.erase": "texts about an erased tenant are deleted from the decision log",
        "audit.reasons": "it is set whether decisions need a reason",
    }
)

Random = Callable[[int], bytes]


class LogEntry(NamedTuple):
    """A row of the log, in the order of its columns."""

    number: int
    kind: str
    decision: int
    at: int
    action: str
    via: str
    outcome: str | None
    environment: str | None
    tag: str | None
    digests: str
    """JSON: the digest of each text, by its part."""
    previous: str
    hash: str

    @property
    def parts(self) -> dict[str, str]:
        """The digests by part; none, if it is not what this code wrote."""
        try:
            found = json.loads(self.digests)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


COLUMNS = ", ".join(LogEntry._fields)

_HEAD = "SELECT number, hash FROM onceward_audit_head WHERE one = 1 {lock}"
_NOW = "SELECT :now"
_APPEND = f"""INSERT INTO onceward_audit_entries ({COLUMNS})
    VALUES ({", ".join(f":{name}" for name in LogEntry._fields)})"""  # noqa: S608 - names of ours
_MOVE_HEAD = "UPDATE onceward_audit_head SET number = :number, hash = :hash WHERE one = 1"
_TEXT = "INSERT INTO onceward_audit_texts (number, part, salt, text) VALUES (:number, :part, :salt, :text)"
_TAG = "SELECT tag FROM onceward_audit_tenants WHERE tenant = :tenant"
_TENANT = "SELECT tenant FROM onceward_audit_tenants WHERE tag = :tag"
_NEW_TAG = "INSERT INTO onceward_audit_tenants (tenant, tag) VALUES (:tenant, :tag)"
_REQUIRED = "SELECT value FROM onceward_audit WHERE name = 'reasons_required'"
_REQUIRE = "UPDATE onceward_audit SET value = :value WHERE name = 'reasons_required'"
_INTENT = f"SELECT {COLUMNS} FROM onceward_audit_entries WHERE number = :number AND kind = 'intent'"  # noqa: S608
_OF_TAG = f"""SELECT {COLUMNS} FROM onceward_audit_entries
    WHERE tag = :tag AND number > :after ORDER BY number LIMIT :limit"""  # noqa: S608
_ERASING = """SELECT 1 FROM onceward_audit_entries AS e JOIN onceward_audit_tenants AS n ON n.tag = e.tag
    WHERE n.tenant = :tenant AND e.action = :action AND e.kind = 'intent' LIMIT 1"""
_ERASE_TEXT = "DELETE FROM onceward_audit_texts WHERE number = :number AND part = :part RETURNING 1"
_FORGET = "DELETE FROM onceward_audit_tenants WHERE tag = :tag RETURNING 1"


def entry_hash(entry: LogEntry) -> str:
    """Of everything that an entry says."""
    return hash_members("decision", *entry[:-1])


def entry_id(hash: str) -> str:
    """An entry is named by its hash: its number would tell how much others decide."""
    return f"dc_{hash[:ID_DIGITS]}"


def text_digest(part: str, salt: str, text: str) -> str:
    """Of a text. It commits to the text, and says nothing about it once the salt is gone."""
    return hash_members("text", part, salt, text)


def append_intent(decision: Decision, random: Random) -> SqlSteps[int]:
    """Write down what is about to be decided; its number."""
    operator = decision.operator.checked()
    if operator.reason is None and (yield from reasons_required()):
        raise RequestInvalid(
            "decisions here need a reason. On the command line add --reason TEXT; over HTTP, send a member reason"
        )
    last, previous = yield from _hold_head()
    tag = None if decision.tenant is None else (yield from _tag_of(decision.tenant, random))
    texts = {ACTOR: operator.actor, SUBJECT: _as_line(decision.subject), REASON: operator.reason}
    texts[DETAILS] = _json({"tenant": decision.tenant, "before": decision.before})
    entry = LogEntry(
        number=last + 1,
        kind=INTENT,
        decision=last + 1,
        at=0,
        action=decision.action,
        via=operator.via,
        outcome=None,
        environment=decision.environment,
        tag=tag,
        digests="",
        previous=previous,
        hash="",
    )
    return (yield from _append(entry, texts, random))


def append_outcome(
    number: int, outcome: str, after: Mapping[str, Any] | None, error: str | None, random: Random
) -> SqlSteps[int]:
    """Write down what came of a decision. About a tenant that was erased meanwhile, no text is left behind."""
    last, previous = yield from _hold_head()
    row = one_or_none((yield Sql(_INTENT, {"number": number})))
    if row is None:
        raise IllegalMove(f"the decision log has no decision {number}; was it restored from a backup meanwhile?")
    intent = LogEntry(*row)
    erased = intent.tag is not None and not (yield Sql(_TENANT, {"tag": intent.tag}))
    is_kept = not erased or not goes_with_tenant(OUTCOME, intent.action, intent.via, DETAILS)
    texts = {DETAILS: _json({"after": after, "error": error}) if is_kept else None}
    entry = intent._replace(number=last + 1, kind=OUTCOME, outcome=outcome, previous=previous)
    return (yield from _append(entry, texts, random))


def reasons_required() -> SqlSteps[bool]:
    """Whether a decision without a reason is refused."""
    row = one_or_none((yield Sql(_REQUIRED, {})))
    return row is not None and bool(row[0])


def require_reasons(required: bool) -> SqlSteps[None]:
    """Set that."""
    yield Sql(_REQUIRE, {"value": int(required)})


def tag_of(tenant: str) -> SqlSteps[str | None]:
    """What stands for a tenant; None: there is no decision about it."""
    row = one_or_none((yield Sql(_TAG, {"tenant": tenant})))
    return None if row is None else str(row[0])


def is_erasing(tenant: str) -> SqlSteps[bool]:
    """Whether the chain has it that this tenant is being erased."""
    return bool((yield Sql(_ERASING, {"tenant": tenant, "action": ERASE})))


def erase_some(tag: str, after: int) -> SqlSteps[tuple[int, int | None]]:
    """
    Delete what goes with a tenant, of the next few entries: how many texts, and where to go on; None: it is done.

    With the last of them goes what the tag stands for. Entries stay as they are.
    """
    yield from _hold_head()  # Nobody writes about the tenant between the last page and the end.
    page = [LogEntry(*row) for row in (yield Sql(_OF_TAG, {"tag": tag, "after": after, "limit": ERASED_AT_ONCE}))]
    count = 0
    for entry in page:
        for part in entry.parts:
            if goes_with_tenant(entry.kind, entry.action, entry.via, part):
                count += len((yield Sql(_ERASE_TEXT, {"number": entry.number, "part": part})))
    if page:
        return count, page[-1].number
    yield Sql(_FORGET, {"tag": tag})
    return count, None


def _hold_head() -> SqlSteps[tuple[int, str]]:
    row = one_or_none((yield Sql(_HEAD, {})))
    if row is None:
        raise StoreCorrupt(
            "the decision log has lost its head, so nothing can be decided: restore onceward_audit_head from a backup"
        )
    return int(row[0]), str(row[1])


def _tag_of(tenant: str, random: Random) -> SqlSteps[str]:
    known = yield from tag_of(tenant)
    if known is not None:
        return known
    tag = random(TAG_BYTES).hex()
    yield Sql(_NEW_TAG, {"tenant": tenant, "tag": tag})
    return tag


def _append(entry: LogEntry, texts: Mapping[str, str | None], random: Random) -> SqlSteps[int]:
    salted = {part: (random(SALT_BYTES).hex(), text) for part, text in texts.items() if text is not None}
    digests = _json({part: text_digest(part, *one) for part, one in salted.items()})
    [(now,)] = yield Sql(_NOW, {})  # After the wait for the head: entries and their times have one order.
    entry = entry._replace(at=int(now), digests=digests)
    entry = entry._replace(hash=entry_hash(entry))
    yield Sql(_APPEND, entry._asdict())
    for part, (salt, text) in salted.items():
        yield Sql(_TEXT, {"number": entry.number, "part": part, "salt": salt, "text": text})
    yield Sql(_MOVE_HEAD, {"number": entry.number, "hash": entry.hash})
    return entry.number


def _as_line(subject: str) -> str:
    """A subject, if it can be shown; otherwise its digest: senders choose ids, and none is a reason to refuse."""
    try:
        return check_line("a subject", subject, SUBJECT_CHARACTERS_MAX)
    except RequestInvalid:
        return f"sha256:{sha256(subject.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _json(document: Mapping[str, Any]) -> str:
    return canonical({name: value for name, value in document.items() if value is not None}).decode()
