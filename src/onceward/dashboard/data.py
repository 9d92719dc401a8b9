"""
`DashboardData`: what pages ask of a store, and what they decide. Everything here blocks, and reads a bounded number of
rows for each question; what may take long is a `Glance`.

A page gives the `Reach` of whoever looks, and is given nothing beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from onceward._core.dead_letters import DeadLetter, dead_letter_of, is_dead_letter
from onceward._core.errors import ConfigurationError, IllegalMove, StoreUnavailable
from onceward._core.keys import kind_family
from onceward._core.operation import Found, NotFound
from onceward._core.record import Record, shown_state
from onceward._core.shared_state import BREAKER, BUDGET, WINDOWED_BUDGET
from onceward._core.spend_state import SPEND
from onceward._core.store_protocols import Selection, Store
from onceward.audit import Decision, DecisionFilter, DecisionLog, DecisionView, LogReport, Operator
from onceward.dashboard.glances import Glance, Glances
from onceward.dashboard.sampling import Sample, read_sample
from onceward.dashboard.searching import RecordQuery, SearchPage, find_page, is_shown
from onceward.dashboard.sessions import Principal, Reach
from onceward.gate.call_factory import STEP
from onceward.gate.operator_actions import discard_dead_letter
from onceward.gate.record_decisions import decide_record, decision_about, environment_of
from onceward.journal import views as journal_views
from onceward.journal.note_writer import SCHEMA as JOURNAL
from onceward.journal.views import CallFilter, CallView, RunView, TurnView
from onceward.messaging.inbox import stored_sources
from onceward.messaging.inbox.event_table import SCHEMA as INBOX
from onceward.messaging.inbox.event_views import DeadEvent, dead_events
from onceward.messaging.inbox.inbox import Inbox
from onceward.messaging.inbox.stored_sources import SourceView
from onceward.messaging.outbox.message_queue import DeadMessage, DisabledEndpoint, MessageCount
from onceward.messaging.outbox.outbox_admin import OutboxAdmin
from onceward.overview import StatusFinding, dead_letters, look_over, unsettled_records
from onceward.overview.findings import schema_finding
from onceward.overview.record_overview import oldest_first
from onceward.overview.record_walk import records_of_family
from onceward.overview.schema_overview import look_at_schema
from onceward.runtime.environment import REAL, Environment
from onceward.stores import tables_url
from onceward.stores._store_kinds import kind_of
from onceward.stores.tables import TablesRunner, open_tables, read_tables

T = TypeVar("T")

UNSETTLED_MAX = 500
"""Records in flight and in doubt that are shown at once; with more, the oldest ids come first."""
LETTERS_MAX = 200
STEPS_MAX = 1_000
SHARED_MAX = 200
ATTEMPTS_MAX = 200
ACTIVITY_CALLS = 1_000
"""The latest attempts of the journal, from which rates are made."""
DECISIONS_PAGE = 50
RUNS_MAX = 50
MIGRATION = "migration"
"""The subject of a finding about a table of somebody's own, whose migration stopped half-way."""
AGED_RETRY_SECONDS = 10.0
"""Until tables that were not there are looked for again."""


class HealthLine(NamedTuple):
    """One fact about a store."""

    name: str
    ok: bool
    detail: str
    command: str | None = None
    """What to type about it."""
    can_wait: bool = False
    """Whether it is no trouble, and only worth a look."""


class LetterPage(NamedTuple):
    """A page of letters, and how many records of that kind could not be read."""

    letters: list[DeadLetter]
    unreadable: int
    more: bool


class Messages(NamedTuple):
    """An outbox."""

    counts: list[MessageCount]
    disabled: list[DisabledEndpoint]
    dead: list[DeadMessage]


class Events(NamedTuple):
    """An inbox."""

    sources: list[SourceView]
    dead: list[DeadEvent]


class RecordsElsewhere(Protocol):
    """Records that are in no store, but in databases of their own: those of keyed SQL. Everything here blocks."""

    def page(self, reach: Reach, limit: int, after: str) -> tuple[list[tuple[Record, str]], str | None]:
        """Some records, each with its database, and where the next page begins."""

    def find(self, reach: Reach, digits: str) -> list[tuple[Record, str]]:
        """Those whose ids begin with these digits."""


class DashboardData:
    """A store and what stands beside it. Safe for threads."""

    def __init__(
        self,
        url: str,
        store: Store,
        log: DecisionLog,
        *,
        environment: Environment = REAL,
        tenant_of: Callable[[str], str | None] = lambda scope: None,
        elsewhere: RecordsElsewhere | None = None,
        beside: Callable[[], Sequence[StatusFinding]] = tuple,
    ) -> None:
        self.url = url
        self.store = store
        self.log = log
        self.elsewhere = elsewhere
        self._beside = beside
        self.glances = Glances(environment)
        self._environment = environment
        self._tenant_of = tenant_of
        self._tables: dict[str, TablesRunner] = {}
        self._absent_until: dict[str, float] = {}

    def close(self) -> None:
        """Let go of what was opened here. The store and the log are the caller's."""
        self.glances.close()
        for tables in self._tables.values():
            tables.close()

    # --- records ---

    def records(self, query: RecordQuery, reach: Reach) -> SearchPage:
        """One page of records."""
        return find_page(self.store, query.checked(), reach)

    def record(self, id: bytes, reach: Reach) -> Record | None:
        """One record; None if there is none that may be seen."""
        found = self.store.load(id)
        return found if found is not None and is_shown(found, reach) else None

    def record_elsewhere(self, id: bytes, reach: Reach) -> Record | None:
        """One record of a database of its own."""
        found = [] if self.elsewhere is None else self.elsewhere.find(reach, id.hex())
        return found[0][0] if len(found) == 1 else None

    def sample(self, reach: Reach) -> Glance[Sample]:
        """An estimate of how many records there are."""
        return self._glance("sample", reach, lambda: read_sample(self.store, Selection(scope=reach.scope)))

    def unsettled(self, reach: Reach) -> Glance[list[Record]]:
        """Operations that are in flight or in doubt, the oldest first."""
        return self._glance("unsettled", reach, partial(self._unsettled, reach))

    def in_doubt(self, reach: Reach) -> Glance[list[Record]]:
        """Operations that wait for somebody to decide, the oldest first."""
        seen = self.unsettled(reach)
        if seen.value is None:
            return seen
        doubted = [one for one in seen.value if shown_state(one) == "in_doubt"]
        return Glance(doubted, seen.age_seconds, seen.trouble)

    def steps(self, reach: Reach) -> Glance[list[Record]]:
        """Steps of plans, in order of id: as many as are read at once."""
        return self._glance("steps", reach, partial(self._steps, reach))

    def plan(self, family: bytes, reach: Reach) -> list[Record]:
        """The steps of one plan, by their index."""
        found = islice(records_of_family(self.store, family, reach.scope), STEPS_MAX)
        return [one._replace(result=None) for one in found if one.kind == STEP and is_shown(one, reach)]

    def shared(self, reach: Reach) -> Glance[list[Record]]:
        """Breakers, budgets and spending caps that processes share through the store."""

        def read() -> list[Record]:
            found: list[Record] = []
            for kind in (BREAKER, BUDGET, WINDOWED_BUDGET, SPEND):
                some = islice(records_of_family(self.store, kind_family(kind), reach.scope), SHARED_MAX)
                found += [one for one in some if is_shown(one, reach)]
            return found

        return self._glance("shared", reach, read)

    def decide(
        self, record: Record, answer: Found | NotFound, principal: Principal, reason: str | None, fence: int
    ) -> Record:
        """Decide a record in doubt, if it still is the claim that was looked at; it is in the log before it is done."""
        operator = Operator(principal.name, principal.via, reason)
        whose = self._tenant_of(record.scope)
        decided = decide_record(self.log, self.store, record, answer, operator, tenant=whose, fence=fence)
        self.glances.forget()
        return decided

    # --- dead letters ---

    def letters(self, reach: Reach) -> Glance[LetterPage]:
        """What was given up."""
        return self._glance("letters", reach, partial(self._letters, reach))

    def letter(self, id: bytes, reach: Reach) -> DeadLetter | None:
        """One letter."""
        found = self.record(id, reach)
        return dead_letter_of(found) if is_dead_letter(found) else None

    def discard_letter(self, id: bytes, principal: Principal, reason: str | None) -> bool:
        """Let go of a letter; whether there was one that this person may see."""
        found = self.record(id, principal.reach)
        if not is_dead_letter(found):
            return False
        operator = Operator(principal.name, principal.via, reason)
        whose = self._tenant_of(found.scope)
        with self.log.deciding(decision_about(found, "letter.discard", operator, whose)) as made:
            made.after = {"discarded": discard_dead_letter(self.store, found.id)}
        self.glances.forget()
        return True

    def requeue_letter(
        self,
        letter: DeadLetter,
        principal: Principal,
        reason: str | None,
        requeue: Callable[[DeadLetter, bool], object],
        *,
        did_not_happen: bool,
    ) -> None:
        """Do an operation again that was given up. What its handler raises is the caller's."""
        decision = Decision(
            "letter.requeue",
            letter.id,
            Operator(principal.name, principal.via, reason),
            tenant=self._tenant_of(letter.scope),
            environment=environment_of(letter.scope),
            before={"scope": letter.scope, "didNotHappen": did_not_happen},
        )
        try:
            with self.log.deciding(decision):
                requeue(letter, did_not_happen)
        finally:
            self.glances.forget()

    # --- the decision log ---

    def decisions(self, chosen: DecisionFilter) -> list[DecisionView]:
        """Decisions, the latest first."""
        return self.log.find(chosen) if self.log.is_chained else []

    def verification(self) -> Glance[LogReport]:
        """Whether the chain of the log holds. It walks the whole log."""
        return self.glances.look("verify", self.log.verify)

    # --- the journal ---

    def activity(self, reach: Reach) -> Glance[list[CallView]]:
        """The latest attempts in the journal."""
        wanted = CallFilter(within=reach.scope, limit=ACTIVITY_CALLS)
        return self._glance("activity", reach, lambda: self._ask(JOURNAL, partial(journal_views.calls, wanted)) or [])

    def attempts(self, record: Record) -> list[CallView]:
        """The journal's attempts at the operation of a record, the oldest first."""
        wanted = CallFilter(scope=record.scope, digest=record.id[:6].hex(), oldest_first=True, limit=ATTEMPTS_MAX)
        return self._ask(JOURNAL, partial(journal_views.calls, wanted)) or []

    def runs(self, reach: Reach, id: str | None = None, scope: str | None = None) -> list[RunView]:
        """Runs of agents, the latest first."""
        if scope is not None and not reach.sees(scope):
            return []
        found = self._ask(JOURNAL, partial(journal_views.runs, scope or reach.scope, id, RUNS_MAX)) or []
        return [one for one in found if reach.sees(one.scope)]

    def turns(self, run: RunView) -> list[TurnView]:
        """The turns of a run."""
        return self._ask(JOURNAL, partial(journal_views.turns, run.scope, run.id)) or []

    def calls(self, run: RunView) -> list[CallView]:
        """The attempts of a run, the oldest first."""
        wanted = CallFilter(scope=run.scope, run=run.id, oldest_first=True, limit=ACTIVITY_CALLS)
        return self._ask(JOURNAL, partial(journal_views.calls, wanted)) or []

    # --- outbox and inbox ---

    def messages(self) -> Glance[Messages]:
        """The outbox in the store's database; empty if there is none."""
        return self.glances.look("outbox", self._messages)

    def decide_message(self, action: str, id: str, principal: Principal, reason: str | None) -> bool:
        """Requeue or discard a dead message, or enable an endpoint; whether there was such a one."""
        names = {"requeue": "message.requeue", "discard": "message.discard", "enable": "endpoint.enable"}
        with OutboxAdmin(self.url) as admin:
            decision = Decision(names[action], id, Operator(principal.name, principal.via, reason))
            with self.log.deciding(decision):
                if not getattr(admin, action)(id):
                    raise IllegalMove(f"the message or endpoint to {action} no longer exists: {id[:80]}")
        self.glances.forget()
        return True

    def events(self, reach: Reach) -> Glance[Events]:
        """The inbox, as far as somebody may see it."""
        return self._glance("inbox", reach, partial(self._events, reach))

    def requeue_event(self, source: str, id: str, principal: Principal, reason: str | None) -> None:
        """Make an event due again that was given up, of a source that is stored and that this person may see."""
        operator = Operator(principal.name, principal.via, reason)
        with Inbox(self.url, stored_sources=True) as inbox:
            stored = inbox.stored_source(source)
            if stored is None or not principal.reach.sees(stored.scope):
                raise IllegalMove("there is no such source here: requeue its event where its handler is registered")
            whose, environment = self._tenant_of(stored.scope), environment_of(stored.scope)
            with self.log.deciding(Decision("event.requeue", f"{source} {id}", operator, whose, environment)):
                inbox.requeue(source, id)
        self.glances.forget()

    # --- health ---

    def findings(self) -> Glance[list[StatusFinding]]:
        """
        Everything that may need a person, as `onceward status` shows it, and what `beside` finds in the same database.

        For whoever sees the whole store.
        """
        return self.glances.look("findings", lambda: [*look_over(self.url, store=self.store).findings, *self._beside()])

    def health(self) -> Glance[list[HealthLine]]:
        """Whether the store answers, and whether its schema is up to date."""
        return self.glances.look("health", self._health)

    def _health(self) -> list[HealthLine]:
        began = self._environment.monotonic()
        try:
            self.store.load(bytes(32))
        except StoreUnavailable as error:
            return [HealthLine("answers", False, str(error))]
        took = self._environment.monotonic() - began
        lines = [HealthLine("answers", True, f"a read took {took * 1_000:.1f} ms")]
        if kind_of(self.url).upkeep is not None:
            schema = look_at_schema(self.url)
            late = None if schema is None else schema_finding(schema)
            lines.append(
                HealthLine("schema", True, "current")
                if late is None
                else HealthLine("schema", False, late.text, late.commands[0])
            )
        chained = "kept in a chain" if self.log.is_chained else "no tables here, so decisions go to the logs"
        return [*lines, HealthLine("decision log", True, chained)]

    # --- reading ---

    def _glance(self, name: str, reach: Reach, read: Callable[[], T]) -> Glance[T]:
        return self.glances.look(f"{name} {reach.scope or ''}", read)

    def _unsettled(self, reach: Reach) -> list[Record]:
        found = islice(unsettled_records(self.store, reach.scope), UNSETTLED_MAX)
        return oldest_first(one._replace(result=None) for one in found if is_shown(one, reach))

    def _steps(self, reach: Reach) -> list[Record]:
        found: list[Record] = []
        after, selection = b"", Selection(scope=reach.scope, kind=STEP)
        while len(found) < STEPS_MAX and (page := self.store.scan(after, 250, selection)):
            found += [one._replace(result=None) for one in page if is_shown(one, reach)]
            after = page[-1].id
        return found[:STEPS_MAX]

    def _letters(self, reach: Reach) -> LetterPage:
        letters, unreadable = dead_letters(self.store, reach.scope, LETTERS_MAX + 1)
        shown = [one for one in letters if reach.sees(one.scope)]
        shown.sort(key=lambda one: one.last_at, reverse=True)
        return LetterPage(shown[:LETTERS_MAX], len(unreadable), len(shown) > LETTERS_MAX)

    def _messages(self) -> Messages:
        if tables_url(self.url) is None:
            return Messages([], [], [])
        try:
            with OutboxAdmin(self.url) as admin:
                return Messages(admin.message_counts(), admin.disabled(), admin.dead(limit=LETTERS_MAX))
        except ConfigurationError:
            return Messages([], [], [])  # Nobody has an outbox here.

    def _events(self, reach: Reach) -> Events:
        found = self._ask(INBOX, stored_sources.source_views) or []
        sources = [one for one in found if reach.sees(one.scope)]
        dead: list[DeadEvent] = []
        for one in sources:
            if one.dead and len(dead) < LETTERS_MAX:
                dead += self._ask(INBOX, partial(dead_events, one.scope, one.name, "", LETTERS_MAX)) or []
        return Events(sources, dead[:LETTERS_MAX])

    def _ask(self, schema: Any, steps: Callable[[], Any]) -> Any:
        """What steps find in tables beside the records; None if there are none."""
        tables = self._open_tables(schema)
        return None if tables is None else tables.run(read_tables(steps))

    def _open_tables(self, schema: Any) -> TablesRunner | None:
        now, name = self._environment.monotonic(), str(schema.name)
        if name in self._tables:
            return self._tables[name]
        if tables_url(self.url) is None or self._absent_until.get(name, now) > now:
            return None
        try:
            opened = TablesRunner(open_tables(self.url, schema, self._environment, create=False))
        except ConfigurationError:
            self._absent_until[name] = now + AGED_RETRY_SECONDS
            return None
        return self._tables.setdefault(name, opened)
