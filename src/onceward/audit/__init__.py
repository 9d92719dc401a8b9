"""
The decision log: who released, reconciled, requeued or erased what, when and why. Append-only, and hash-chained.

An intent is written before a decision is carried out and its outcome after, so no decision is without a trace. Command
line, API and dashboards use the same functions. What was written about a tenant can be erased, and the chain holds.

    stores      the tables are beside the records: `agent.audit.db`, or the same PostgreSQL database
    elsewhere   a store without tables (Redis, memory) has no chain: decisions go to the logger `onceward.audit`

May import: `_core`, `runtime` and `stores`. Start with `decision_log.py`, then `log_entries.py`.
"""

from onceward.audit.decision import API, CLI, DASHBOARD, SERVICE, Decision, Operator
from onceward.audit.decision_log import DecisionLog, OpenDecision
from onceward.audit.decision_views import DecisionFilter, DecisionView
from onceward.audit.log_verification import LogFinding, LogHead, LogReport

__all__ = [
    "API",
    "CLI",
    "DASHBOARD",
    "SERVICE",
    "Decision",
    "DecisionFilter",
    "DecisionLog",
    "DecisionView",
    "LogFinding",
    "LogHead",
    "LogReport",
    "OpenDecision",
    "Operator",
]
