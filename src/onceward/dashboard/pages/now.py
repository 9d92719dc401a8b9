"""
Now: what happens, what waits for a person, and whether the store is well.
"""

from __future__ import annotations

from onceward._core.errors import OncewardError
from onceward._core.operation import to_datetime
from onceward._core.record import Record, shown_state
from onceward._core.shared_state import BREAKER, BUDGET, WINDOWED_BUDGET, breaker_snapshot_of, value_of
from onceward._core.spend_state import SPEND, spend_state_of
from onceward.dashboard.activity import Activity, summarize
from onceward.dashboard.charts import Series, bars
from onceward.dashboard.data import MIGRATION, HealthLine
from onceward.dashboard.html import Content, Markup, element
from onceward.dashboard.layout import (
    badge,
    code,
    command,
    digest_link,
    duration,
    empty,
    figures,
    freshness,
    instant,
    link,
    notice,
    section,
    table,
    words,
)
from onceward.dashboard.page import Page, PageRequest, Shown
from onceward.gate.record_view import view
from onceward.overview import Level
from onceward.protocol.amounts import format_amount
from onceward.runtime.environment import REAL


def show(ask: PageRequest) -> Shown:
    """The page."""
    return Shown(
        "Now", [_waiting(ask), _activity(ask), _in_flight(ask), _records(ask), _shared(ask), _health(ask)], True
    )


def _waiting(ask: PageRequest) -> Content:
    """What a person is needed for."""
    if ask.reach.tenant is None:
        return _overview(ask)
    doubted, letters = ask.data.in_doubt(ask.reach), ask.data.letters(ask.reach).value
    if doubted.value is None:
        return freshness(doubted)
    waiting: list[Content] = []
    if doubted.value:
        waiting.append(element("li", link(ask.chrome, "/doubt", "In doubt"), f": {len(doubted.value):,}"))
    if letters is not None and letters.letters:
        waiting.append(element("li", link(ask.chrome, "/letters", "Dead letters"), f": {len(letters.letters):,}"))
    return _needed(waiting)


_PLACES = {
    "in doubt": "/doubt",
    "dead letters": "/letters",
    "relay": "/outbox",
    "inbox": "/inbox",
    "in flight": "/records",
}
"""Where a finding of the overview is seen to."""
_OF_STORE = ("store's memory", "purge", MIGRATION)
"""Findings that are about the store itself."""
_PROBLEM = badge("failed", "problem")


def _overview(ask: PageRequest) -> Content:
    """The findings of `onceward status`: those that need somebody, and those to watch."""
    seen = ask.data.findings()
    if seen.value is None:
        return freshness(seen)
    lines: dict[Level, list[Content]] = {Level.NEEDED: [], Level.WATCH: []}
    for one in seen.value:
        if one.level in lines:
            place = _PLACES.get(one.subject)
            subject = link(ask.chrome, place, one.subject) if place else element("strong", one.subject)
            typed = None if place or not one.commands else command(one.commands[0])
            lines[one.level].append(element("li", subject, f": {words(one.text, 400)}", typed))
    watch = lines[Level.WATCH]
    told = notice("plain", element("strong", "Worth a look"), element("ul", watch)) if watch else None
    return [_needed(lines[Level.NEEDED]), told]


def _needed(waiting: list[Content]) -> Markup:
    if not waiting:
        return notice("good", element("strong", "Nothing needs attention. "), "Nothing waits for a decision.")
    return notice("warn", element("strong", "A person is needed"), element("ul", waiting))


def _activity(ask: PageRequest) -> Markup:
    seen = ask.data.activity(ask.reach)
    doubted = ask.data.in_doubt(ask.reach).value or []
    title = "Duplicates prevented"
    if not seen.value:
        return section(
            title,
            freshness(seen),
            empty(
                "Nothing has been recorded yet.",
                "Attempts are counted where a journal is kept: give your gate ",
                element("code", "listeners=[journal.listener()]"),
                ". A service keeps one by itself.",
            )
            if seen.trouble is None
            else None,
        )
    made = summarize(seen.value, to_datetime(REAL.wall_us()))
    return section(
        title,
        freshness(seen),
        _figures(made, len(_held(ask)), len(doubted)),
        _picture(made),
        note=f"From the latest {len(seen.value):,} attempts in the journal.",
    )


def _figures(made: Activity, held: int, doubted: int) -> Markup:
    def rate(name: str) -> str:
        value = made.rates[name]
        return f"{value:,.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")

    per = f"a minute, over {duration(made.covers)}"
    return figures(
        [
            ("Fresh", rate("executed"), per),
            ("Replayed", rate("replayed"), per),
            ("Refused", rate("refused"), per),
            ("Failed", rate("failed"), per),
            ("In flight", f"{held:,}", "claims held now"),
            ("In doubt", f"{doubted:,}", "now"),
        ]
    )


def _picture(made: Activity) -> Markup:
    series = [
        Series("fresh", "good", made.counts["executed"]),
        Series("replayed: a duplicate was prevented", "busy", made.counts["replayed"]),
        Series("refused", "plain", made.counts["refused"]),
        Series("failed", "bad", made.counts["failed"]),
        Series("outcome unknown", "warn", made.counts["unknown"]),
    ]
    label = (
        f"Attempts over time, {duration(made.width)} a bar: {made.total['executed']} fresh, {made.total['replayed']} "
        f"replayed, {made.total['refused']} refused, {made.total['failed']} failed, {made.total['unknown']} unknown."
    )
    shape = "%H:%M:%S" if made.width < 3_600 else "%Y-%m-%d"
    return bars(
        series, label=label, first=f"{made.since.strftime(shape)} UTC", last=f"{made.until.strftime(shape)} UTC"
    )


def _held(ask: PageRequest) -> list[Record]:
    """What somebody holds, or held when it was killed."""
    return [one for one in ask.data.unsettled(ask.reach).value or [] if shown_state(one) in ("claimed", "lapsed")]


def _in_flight(ask: PageRequest) -> Content:
    seen, held = ask.data.unsettled(ask.reach), _held(ask)
    if not held:
        return section("Oldest in flight", freshness(seen), empty("Nothing is in flight.", "No process holds a claim."))
    rows = [_held_row(ask, one) for one in held[:5]]
    more = f"The oldest of {len(held):,}." if len(held) > len(rows) else None
    headings = ("Record", "State", "Operation", "First claimed", "Held by", "Lease")
    return section("Oldest in flight", freshness(seen), table(headings, rows, label="Oldest in flight"), note=more)


def _held_row(ask: PageRequest, record: Record) -> tuple[Content, ...]:
    seen = view(record)
    holder = seen.holder
    lease = seen.lease_seconds_left
    return (
        digest_link(ask.chrome, seen.id),
        badge(seen.state),
        code(seen.operation or "(unnamed)"),
        instant(seen.first_at),
        f"{words(holder.host)}, process {holder.pid}" if holder is not None else "not known",
        None if lease is None else f"{duration(lease)} left" if lease > 0 else f"over for {duration(-lease)}",
    )


def _records(ask: PageRequest) -> Markup:
    seen = ask.data.sample(ask.reach)
    if seen.value is None:
        return section("Records", freshness(seen))
    states = seen.value.states()
    about = "" if seen.value.is_exact else "about "
    total = seen.value.estimate(len(seen.value.records))
    note = None if seen.value.is_exact else "Estimated from a sample in order of id, not counted."
    some = [("All", f"{about}{total:,}", "records")]
    some += [(state.replace("_", " ").capitalize(), f"{about}{count:,}", None) for state, count in states.items()]  # type: ignore[misc]
    return section("Records", freshness(seen), figures(some), note=note)


def _shared(ask: PageRequest) -> Content:
    """Breakers and budgets that processes share."""
    seen = ask.data.shared(ask.reach)
    rows = [row for one in seen.value or [] if (row := _shared_row(one)) is not None]
    if not rows:
        what = "A breaker or budget with a store is shared by processes, and shown here; others live in one process."
        return section("Breakers and budgets", freshness(seen), empty("None is shared through this store.", what))
    headings = ("What", "Name", "Scope", "State", "Detail")
    return section("Breakers and budgets", freshness(seen), table(headings, rows, label="Breakers and budgets"))


def _shared_row(record: Record) -> tuple[Content, ...] | None:
    name, scope = code(record.key), code(record.scope)
    if record.kind == BREAKER:
        seen = breaker_snapshot_of(record)
        detail = (
            f"{seen.failures} failures in a row"
            if seen.state == "closed"
            else (f"may be tried in {duration(seen.left)}" if seen.left > 0 else "may be tried now")
        )
        return "Breaker", name, scope, badge(seen.state), detail
    if record.kind in (BUDGET, WINDOWED_BUDGET):
        value, age = value_of(record)
        return (
            "Retry budget",
            name,
            scope,
            badge("valid", "in use"),
            f"last drawn on {duration(age)} ago" if value else None,
        )
    if record.kind == SPEND:
        try:
            state = spend_state_of(record)
        except OncewardError:
            return "Spending cap", name, scope, badge("failed", "unreadable"), None
        calls = "1 call" if len(state.open) == 1 else f"{len(state.open)} calls"
        detail = f"{format_amount(state.spent)} spent, {format_amount(state.reserved)} reserved by {calls}"
        return "Spending cap", name, scope, badge("valid", "in use"), detail
    return None


def _health(ask: PageRequest) -> Markup:
    seen = ask.data.health()
    lines = list(seen.value or [])
    if ask.reach.tenant is None:
        for one in ask.data.findings().value or []:
            if one.subject in _OF_STORE:
                is_fine = one.level is Level.FINE
                typed = None if is_fine else next(iter(one.commands), None)
                lines.append(HealthLine(one.subject, is_fine, one.text, typed, one.level is Level.WATCH))
    rows: list[tuple[Content, ...]] = [
        (
            one.name,
            badge("done", "ok") if one.ok else badge("in_doubt", "worth a look") if one.can_wait else _PROBLEM,
            [element("p", words(one.detail, 400)), None if one.command is None else command(one.command)],
        )
        for one in lines
    ]
    body = table(("Check", "State", "Detail"), rows, label="Health of the store") if rows else None
    return section("Store", freshness(seen), body)


PAGES = (Page("now", "/", show, title="Now"),)
