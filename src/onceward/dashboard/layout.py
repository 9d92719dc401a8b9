"""
The frame of every page, and the pieces that pages share: tables, facts, badges, notices, forms, instants.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from onceward._core.display_text import escape_invisible, format_seconds
from onceward._core.operation import to_datetime
from onceward.dashboard.glances import Glance
from onceward.dashboard.html import Content, Markup, document, element, join
from onceward.dashboard.sessions import DashboardRole, DashboardSession

LIVE_SECONDS = 5
"""Between two refreshes of a page that is looked at."""
STALE_SECONDS = 5.0
"""Older than this, a page says how old it is."""
TEXT_SHOWN = 200


class NavigationEntry(NamedTuple):
    """A page in the menu."""

    page: str
    path: str
    title: str


class Chrome(NamedTuple):
    """What the frame of a page needs to know."""

    base: str
    """In front of every path: where the dashboard is mounted."""
    assets: str
    """Changes with the style and the script, so that a browser may keep them."""
    entries: Sequence[NavigationEntry]
    session: DashboardSession | None
    waiting: dict[str, int]
    """How many things wait for a person, by page."""
    store: str
    """Which store this is, without its password."""

    def url(self, path: str, **query: str | int | None) -> str:
        """An address within the dashboard."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return self.base + path + (f"?{urlencode(given)}" if given else "")


def page(chrome: Chrome, title: str, body: Content, *, current: str = "", live: bool = False) -> Markup:
    """A whole page."""
    head = join(
        (
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("title", f"{title} · Onceward"),
            element("link", rel="stylesheet", href=f"{chrome.base}/static/dashboard.css?v={chrome.assets}"),
            element("script", src=f"{chrome.base}/static/dashboard.js?v={chrome.assets}", defer=True),
        )
    )
    main = element("main", fragment(title, body), id="main", tabindex=-1, data_live=LIVE_SECONDS if live else None)
    content = join(
        (
            element("a", "Skip to content", href="#main", class_="skip"),
            _header(chrome) if chrome.session else None,
            element("div", _navigation(chrome, current) if chrome.session else None, main, class_="frame"),
        )
    )
    return document(head, content, lang="en")


def fragment(title: str, body: Content) -> Markup:
    """What a refresh puts in the place of what was there."""
    return join((element("h1", title), body))


def _header(chrome: Chrome) -> Markup:
    if chrome.session is None:
        return Markup("")
    who = chrome.session.principal
    leave = form(chrome, "/logout", element("button", "Log out", class_="quiet"), class_="inline")
    return element(
        "header",
        element("a", element("span", "once", class_="brand-a"), "ward", href=chrome.url("/"), class_="brand"),
        element("span", chrome.store, class_="store", title="The store that is shown"),
        element("span", who.name, " ", element("span", who.role.word, class_="tag"), class_="who"),
        leave,
        class_="top",
    )


def _navigation(chrome: Chrome, current: str) -> Markup:
    items = []
    for entry in chrome.entries:
        count = chrome.waiting.get(entry.page, 0)
        badge = element("span", f"{count:,}", element("span", " waiting", class_="hidden"), class_="count")
        is_here = entry.page == current
        link = element(
            "a",
            entry.title,
            badge if count else None,
            href=chrome.url(entry.path),
            aria_current="page" if is_here else None,
        )
        items.append(element("li", link))
    return element("nav", element("ul", items), aria_label="Pages")


# --- pieces ---


def section(title: str, *children: Content, note: Content = None) -> Markup:
    """A part of a page under a heading."""
    return element(
        "section", element("h2", title), element("p", note, class_="note") if note else None, children, class_="card"
    )


_ACTION = element("span", "Action", class_="hidden")
"""The heading of a column of links and buttons, for whoever hears the table."""


def table(headings: Sequence[str], rows: Iterable[Sequence[Content]], *, label: str) -> Markup:
    """
    A table. On a narrow screen each row becomes a card, with the headings in front of its cells.

    The roles are written down because a table that is laid out as blocks would lose them.
    """
    head = element(
        "tr", [element("th", one or _ACTION, scope="col", role="columnheader") for one in headings], role="row"
    )
    body = [
        element(
            "tr",
            [
                element("td", element("div", cell), role="cell", data_label=name)
                for name, cell in zip(headings, row, strict=True)
            ],
            role="row",
        )
        for row in rows
    ]
    return element(
        "table",
        element("caption", label, class_="hidden"),
        element("thead", head, role="rowgroup"),
        element("tbody", body, role="rowgroup"),
        role="table",
    )


def facts(pairs: Iterable[tuple[str, Content]]) -> Markup:
    """Names and values; what is None is left out."""
    shown = [
        element("div", element("dt", name), element("dd", value)) for name, value in pairs if value not in (None, "")
    ]
    return element("dl", shown, class_="facts")


def figures(some: Iterable[tuple[str, Content, Content]]) -> Markup:
    """A row of large numbers: what, how much, and what that means."""
    return element(
        "ul",
        [
            element(
                "li",
                element("span", name, class_="figure-name"),
                element("strong", value, class_="figure"),
                element("span", note, class_="figure-note") if note else None,
            )
            for name, value, note in some
        ],
        class_="figures",
    )


_TONES = {
    "in_doubt": "warn",
    "lapsed": "warn",
    "claimed": "busy",
    "settled": "good",
    "released": "plain",
    "expired": "plain",
    "executed": "good",
    "replayed": "busy",
    "refused": "plain",
    "failed": "bad",
    "unknown": "warn",
    "done": "good",
    "open": "bad",
    "probing": "warn",
    "closed": "good",
    "running": "busy",
    "completed": "good",
    "cancelled": "plain",
    "dead": "bad",
    "waiting": "busy",
    "delivered": "good",
    "valid": "good",
    "revoked": "plain",
}


def badge(word: str, text: str | None = None) -> Markup:
    """A state in its colour. The word says it, too: colour alone tells nobody anything."""
    return element("span", text or word.replace("_", " "), class_=f"badge {_TONES.get(word, 'plain')}")


def notice(tone: str, *children: Content, alert: bool = False) -> Markup:
    """A message: good, warn, bad or plain."""
    return element("div", children, class_=f"notice {tone}", role="alert" if alert else None)


def empty(title: str, *what_to_do: Content) -> Markup:
    """What stands where there is nothing yet: that this is so, and what to do."""
    return element("div", element("p", element("strong", title)), element("p", what_to_do), class_="empty")


def commands(*lines: str) -> Markup:
    """Commands to copy."""
    return element("div", [command(one) for one in lines], class_="commands")


def command(line: str) -> Markup:
    """One command; the script adds a button that copies it."""
    return element("pre", element("code", line), class_="command", tabindex=0)


def form(chrome: Chrome, path: str, *children: Content, **attributes: str) -> Markup:
    """A form that is sent with the token of its session."""
    token = chrome.session.csrf if chrome.session is not None else ""
    hidden = element("input", type="hidden", name="csrf", value=token)
    return element("form", hidden, children, method="post", action=chrome.url(path), **attributes)


def field(label: str, name: str, *, help: Content = None, value: str = "", **attributes: str | bool | int) -> Markup:
    """A labelled field of one line."""
    return _labelled(label, name, element("input", id=name, name=name, value=value, **attributes), help)


def area(label: str, name: str, *, help: Content = None, value: str = "", rows: int = 4) -> Markup:
    """A labelled field of several lines."""
    return _labelled(label, name, element("textarea", value, id=name, name=name, rows=rows, spellcheck="false"), help)


def choice(label: str, name: str, options: Iterable[tuple[str, str]], value: str = "") -> Markup:
    """A labelled choice."""
    shown = [element("option", text, value=one, selected=one == value) for one, text in options]
    return _labelled(label, name, element("select", shown, id=name, name=name), None)


def _labelled(label: str, name: str, control: Markup, help: Content) -> Markup:
    told = element("p", help, class_="help") if help else None
    return element("div", element("label", label, for_=name), control, told, class_="field")


def reason_field(required: bool) -> Markup:
    """Why somebody decides."""
    help = "Kept in the decision log, with your name and the time. Write no secrets and nothing about a customer."
    return field("Why" if required else "Why (optional)", "reason", help=help, maxlength=500, required=required)


def link(chrome: Chrome, path: str, text: Content, **query: str | int | None) -> Markup:
    """A link within the dashboard."""
    return element("a", text, href=chrome.url(path, **query))


def digest_link(chrome: Chrome, id: str) -> Markup:
    """A record's digest, which leads to the record."""
    return element("a", element("code", id[:12]), href=chrome.url(f"/records/{id}"))


def code(text: str | None, most: int = TEXT_SHOWN) -> Markup | None:
    """A name or a key, in one line and not endless."""
    if text is None:
        return None
    shown = escape_invisible(text)
    return element("code", shown if len(shown) <= most else f"{shown[:most]}…")


def words(text: str | None, most: int = TEXT_SHOWN) -> str | None:
    """A text that somebody else wrote, in one line and not endless."""
    if text is None:
        return None
    shown = escape_invisible(text)
    return shown if len(shown) <= most else f"{shown[:most]}…"


def instant(at: datetime | int | None) -> Markup | None:
    """A moment, in UTC; the script adds how long ago that is."""
    if at is None:
        return None
    moment = (to_datetime(at) if isinstance(at, int) else at).astimezone(UTC)
    return element("time", moment.strftime("%Y-%m-%d %H:%M:%S"), datetime=moment.isoformat(timespec="milliseconds"))


def duration(seconds: float | None) -> str | None:
    """A length of time in words."""
    if seconds is None:
        return None
    if seconds < 7_200:
        return format_seconds(max(seconds, 0.0))
    return f"{seconds / 3_600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def left(seconds: float | None, ended: str = "ended") -> str | None:
    """How much longer something lasts, or since when it does not."""
    if seconds is None:
        return None
    return f"for {duration(seconds)} more" if seconds > 0 else f"{ended} {duration(-seconds)} ago"


def freshness(glance: Glance[Any]) -> Content:
    """What a page says of data that is not of this moment."""
    if glance.trouble is not None:
        return notice("bad", element("strong", "The store could not be read. "), words(glance.trouble, 500))
    if glance.is_pending:
        return notice("plain", "Still reading the records: this page fills in when that is done.")
    if glance.age_seconds > STALE_SECONDS:
        return element(
            "p", f"As of {duration(glance.age_seconds)} ago: reading this store takes a while.", class_="note"
        )
    return None


def can_decide(chrome: Chrome) -> bool:
    """Whether whoever looks may decide."""
    return chrome.session is not None and chrome.session.principal.role >= DashboardRole.DECIDE
