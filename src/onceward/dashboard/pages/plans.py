"""
Plans: series of steps, as a picture: which are done, which runs, where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from onceward._core.keys import KEY_PARTS, bare_key
from onceward._core.record import Record
from onceward.dashboard.html import Content, Markup, element
from onceward.dashboard.layout import (
    badge,
    code,
    digest_link,
    duration,
    empty,
    freshness,
    instant,
    link,
    section,
    table,
    words,
)
from onceward.dashboard.page import Page, PageMissing, PageRequest, Shown
from onceward.gate.record_view import RecordView, view


class PlanView(NamedTuple):
    """One plan, from its steps."""

    family: str
    scope: str
    name: str
    steps: list[RecordView]
    """In the order in which they began."""


def listing(ask: PageRequest) -> Shown:
    """The plans that were touched last."""
    seen = ask.data.steps(ask.reach)
    plans = plans_of(seen.value or [])
    if not plans:
        nothing = empty(
            "There are no plans here.", 'A plan is a named series of steps: gate.plan("order-17").step("charge", ...).'
        )
        return Shown("Plans", [freshness(seen), nothing if seen.value is not None else None], live=True)
    headings = ("Plan", "Scope", "Steps", "Began", "Last step")
    rows = [
        (
            link(ask.chrome, f"/plans/{one.family}", code(one.name, 60)),
            code(one.scope, 60),
            strip(one),
            instant(one.steps[0].first_at),
            instant(one.steps[-1].first_at),
        )
        for one in plans
    ]
    return Shown(
        "Plans", [freshness(seen), section(f"{len(plans):,} plans", table(headings, rows, label="Plans"))], live=True
    )


def strip(plan: PlanView) -> Markup:
    """A square for each step, and the same in words."""
    states = [one.state for one in plan.steps]
    done, doubt = states.count("settled") + states.count("expired"), states.count("in_doubt")
    told = f"{done} of {len(states)} begun steps done" + (f", {doubt} in doubt" if doubt else "")
    squares = [element("span", class_=f"square {_tone(one.state)}", aria_hidden="true") for one in plan.steps[:40]]
    return element("span", element("span", squares, class_="squares"), " ", told)


def show(ask: PageRequest) -> Shown:
    """One plan, step by step."""
    found = plans_of(ask.data.plan(ask.id("family"), ask.reach))
    if not found:
        raise PageMissing
    plan = found[0]
    picture = element("ol", [_step(ask, number, one) for number, one in enumerate(plan.steps, 1)], class_="steps")
    told = "In the order in which they began. Steps that were never reached have no record yet."
    return Shown(
        f"Plan {words(plan.name, 80)}",
        [section("Steps", picture, note=[told, " Scope ", code(plan.scope)])],
        live=True,
    )


def _step(ask: PageRequest, number: int, seen: RecordView) -> Markup:
    details: list[Content] = [instant(seen.first_at), f" · attempt {seen.attempt}"]
    if seen.settled_at is not None:
        details.append(f" · took {duration((seen.settled_at - seen.first_at).total_seconds())}")
    if seen.failure:
        details.append([element("br"), words(seen.failure, 200)])
    return element(
        "li",
        element("span", number, class_=f"number {_tone(seen.state)}", aria_hidden="true"),
        element(
            "div", element("strong", step_name(seen.key)), " ", badge(seen.state), " ", digest_link(ask.chrome, seen.id)
        ),
        element("div", details, class_="note"),
    )


def _tone(state: str) -> str:
    return {"settled": "good", "expired": "good", "claimed": "busy", "in_doubt": "warn", "lapsed": "warn"}.get(
        state, "plain"
    )


def plans_of(steps: Sequence[Record]) -> list[PlanView]:
    """Steps, by plan; the plan that began a step last comes first."""
    families: dict[str, list[RecordView]] = {}
    for one in steps:
        families.setdefault((one.family or b"").hex(), []).append(view(one))
    plans = []
    for family, views in families.items():
        views.sort(key=lambda one: one.first_at)
        plans.append(PlanView(family, views[0].scope, plan_name(views[0]), views))
    return sorted(plans, key=lambda one: one.steps[-1].first_at, reverse=True)


def plan_name(step: RecordView) -> str:
    """The plan of a step, as its caller names it."""
    return bare_key(step.scope, step.key).partition(KEY_PARTS)[0]


def step_name(key: str) -> str:
    """The step in the key of a step."""
    return key.partition(KEY_PARTS)[2] or key


PAGES = (
    Page("plans", "/plans", listing, title="Plans"),
    Page("plans", "/plans/{family}", show),
)
