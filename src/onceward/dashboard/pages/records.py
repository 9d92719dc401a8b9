"""
Records: search them, and see one as a timeline with everything that is known about it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from onceward._core.advice import decide_commands
from onceward._core.keys import bare_key, digest_of
from onceward._core.operation import to_datetime
from onceward._core.record import Record, shown_state
from onceward._core.reply import Reply
from onceward.audit import DecisionFilter
from onceward.dashboard.html import Content, Markup, element
from onceward.dashboard.layout import (
    badge,
    choice,
    code,
    command,
    commands,
    digest_link,
    duration,
    empty,
    facts,
    field,
    instant,
    left,
    link,
    notice,
    section,
    table,
    words,
)
from onceward.dashboard.page import Page, PageMissing, PageRequest, Shown
from onceward.dashboard.searching import PAGE_RECORDS, STATES, RecordQuery, SearchPage
from onceward.dashboard.sessions import DashboardRole
from onceward.gate.call_factory import KEY
from onceward.gate.record_view import RecordView, view
from onceward.runtime.environment import REAL

VALUE_SHOWN = 4_000
"""Characters of a stored value."""


def search(ask: PageRequest) -> Shown:
    """One page of what was searched for."""
    given = ask.query
    query = RecordQuery(
        scope=given.get("scope", "").strip(),
        key=given.get("key", "").strip(),
        digest=given.get("digest", "").strip().lower(),
        state=given.get("state", ""),
        operation=given.get("operation", "").strip(),
        since_us=ask.instant("since"),
        until_us=ask.instant("until"),
        after=given.get("after", ""),
    )
    found = ask.data.records(query, ask.reach)
    return Shown("Records", [_form(ask, query), _found(ask, found), _elsewhere(ask, query)])


def _elsewhere(ask: PageRequest, query: RecordQuery) -> Content:
    """Records of keyed SQL, database by database; searched by digest only."""
    there, after = ask.data.elsewhere, ask.query.get("database_after", "")
    if there is None or any((query.scope, query.key, query.state, query.operation, query.since_us, query.until_us)):
        return None
    if query.digest:
        found, following = there.find(ask.reach, query.digest), None
    else:
        found, following = there.page(ask.reach, PAGE_RECORDS, after)
    if not found:
        told = "A statement sent with a key leaves a record in the database it wrote to."
        return section("In databases", empty("No records of keyed SQL here.", told))
    rows = [(*_row(ask, one)[:2], code(database, 60), *_row(ask, one)[3:]) for one, database in found]
    headings = ("Record", "State", "Database", "Key", "Operation", "Attempt", "First claimed")
    more = None
    if following is not None:
        more = element("p", link(ask.chrome, "/records", "Next page", database_after=following), class_="pager")
    return section("In databases", table(headings, rows, label="Records of keyed SQL"), more)


def _form(ask: PageRequest, query: RecordQuery) -> Markup:
    states = [("", "any"), *((one, one.replace("_", " ")) for one in STATES)]
    fields = [
        field("Scope", "scope", value=query.scope, placeholder="live:acme"),
        field("Key (with its scope)", "key", value=query.key),
        field("Digest", "digest", value=query.digest, placeholder="e9bb26a3a693"),
        choice("State", "state", states, query.state),
        field("Operation begins with", "operation", value=query.operation),
        field("First claimed since (UTC)", "since", value=ask.query.get("since", ""), type="datetime-local"),
        field("until (UTC)", "until", value=ask.query.get("until", ""), type="datetime-local"),
    ]
    buttons = element(
        "div",
        element("button", "Search", class_="primary"),
        link(ask.chrome, "/records", "Clear"),
        class_="buttons",
    )
    return element(
        "form", element("div", fields, class_="fields"), buttons, method="get", action=ask.chrome.url("/records"),
        class_="card search", role="search", aria_label="Records",
    )  # fmt: skip


def _found(ask: PageRequest, found: SearchPage) -> Markup:
    following = None
    if found.after is not None:
        given = {name: value for name, value in ask.query.items() if name != "after"}
        following_text = "Continue searching" if found.ended_early else "Next page"
        following = element(
            "p", link(ask.chrome, "/records", following_text, after=found.after, **given), class_="pager"
        )
    early = None
    if found.ended_early:
        early = notice(
            "plain",
            f"Searched {found.rows_read:,} records, and there are more. A digest is found at once.",
        )
    if not found.records:
        nothing = empty(
            "No records here.", "None matches on this page. Records are also deleted when their time is over."
        )
        return section("Found", early, nothing, following)
    headings = ("Record", "State", "Scope", "Key", "Operation", "Attempt", "First claimed")
    return section(
        "Found", early, table(headings, [_row(ask, one) for one in found.records], label="Records"), following
    )


def _row(ask: PageRequest, record: Record) -> tuple[Content, ...]:
    seen = view(record)
    return (
        digest_link(ask.chrome, seen.id),
        badge(seen.state),
        code(seen.scope, 60),
        [key_of(seen, 60), _kind(seen)],
        words(seen.operation, 60),
        seen.attempt,
        instant(seen.first_at),
    )


def key_of(seen: RecordView, most: int = 200) -> Markup | None:
    """A record's key, as its caller gave it."""
    return code(bare_key(seen.scope, seen.key), most)


def _kind(seen: RecordView) -> Content:
    """What a record is, if it is no operation under a key."""
    return None if seen.kind == KEY else element("div", f"({seen.kind.replace('-', ' ')})", class_="note")


# --- one record ---


def show(ask: PageRequest) -> Shown:
    """Everything about one record."""
    record = ask.data.record(ask.id(), ask.reach) or ask.data.record_elsewhere(ask.id(), ask.reach)
    if record is None:
        raise PageMissing
    seen = view(record)
    attention = None
    if seen.state == "in_doubt":
        attention = notice(
            "warn",
            element("strong", "Nobody knows whether it happened. "),
            "Check in the system it acts on, then ",
            link(ask.chrome, f"/doubt/{seen.id}", "decide it"),
            ".",
        )
    body = [
        attention,
        section("Timeline", _timeline(ask, record, seen)),
        section("Facts", record_facts(seen)),
        section("Request", _request(ask, record)),
        section("Stored result", stored_value(ask, seen)),
        section("On the command line", record_commands(record)),
    ]
    return Shown(f"Record {seen.digest}", body, live=seen.state in ("claimed", "in_doubt", "lapsed"))


def record_facts(seen: RecordView) -> Markup:
    """What is stored, besides the result."""
    holder = seen.holder
    return facts(
        [
            ("State", badge(seen.state)),
            ("Scope", code(seen.scope)),
            ("Key", key_of(seen)),
            ("Operation", words(seen.operation)),
            ("Kind", seen.kind),
            ("Guarantee", seen.guarantee),
            ("Attempt", seen.attempt),
            ("Fence", code(str(seen.fence))),
            ("Held by", f"process {holder.pid} on {words(holder.host)}" if holder is not None else None),
            ("Holder began", instant(holder.started_at) if holder is not None else None),
            ("Lease", left(seen.lease_seconds_left)),
            ("Replays", left(seen.replay_seconds_left)),
            ("Kept", left(seen.forget_seconds_left)),
            ("Failure", words(seen.failure, 500)),
            ("Codec", seen.codec),
            ("Id", code(seen.id)),
        ]
    )


class _Moment(NamedTuple):
    at: datetime
    what: Content
    detail: Content = None
    tone: str = "plain"
    is_future: bool = False


def _timeline(ask: PageRequest, record: Record, seen: RecordView) -> Markup:
    now = to_datetime(REAL.wall_us())
    moments = [_Moment(seen.first_at, "First claimed", None, "busy")]
    for one in ask.data.attempts(record):
        who = f"process {one.process.pid} on {words(one.process.host)}" if one.process is not None else None
        took = duration((one.finished_at - one.started_at).total_seconds()) if one.finished_at is not None else None
        ended = badge(one.outcome) if one.outcome is not None else badge("claimed", "no end noted")
        detail = [words(part) for part in (one.tool, one.worker, who, took and f"took {took}", one.detail) if part]
        run = (
            [" · in the run ", link(ask.chrome, "/run", words(one.run, 60), scope=one.scope, id=one.run)]
            if one.run is not None
            else None
        )
        moments.append(_Moment(one.started_at, ["Attempt ", ended], [" · ".join(map(str, detail)), run], "plain"))
    if seen.settled_at is not None:
        moments.append(_Moment(seen.settled_at, "Settled", "its result is what every sender gets", "good"))
    moments += _decided(ask, seen)
    for what, seconds, told in (
        ("Lease ends", seen.lease_seconds_left, f"attempt {seen.attempt}, fence {seen.fence}"),
        ("Replays end", seen.replay_seconds_left, "then a tombstone is left, without the result"),
        ("Forgotten", seen.forget_seconds_left, "the key is free"),
    ):
        if seconds is not None:
            moments.append(_Moment(now + timedelta(seconds=seconds), what, told, "warn", seconds > 0))
    moments.sort(key=lambda one: one.at)
    return element("ol", [_moment(one) for one in moments], class_="timeline")


def _decided(ask: PageRequest, seen: RecordView) -> list[_Moment]:
    chosen = DecisionFilter(subject=seen.id, tenant=ask.reach.tenant, environment=ask.reach.environment, limit=50)
    found = []
    for one in ask.data.decisions(chosen):
        who = words(one.actor) if ask.reach.tenant is None or one.via == "api" else "operator"
        told = [str(part) for part in (who, one.outcome or "not known whether it was carried out") if part]
        if one.reason and (ask.reach.tenant is None or one.via == "api"):
            told.append(f"“{words(one.reason)}”")
        found.append(_Moment(to_datetime(one.at), f"Decided: {one.action}", " · ".join(told), "good"))
    return found


def _moment(one: _Moment) -> Markup:
    return element(
        "li",
        element("span", instant(one.at), class_="when"),
        element("span", one.what, class_="what"),
        element("span", one.detail, class_="detail") if one.detail else None,
        class_=f"{one.tone}{' future' if one.is_future else ''}",
    )


def _request(ask: PageRequest, record: Record) -> list[Content]:
    """What is known of the request: its fingerprint; and, if a journal was told them, its arguments."""
    told = "The request is not stored. A different one under the same key is detected by its fingerprint, "
    body: list[Content] = [element("p", told, element("code", record.fingerprint.hex()[:24]), "…", class_="note")]
    noted = next((one.arguments for one in ask.data.attempts(record) if one.arguments), None)
    if noted is not None:
        shown = element("pre", element("code", _cut(noted)), class_="value", tabindex=0)
        body.append(shown if ask.shows_values else masked(ask))
    return body


def stored_value(ask: PageRequest, seen: RecordView) -> Content:
    """The result, if whoever asks may see it."""
    if seen.codec is None:
        return element("p", "No result: the operation has not settled, or its result has expired.", class_="note")
    if not ask.shows_values:
        return masked(ask)
    return element("pre", element("code", _text_of(seen.result)), class_="value", tabindex=0)


def masked(ask: PageRequest) -> Markup:
    """What stands in place of a stored value."""
    if ask.principal.role < DashboardRole.ADMIN:
        why = "It is shown to admins only."
    else:
        why = "To show values here, start it with --show-values, or set dashboard_values of the service."
    return element("p", element("span", "•••••••• ", aria_hidden="true"), "Masked. ", why, class_="masked")


def _text_of(value: Any) -> str:
    if isinstance(value, Reply):
        headers = "\n".join(f"{name}: {one}" for name, one in value.headers)
        return _cut(f"HTTP {value.status}\n{headers}\n\n{value.body.decode('utf-8', 'replace')}")
    if isinstance(value, bytes):
        return _cut(b64encode(value).decode("ascii"))
    try:
        return _cut(json.dumps(value, indent=2, ensure_ascii=False, default=str))
    except (TypeError, ValueError, RecursionError):
        return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_SHOWN else f"{text[:VALUE_SHOWN]}…"


def record_commands(record: Record) -> Markup:
    """The same on the command line, word for word."""
    show = f"onceward records show {digest_of(record.id)}"
    return commands(show, *decide_commands(record)) if shown_state(record) == "in_doubt" else command(show)


PAGES = (
    Page("records", "/records", search, title="Records"),
    Page("records", "/records/{id}", show),
)
