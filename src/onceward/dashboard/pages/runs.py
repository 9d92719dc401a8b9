"""
Runs: what agents did, turn by turn, as a waterfall of tool calls; and what was spent.
"""

from __future__ import annotations

from datetime import datetime

from onceward._core.errors import OncewardError
from onceward._core.operation import to_datetime
from onceward._core.spend_state import SPEND, spend_state_of
from onceward.dashboard.charts import span_bar
from onceward.dashboard.html import Content, element
from onceward.dashboard.layout import badge, code, duration, empty, facts, instant, link, section, table, words
from onceward.dashboard.page import Page, PageMissing, PageRequest, Shown
from onceward.journal.views import CallView, RunView
from onceward.protocol.amounts import format_amount
from onceward.runtime.environment import REAL

_TONES = {"executed": "good", "replayed": "busy", "refused": "plain", "failed": "bad", "unknown": "warn"}


def listing(ask: PageRequest) -> Shown:
    """Runs, the latest first."""
    found = ask.data.runs(ask.reach)
    if not found:
        nothing = empty(
            "No runs were recorded.",
            'A journal records runs, turns and tool calls: journal.run("march"), or an AgentGate with a journal.',
        )
        return Shown("Runs", nothing, live=True)
    headings = ("Run", "Status", "Worker", "Attempts", "Effects", "Without an end", "Began", "Last noted")
    rows = [
        (
            link(ask.chrome, "/run", code(one.id, 60), scope=one.scope, id=one.id),
            [badge(one.status), f" begun {one.begun} times" if one.begun > 1 else None],
            words(one.worker, 60),
            one.attempts,
            one.effects,
            one.unended,
            instant(one.started_at),
            instant(one.last_at),
        )
        for one in found
    ]
    return Shown("Runs", section(f"The latest {len(rows):,}", table(headings, rows, label="Runs")), live=True)


def show(ask: PageRequest) -> Shown:
    """One run."""
    found = ask.data.runs(ask.reach, ask.query.get("id", ""), ask.query.get("scope", ""))
    if not found:
        raise PageMissing
    run = found[0]
    calls, turns = ask.data.calls(run), ask.data.turns(run)
    end = run.finished_at or max([run.last_at, *(one.finished_at or one.started_at for one in calls)])
    about = facts(
        [
            ("Status", badge(run.status)),
            ("Scope", code(run.scope)),
            ("Worker", words(run.worker)),
            ("Input", words(run.input_ref)),
            ("Begun", f"{run.begun} times" if run.begun > 1 else "once"),
            ("Began", instant(run.started_at)),
            ("Ended", instant(run.finished_at) or "no end recorded: it is running, or its worker was killed"),
            ("Error", words(run.error, 400)),
            ("Spent", _spent(ask, run)),
        ]
    )
    body = [section("Run", about), section("Tool calls", _waterfall(ask, run.started_at, end, calls))]
    if turns:
        rows = [
            (
                one.seq,
                badge(one.status),
                one.begun,
                instant(one.started_at),
                duration((one.finished_at - one.started_at).total_seconds()) if one.finished_at else "no end noted",
                words(one.error),
            )
            for one in turns
        ]
        body.append(section("Turns", table(("Turn", "Status", "Begun", "At", "Took", "Error"), rows, label="Turns")))
    return Shown(f"Run {words(run.id, 60)}", body, live=run.finished_at is None)


def _waterfall(ask: PageRequest, begin: datetime, end: datetime, calls: list[CallView]) -> Content:
    if not calls:
        return empty(
            "No tool calls were recorded.",
            "Calls are recorded when they are made through the gate, or with turn.call(...).",
        )
    whole = max((end - begin).total_seconds(), 0.001)
    rows = []
    for one in calls:
        until = one.finished_at or min(end, to_datetime(REAL.wall_us()))
        from_, to = (one.started_at - begin).total_seconds() / whole, (until - begin).total_seconds() / whole
        took = duration((until - one.started_at).total_seconds()) if one.finished_at else "no end noted"
        tone = _TONES.get(one.outcome or "", "warn")
        label = f"{one.tool}: began after {duration((one.started_at - begin).total_seconds())}, {took}"
        rows.append(
            (
                "" if one.turn is None else one.turn,
                words(one.tool, 60)
                if one.digest is None
                else link(ask.chrome, "/records", words(one.tool, 60), digest=one.digest),
                badge(one.outcome) if one.outcome else badge("unknown", "no end"),
                span_bar(from_, to, tone, label=label),
                took,
                words(one.detail, 80),
            )
        )
    headings = ("Turn", "Tool", "Outcome", "When", "Took", "Detail")
    shown = range(0 if any(one.turn is not None for one in calls) else 1, len(headings))
    return table(
        [headings[place] for place in shown], [[row[place] for place in shown] for row in rows], label="Tool calls"
    )


def _spent(ask: PageRequest, run: RunView) -> Content:
    """From the caps that are for this run alone."""
    found = []
    for one in ask.data.shared(ask.reach).value or []:
        if one.kind != SPEND or one.scope != run.scope or not one.key.endswith(f":run:{run.id}"):
            continue
        try:
            state = spend_state_of(one)
        except OncewardError:
            continue
        unit = words(one.key.partition(":")[0], 20)
        found.append(f"{format_amount(state.spent)} {unit}, and {format_amount(state.reserved)} {unit} reserved")
    return [element("div", text) for text in found] if found else None


PAGES = (
    Page("runs", "/runs", listing, title="Runs"),
    Page("runs", "/run", show),
)
