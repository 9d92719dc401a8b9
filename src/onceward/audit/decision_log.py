"""
`DecisionLog`: nothing is decided without a trace.

    with DecisionLog.open("sqlite:///agent.db") as log:
        operator = Operator("alice", CLI, "the provider shows no charge")
        with log.deciding(Decision("record.release", digest, operator, before={"state": "in_doubt"})) as made:
            ...  # carry it out
            made.after = {"state": "released"}

The intent is committed before the block runs: if the log cannot be written, the block does not run. The outcome is
written after it. A process that dies in between leaves an intent without an outcome, which means: it is not known
whether it was carried out. A failure to write the outcome is logged and not raised, because what was decided is done.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from onceward._core.errors import (
    ConfigurationError,
    InDoubt,
    OncewardError,
    OutcomeUnknown,
    StoreCorrupt,
    StoreUnavailable,
)
from onceward.audit import log_entries
from onceward.audit.decision import DONE, ERASE, FAILED, UNKNOWN, Decision, Operator
from onceward.audit.decision_views import DecisionFilter, DecisionView, decisions, number_of
from onceward.audit.log_verification import LogHead, LogReport, verify_log
from onceward.runtime.environment import REAL, Environment
from onceward.runtime.progress import Progress, silent
from onceward.stores import tables_url
from onceward.stores.tables import Flow, TablesRunner, open_tables, read_tables, transact

T = TypeVar("T")

REASONS = "audit.reasons"
"""The action that sets whether decisions need a reason."""

_MAY_HAVE_HAPPENED = (StoreUnavailable, OutcomeUnknown, InDoubt)

_logger = logging.getLogger("onceward.audit")


class OpenDecision:
    """A decision that is being carried out."""

    def __init__(self) -> None:
        self.after: Mapping[str, Any] | None = None
        """What is so afterwards. Set it inside the block; no secrets, and results as digests."""


class DecisionLog:
    """The decisions of operators, beside the records of a store. Safe for threads."""

    def __init__(self, tables: TablesRunner | None, environment: Environment = REAL) -> None:
        self._tables = tables
        self._environment = environment

    @classmethod
    def open(cls, url: str | None, *, create: bool = True, environment: Environment = REAL) -> Self:
        """
        Open the log of the store that a URL names; with `create`, make it.

        A store without tables (Redis, memory) has no chain: its decisions go to the logger `onceward.audit`, as JSON.
        None stands for such a store, too.
        """
        if url is None or tables_url(url) is None:
            return cls(None, environment)
        try:
            return cls(TablesRunner(open_tables(url, log_entries.SCHEMA, environment, create=create)), environment)
        except StoreUnavailable as error:
            if not create:
                raise
            raise _closed(error) from error

    @property
    def is_chained(self) -> bool:
        """Whether decisions are kept in a chain; otherwise they only go to the logger."""
        return self._tables is not None

    @contextmanager
    def deciding(self, decision: Decision) -> Iterator[OpenDecision]:
        """Write down a decision, let the block carry it out, and write down what came of it."""
        number = self._begin(decision)
        made = OpenDecision()
        try:
            yield made
        except BaseException as error:
            self._end(number, decision, outcome_of(error), None, code_of(error))
            raise
        self._end(number, decision, DONE, made.after, None)

    def find(self, chosen: DecisionFilter = DecisionFilter()) -> list[DecisionView]:  # noqa: B008 - immutable
        """Decisions, the latest first."""
        return self._run(read_tables(partial(decisions, chosen)))

    def number_of(self, tenant: str, id: str) -> int | None:
        """The number of a tenant's decision, by its id."""
        return self._run(read_tables(partial(number_of, tenant, id)))

    def verify(self, expected: LogHead | None = None, progress: Progress = silent) -> LogReport:
        """Walk the whole log."""
        return self._run(verify_log(expected, progress))

    def reasons_required(self) -> bool:
        """Whether a decision without a reason is refused."""
        return self._run(read_tables(log_entries.reasons_required))

    def require_reasons(self, required: bool, operator: Operator) -> None:
        """Set that, for the command line, the API and whatever else decides here. It is a decision itself."""
        before = {"required": self.reasons_required()}
        with self.deciding(Decision(REASONS, "reasons", operator, before=before)) as made:
            self._run(transact("audit.reasons", partial(log_entries.require_reasons, required)))
            made.after = {"required": required}

    def erase_tenant(self, tenant: str, operator: Operator) -> int:
        """
        Delete what stands here about a tenant; how many texts. The chain holds, and who decided stays known.

        Unless the chain has it already, `tenant.erase` is written first: texts that are missing without it are a fault.
        """
        if self._tables is None or self._run(read_tables(partial(log_entries.tag_of, tenant))) is None:
            return 0
        if self._run(read_tables(partial(log_entries.is_erasing, tenant))):
            return self._erase_texts(self._tables, tenant)
        with self.deciding(Decision(ERASE, f"tenant {tenant}", operator, tenant=tenant)):
            return self._erase_texts(self._tables, tenant)

    def _erase_texts(self, tables: TablesRunner, tenant: str) -> int:
        count = tables.run(_erase(tenant))
        tables.driver.wipe()
        return count

    def close(self) -> None:
        """Let go of files and connections."""
        if self._tables is not None:
            self._tables.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, decision: Decision) -> int:
        if self._tables is None:
            decision.operator.checked()
            self._tell(decision, None, decision.before, None)
            return 0
        try:
            steps = partial(log_entries.append_intent, decision, self._environment.random)
            return self._run(transact("audit.intent", steps))
        except StoreCorrupt:
            raise
        except StoreUnavailable as error:
            raise _closed(error) from error

    def _end(
        self, number: int, decision: Decision, outcome: str, after: Mapping[str, Any] | None, error: str | None
    ) -> None:
        if self._tables is None:
            self._tell(decision, outcome, after, error)
            return
        try:
            steps = partial(log_entries.append_outcome, number, outcome, after, error, self._environment.random)
            self._run(transact("audit.outcome", steps))
        except Exception as trouble:
            _logger.error(  # noqa: TRY400 - the message says it all
                "decision %d (%s) is %s, but the decision log could not be updated, and shows its outcome as unknown: "
                "%s",
                number, decision.action, outcome, trouble,
            )  # fmt: skip

    def _tell(
        self, decision: Decision, outcome: str | None, facts: Mapping[str, Any] | None, error: str | None
    ) -> None:
        """For a store without tables. A warning, so that it is seen where no logging was set up."""
        document = {
            "decision": decision.action,
            "subject": decision.subject,
            "actor": decision.operator.actor,
            "via": decision.operator.via,
            "reason": decision.operator.reason,
            "at": self._environment.wall_us(),
            "outcome": outcome,
            "before" if outcome is None else "after": None if facts is None else dict(facts),
            "error": error,
        }
        with suppress(TypeError, ValueError):
            _logger.warning("%s", json.dumps({name: one for name, one in document.items() if one is not None}))

    def _run(self, flow: Flow[T]) -> T:
        if self._tables is None:
            raise ConfigurationError(
                "this store has no tables, so it keeps no decision log: decisions went to the logger onceward.audit "
                "of the process that decided"
            )
        return self._tables.run(flow)


def outcome_of(error: BaseException) -> str:
    """What is known of a decision that raised."""
    if isinstance(error, OncewardError) and not isinstance(error, _MAY_HAVE_HAPPENED):
        return FAILED
    return UNKNOWN


def code_of(error: BaseException) -> str:
    """What it raised, in a word; never its message, which may hold anything."""
    return error.code if isinstance(error, OncewardError) else type(error).__name__


def _closed(error: StoreUnavailable) -> StoreUnavailable:
    return StoreUnavailable(
        f"nothing was decided, because the decision log cannot be written. Make it writable, and decide again: {error}"
    )


def _erase(tenant: str) -> Flow[int]:
    tag = yield from read_tables(partial(log_entries.tag_of, tenant))
    total, after = 0, 0 if tag is not None else None
    while tag is not None and after is not None:
        count, after = yield from transact("audit.erase", partial(log_entries.erase_some, tag, after))
        total += count
    return total
