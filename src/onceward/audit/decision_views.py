"""
Decisions as they are read: an intent with its outcome, the latest first.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from onceward.audit.decision import ACTOR, DETAILS, REASON, SUBJECT
from onceward.audit.log_entries import entry_id, tag_of
from onceward.stores.tables import Row, Sql, SqlSteps, one_or_none

PAGE_MAX = 1_000

_JOINS = f"""FROM onceward_audit_entries AS i
    LEFT JOIN onceward_audit_entries AS o ON o.decision = i.number AND o.kind = 'outcome'
    LEFT JOIN onceward_audit_tenants AS n ON n.tag = i.tag
    LEFT JOIN onceward_audit_texts AS a ON a.number = i.number AND a.part = '{ACTOR}'
    LEFT JOIN onceward_audit_texts AS s ON s.number = i.number AND s.part = '{SUBJECT}'
    LEFT JOIN onceward_audit_texts AS r ON r.number = i.number AND r.part = '{REASON}'
    LEFT JOIN onceward_audit_texts AS b ON b.number = i.number AND b.part = '{DETAILS}'
    LEFT JOIN onceward_audit_texts AS d ON d.number = o.number AND d.part = '{DETAILS}'
    WHERE i.kind = 'intent'"""
_COLUMNS = """i.number, i.hash, i.at, i.action, i.via, i.environment, n.tenant, i.tag,
    a.text, s.text, r.text, b.text, o.outcome, o.at, d.text"""
_NUMBER = "SELECT number FROM onceward_audit_entries WHERE tag = :tag AND kind = 'intent' AND substr(hash, 1, 32) = :id"


class DecisionFilter(NamedTuple):
    """Which decisions to show."""

    since_us: int | None = None
    """Not older than this, in microseconds since 1970."""
    actor: str | None = None
    """An actor, or the name before its account: `alice` for `alice (root@db1)`."""
    action: str | None = None
    """An action, or the part before its dot: `record` for every decision about records."""
    subject: str | None = None
    """What a subject begins with."""
    tenant: str | None = None
    environment: str | None = None
    """Decisions of this environment, and of both."""
    before: int | None = None
    """Where the page begins: decisions with a smaller number."""
    limit: int = 100


class DecisionView(NamedTuple):
    """One decision. What was erased with its tenant is None."""

    number: int
    id: str
    at: int
    """Microseconds since 1970 on the store's clock."""
    action: str
    via: str
    environment: str | None
    tenant: str | None
    erased: bool
    """Whether the tenant was erased since, and with it what stood here about it."""
    actor: str | None
    subject: str | None
    reason: str | None
    before: dict[str, Any] | None
    outcome: str | None
    """`done`, `failed` or `unknown`; None: nothing was written after the intent, so it is not known."""
    ended_at: int | None
    after: dict[str, Any] | None
    error: str | None
    """The code of the error, if it failed."""


def decisions(chosen: DecisionFilter) -> SqlSteps[list[DecisionView]]:
    """One page."""
    conditions = [""]
    values: dict[str, Any] = {"limit": chosen.limit}
    given: list[tuple[str, str, Any]] = [
        ("i.at >= :since", "since", chosen.since_us),
        ("(a.text = :actor OR substr(a.text, 1, :actor_length) = :actor_name)", "actor", chosen.actor),
        ("(i.action = :action OR substr(i.action, 1, :action_length) = :action_group)", "action", chosen.action),
        ("substr(s.text, 1, :subject_length) = :subject", "subject", chosen.subject),
        ("n.tenant = :tenant", "tenant", chosen.tenant),
        ("(i.environment IS NULL OR i.environment = :environment)", "environment", chosen.environment),
        ("i.number < :before", "before", chosen.before),
    ]
    for condition, name, value in given:
        if value is not None:
            conditions.append(condition)
            values[name] = value
    if chosen.actor is not None:
        values |= {"actor_name": f"{chosen.actor} (", "actor_length": len(chosen.actor) + 2}
    if chosen.action is not None:
        values |= {"action_group": f"{chosen.action}.", "action_length": len(chosen.action) + 1}
    if chosen.subject is not None:
        values["subject_length"] = len(chosen.subject)
    where = " AND ".join(conditions)
    rows = yield Sql(f"SELECT {_COLUMNS} {_JOINS}{where} ORDER BY i.number DESC LIMIT :limit", values)
    return [_view(row) for row in rows]


def number_of(tenant: str, id: str) -> SqlSteps[int | None]:
    """The number of a tenant's decision, by its id; None if it has none of that id."""
    tag = yield from tag_of(tenant)
    if tag is None:
        return None
    row = one_or_none((yield Sql(_NUMBER, {"tag": tag, "id": id.removeprefix("dc_")})))
    return None if row is None else int(row[0])


def _view(row: Row) -> DecisionView:
    (number, hash, at, action, via, environment, tenant, tag, actor, subject, reason, began, outcome, ended, after) = (
        row
    )
    result = read_document(after)
    return DecisionView(
        number=number,
        id=entry_id(hash),
        at=at,
        action=action,
        via=via,
        environment=environment,
        tenant=tenant,
        erased=tag is not None and tenant is None,
        actor=actor,
        subject=subject,
        reason=reason,
        before=read_document(began).get("before"),
        outcome=outcome,
        ended_at=ended,
        after=result.get("after"),
        error=result.get("error"),
    )


def read_document(text: str | None) -> dict[str, Any]:
    """What a text says; a text that somebody damaged says nothing, and `verify` names it."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
