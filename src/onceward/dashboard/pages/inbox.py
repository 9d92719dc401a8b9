"""
Inbox: webhooks that came in, by source; and events whose handler gave up.
"""

from __future__ import annotations

from onceward.dashboard.html import Content, element
from onceward.dashboard.layout import (
    can_decide,
    code,
    empty,
    form,
    freshness,
    instant,
    link,
    notice,
    reason_field,
    section,
    table,
    words,
)  # fmt: skip
from onceward.dashboard.page import Done, Page, PageMissing, PageRequest, Shown
from onceward.dashboard.sessions import DashboardRole


def listing(ask: PageRequest) -> Shown:
    """Sources and what came from them."""
    seen = ask.data.events(ask.reach)
    found = seen.value
    if found is None:
        return Shown("Inbox", freshness(seen), live=True)
    if not found.sources:
        nothing = empty(
            "No webhook source is known.",
            "Add one with onceward hooks add NAME; its sender then posts to /hooks/NAME of a service.",
        )
        return Shown("Inbox", nothing, live=True)
    headings = ("Source", "Scope", "Events", "Waiting", "Given up", "Repeats", "Altered", "Missing numbers", "Last")
    rows = [
        (
            code(one.name, 40), code(one.scope, 40), f"{one.events:,}", f"{one.waiting:,}", f"{one.dead:,}",
            f"{one.repeats:,}", f"{one.altered:,}", ", ".join(one.missing[:5]) or "none", instant(one.last_at),
        )
        for one in found.sources
    ]  # fmt: skip
    body: list[Content] = [freshness(seen)]
    if any(one.altered for one in found.sources):
        body.append(
            notice(
                "warn",
                "Some events arrived again with a different body: their sender reuses ids, or someone else knows the "
                "secret.",
            )
        )
    body.append(section("Sources", table(headings, rows, label="Sources")))
    if found.dead:
        stored = {(one.scope, one.name) for one in found.sources if one.stored is not None}
        dead = [
            (
                code(one.id, 40),
                code(one.source, 40),
                one.attempts,
                instant(one.received_at),
                words(one.failure, 160),
                _again(ask, one.source, one.id) if (one.scope, one.source) in stored else None,
            )
            for one in found.dead
        ]
        told = ("Event", "Source", "Attempts", "Received", "Failure", "")
        body.append(section(f"{len(dead):,} given up", table(told, dead, label="Events that were given up")))
    return Shown("Inbox", body, live=True)


def _again(ask: PageRequest, source: str, id: str) -> Content:
    if not can_decide(ask.chrome):
        return None
    text = ["Process again…", element("span", f" {id}", class_="hidden")]
    return link(ask.chrome, "/inbox/requeue", text, source=source, id=id)


def ask_requeue(ask: PageRequest) -> Shown:
    """The second look."""
    given = {name: ask.query.get(name, "") for name in ("source", "id")}
    if not all(given.values()):
        raise PageMissing
    required = ask.data.log.is_chained and ask.data.log.reasons_required()
    sure = form(
        ask.chrome,
        "/inbox/requeue",
        [element("input", type="hidden", name=name, value=value) for name, value in given.items()],
        reason_field(required),
        element(
            "div",
            element("button", "Yes: process it again", class_="primary"),
            link(ask.chrome, "/inbox", "Back"),
            class_="buttons",
        ),
    )
    told = "Its handler runs again, once. An event whose record is in doubt is refused: decide that first."
    return Shown(
        "Process it again?",
        section(
            "You are about to decide",
            element("p", code(given["id"]), " of ", code(given["source"])),
            element("p", told),
            sure,
        ),
    )


def requeue(ask: PageRequest) -> Done:
    """Carry it out."""
    source, id = ask.form.get("source", ""), ask.form.get("id", "")
    ask.data.requeue_event(source, id, ask.principal, ask.reason())
    return Done("/inbox", f"{words(id, 80)} of {words(source, 40)} is due again.")


PAGES = (
    Page("inbox", "/inbox", listing, title="Inbox"),
    Page("inbox", "/inbox/requeue", ask_requeue, role=DashboardRole.DECIDE),
    Page("inbox", "/inbox/requeue", requeue, role=DashboardRole.DECIDE, action=True),
)
