"""
Operators' decisions about records, with a trace: who decides what and why is in the decision log before it is done.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from onceward._core.keys import ENVIRONMENTS
from onceward._core.operation import Found, NotFound
from onceward._core.record import Record, shown_state
from onceward._core.store_protocols import Store
from onceward._core.terms import DEFAULT_TERMS, Terms
from onceward.audit import Decision, DecisionLog, Operator
from onceward.gate.operator_actions import reconcile_record
from onceward.runtime.environment import REAL, Environment


def decide_record(
    log: DecisionLog,
    store: Store,
    found: Record,
    answer: Found | NotFound,
    operator: Operator,
    *,
    tenant: str | None = None,
    fence: int | None = None,
    terms: Terms = DEFAULT_TERMS,
    environment: Environment = REAL,
) -> Record:
    """`reconcile_record`, with its intent written down before and its outcome after."""
    action = "record.reconcile" if isinstance(answer, Found) else "record.release"
    with log.deciding(decision_about(found, action, operator, tenant)) as made:
        decided = reconcile_record(store, found.id, answer, fence=fence, terms=terms, environment=environment)
        made.after = record_facts(decided)
    return decided


def decision_about(found: Record, action: str, operator: Operator, tenant: str | None = None) -> Decision:
    """A decision about a record or a dead letter, which are named by their ids."""
    return Decision(
        action,
        found.id.hex(),
        operator,
        tenant=tenant,
        environment=environment_of(found.scope),
        before=record_facts(found),
    )


def environment_of(scope: str) -> str | None:
    """The environment that a scope begins with; None if it begins with something else."""
    first = scope.partition(":")[0]
    return first if first in ENVIRONMENTS else None


def record_facts(record: Record) -> dict[str, Any]:
    """What the decision log says of a record. Its result is a digest: results are the tenant's."""
    facts = {"scope": record.scope, "state": shown_state(record), "fence": record.fence, "attempt": record.attempt}
    return facts if record.result is None else {**facts, "resultSha256": sha256(record.result).hexdigest()}
