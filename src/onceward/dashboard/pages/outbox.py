"""
Outbox: messages on their way out; what was given up, and endpoints that said that they are gone.
"""

from __future__ import annotations

from onceward.dashboard.html import Content, element
from onceward.dashboard.layout import (
    badge,
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

_ACTIONS = {
    "requeue": (
        "Send it again?",
        "Yes: send it again",
        "It is sent under its own id. Later messages of its aggregate may have been delivered already.",
    ),
    "discard": (
        "Discard it?",
        "Yes: delete it",
        "The message is deleted, and never delivered. This cannot be undone.",
    ),
    "enable": ("Enable the endpoint?", "Yes: enable it", "Its messages are delivered again."),
}


def listing(ask: PageRequest) -> Shown:
    """What is in it."""
    seen = ask.data.messages()
    found = seen.value
    if found is None:
        return Shown("Outbox", freshness(seen), live=True)
    if not (found.counts or found.dead or found.disabled):
        nothing = empty(
            "The outbox is empty.", "Messages are added in your own transaction, and delivered by onceward relay run."
        )
        return Shown("Outbox", nothing, live=True)
    counts = [
        (code(one.endpoint, 60), badge(one.state), f"{one.messages:,}", instant(one.oldest_us)) for one in found.counts
    ]
    body: list[Content] = [freshness(seen)]
    body += [
        notice(
            "bad",
            element("strong", words(one.endpoint)),
            f" said that it is gone ({words(one.reason)}), ",
            instant(one.since_us),
            ". ",
            _act(ask, "enable", one.endpoint),
        )
        for one in found.disabled
    ]
    body.append(section("Messages", table(("Endpoint", "State", "Messages", "Oldest"), counts, label="Messages")))
    if found.dead:
        rows = [
            (
                code(one.id, 40),
                code(one.endpoint, 40),
                words(one.topic, 40),
                one.attempts,
                instant(one.dead_us),
                words(one.reason, 100),
                [_act(ask, "requeue", one.id), " ", _act(ask, "discard", one.id)],
            )
            for one in found.dead
        ]
        headings = ("Message", "Endpoint", "Topic", "Tries", "Given up", "Why", "")
        body.append(section(f"{len(rows):,} given up", table(headings, rows, label="Messages that were given up")))
    return Shown("Outbox", body, live=True)


def _act(ask: PageRequest, action: str, id: str) -> Content:
    if not can_decide(ask.chrome):
        return None
    words_ = {"requeue": "Send again…", "discard": "Discard…", "enable": "Enable…"}
    return link(ask.chrome, f"/outbox/{action}", [words_[action], element("span", f" {id}", class_="hidden")], id=id)


def ask_action(ask: PageRequest) -> Shown:
    """The second look."""
    action, id = ask.names["action"], ask.query.get("id", "")
    if action not in _ACTIONS or not id:
        raise PageMissing
    title, yes, told = _ACTIONS[action]
    required = ask.data.log.is_chained and ask.data.log.reasons_required()
    sure = form(
        ask.chrome,
        f"/outbox/{action}",
        element("input", type="hidden", name="id", value=id),
        reason_field(required),
        element(
            "div",
            element("button", yes, class_="primary danger"),
            link(ask.chrome, "/outbox", "Back"),
            class_="buttons",
        ),
    )
    return Shown(title, section("You are about to decide", element("p", code(id)), element("p", told), sure))


def act(ask: PageRequest) -> Done:
    """Carry it out."""
    action, id = ask.names["action"], ask.form.get("id", "")
    if action not in _ACTIONS or not id:
        raise PageMissing
    ask.data.decide_message(action, id, ask.principal, ask.reason())
    return Done("/outbox", f"{words(id, 80)}: {action} is done.")


PAGES = (
    Page("outbox", "/outbox", listing, title="Outbox", operators_only=True),
    Page("outbox", "/outbox/{action}", ask_action, role=DashboardRole.DECIDE, operators_only=True),
    Page("outbox", "/outbox/{action}", act, role=DashboardRole.DECIDE, action=True, operators_only=True),
)
