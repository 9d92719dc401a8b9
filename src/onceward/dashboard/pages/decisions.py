"""
Decisions: who decided what, when and why; and whether the chain of that log holds.
"""

from __future__ import annotations

import json

from onceward.audit import API, DecisionFilter, DecisionView
from onceward.dashboard.data import DECISIONS_PAGE
from onceward.dashboard.html import Content, Markup, element
from onceward.dashboard.layout import (
    badge,
    code,
    command,
    empty,
    field,
    freshness,
    instant,
    link,
    notice,
    section,
    table,
    words,
)  # fmt: skip
from onceward.dashboard.page import Page, PageRequest, Shown

OPERATOR = "operator"


def listing(ask: PageRequest) -> Shown:
    """The log, the latest first."""
    if not ask.data.log.is_chained:
        told = "This store has no tables. Decisions go to the logger onceward.audit of the process that decides."
        return Shown("Decisions", empty("There is no decision log here.", told))
    before = ask.query.get("before", "")
    wanted = {name: ask.query.get(name, "").strip() or None for name in ("action", "actor", "subject")}
    if ask.reach.tenant is not None:
        wanted["actor"] = None  # Who runs the service is nobody's business here; so it is not to be guessed, either.
    found = ask.data.decisions(
        DecisionFilter(
            action=wanted["action"],
            actor=wanted["actor"],
            subject=wanted["subject"],
            tenant=ask.reach.tenant,
            environment=ask.reach.environment,
            before=int(before) if before.isascii() and before.isdigit() and len(before) < 19 else None,
            limit=DECISIONS_PAGE,
        )
    )
    body: list[Content] = [_chain(ask) if ask.reach.tenant is None else None, _form(ask)]
    if not found:
        body.append(
            empty("No decision was found.", "Every decision of an operator is written here before it is carried out.")
        )
        return Shown("Decisions", body)
    headings = ("At", "Who", "Decision", "About", "Outcome", "Why", "Before and after")
    rows = [_row(ask, one) for one in found]
    following = None
    if len(found) == DECISIONS_PAGE and ask.reach.tenant is None:
        given = {name: value or "" for name, value in wanted.items()}
        following = element(
            "p", link(ask.chrome, "/decisions", "Earlier", before=found[-1].number, **given), class_="pager"
        )
    body.append(section("The log", table(headings, rows, label="Decisions"), following))
    return Shown("Decisions", body)


def _chain(ask: PageRequest) -> Content:
    seen = ask.data.verification()
    report = seen.value
    if report is None:
        return freshness(seen)
    if report.findings:
        faults = [
            element("li", f"number {one.number}: " if one.number is not None else "", words(one.fault))
            for one in report.findings[:10]
        ]
        return notice(
            "bad",
            element("strong", "The log was changed. "),
            f"{len(report.findings):,} faults in {report.entries:,} entries:",
            element("ul", faults),
        )
    if not report.entries:
        return None
    told = f"{report.entries:,} entries: none is missing, and none was changed."
    note = "Keep the head somewhere else: with it, a log that was cut short can be detected as well."
    return notice(
        "good",
        element("strong", "The chain holds. "),
        told,
        command(f"onceward audit verify --expect {report.head}"),
        element("p", note, class_="note"),
    )


def _form(ask: PageRequest) -> Markup:
    fields = [field("Decision", "action", value=ask.query.get("action", ""), placeholder="record.release")]
    if ask.reach.tenant is None:
        fields.append(field("Who", "actor", value=ask.query.get("actor", "")))
    fields.append(field("About (begins with)", "subject", value=ask.query.get("subject", "")))
    buttons = element(
        "div", element("button", "Search", class_="primary"), link(ask.chrome, "/decisions", "Clear"), class_="buttons"
    )
    return element(
        "form", element("div", fields, class_="fields"), buttons, method="get", action=ask.chrome.url("/decisions"),
        class_="card search", role="search", aria_label="Decisions",
    )  # fmt: skip


def _row(ask: PageRequest, one: DecisionView) -> tuple[Content, ...]:
    is_open = ask.reach.tenant is None or one.via == API
    outcome = badge(one.outcome) if one.outcome is not None else badge("unknown", "not known")
    return (
        instant(one.at),
        [words(one.actor, 60) if is_open else OPERATOR, element("span", f" via {one.via}", class_="note")],
        code(one.action),
        code(one.subject, 24),
        [outcome, element("span", f" {one.error}", class_="note") if one.error else None],
        words(one.reason, 200) if is_open else None,
        _facts(one) if is_open or one.action.partition(".")[0] in ("record", "letter", "token", "tenant") else None,
    )


def _facts(one: DecisionView) -> Content:
    if one.before is None and one.after is None:
        return "erased with its tenant" if one.erased else None
    text = json.dumps({"before": one.before, "after": one.after}, indent=1, ensure_ascii=False)
    return element("details", element("summary", "Show"), element("pre", element("code", text[:2_000]), tabindex=0))


PAGES = (Page("decisions", "/decisions", listing, title="Decisions"),)
