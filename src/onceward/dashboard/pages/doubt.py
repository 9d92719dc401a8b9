"""
In doubt: the queue that a person works through. It happened, with this result; or it did not.

A decision is looked at twice: a page shows what is about to be decided, about which claim (its fence), and only then is
it carried out. If the claim has moved on in between, it is refused.
"""

from __future__ import annotations

from typing import Any

from onceward._core.codec import encode
from onceward._core.errors import OncewardError, RequestInvalid
from onceward._core.operation import NOT_FOUND, Found, NotFound
from onceward._core.record import Record
from onceward._core.strict_json import parse_json
from onceward.dashboard.html import Content, element
from onceward.dashboard.layout import (
    area,
    badge,
    can_decide,
    digest_link,
    duration,
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
)
from onceward.dashboard.page import Done, Page, PageMissing, PageRequest, Shown
from onceward.dashboard.pages.records import key_of, record_commands, record_facts
from onceward.dashboard.sessions import DashboardRole
from onceward.gate.record_view import RecordView, view

PROBED_MAX = 50
"""Operations that are looked up at once: each is a call of somebody's own system."""


def queue(ask: PageRequest) -> Shown:
    """What waits."""
    seen = ask.data.in_doubt(ask.reach)
    if not seen.value:
        nothing = empty(
            "Nothing is in doubt.",
            "Operations appear here when nobody knows whether they happened: the process died, or the answer was lost.",
        )
        return Shown("In doubt", [freshness(seen), nothing if seen.value is not None else None], live=True)
    headings = ("Record", "Operation", "Key", "Since", "What is known", "")
    rows = [_row(ask, one) for one in seen.value]
    told = "Check whether it happened, in the system it acts on. It will not run again until someone decides."
    return Shown(
        "In doubt",
        [
            freshness(seen),
            element("p", told, class_="lead"),
            _probe_button(ask),
            section(f"{len(rows):,} waiting", table(headings, rows, label="Operations in doubt")),
        ],
        live=True,
    )


def _row(ask: PageRequest, record: Record) -> tuple[Content, ...]:
    seen = view(record)
    hidden = element("span", f" {seen.digest}", class_="hidden")
    decide = element("a", "Decide…", hidden, href=ask.chrome.url(f"/doubt/{seen.id}"), class_="button")
    return (
        digest_link(ask.chrome, seen.id),
        words(seen.operation, 60) or "(unnamed)",
        [key_of(seen, 60), element("br"), element("span", words(seen.scope, 60), class_="note")],
        instant(seen.first_at),
        known(seen),
        decide,
    )


def known(seen: RecordView) -> Content:
    """What was tried, by whom, and how that ended."""
    parts = [f"attempt {seen.attempt}, {seen.guarantee}"]
    if seen.failure is not None:
        parts.append(str(words(seen.failure, 160)))
    elif seen.holder is not None:
        over = seen.lease_seconds_left
        late = f"; its lease ran out {duration(-over)} ago" if over is not None and over <= 0 else ""
        parts.append(f"process {seen.holder.pid} on {words(seen.holder.host, 60)} did not finish it{late}")
    return " · ".join(parts)


def show(ask: PageRequest) -> Shown:
    """One operation, to be decided."""
    record = _doubted(ask)
    seen = view(record)
    body: list[Content] = [section("What was tried", element("p", known(seen)), record_facts(seen))]
    if can_decide(ask.chrome):
        required = ask.data.log.is_chained and ask.data.log.reasons_required()
        fence = element("input", type="hidden", name="fence", value=seen.fence)
        happened = form(
            ask.chrome,
            f"/doubt/{seen.id}/check",
            fence,
            area(
                "Its result, as JSON",
                "result",
                help="From now on, every sender gets exactly this. Write null if there is no result.",
            ),
            element("button", "It happened…", class_="primary", name="answer", value="happened"),
        )
        did_not = form(
            ask.chrome,
            f"/doubt/{seen.id}/check",
            fence,
            element("p", "This frees the key, and the next attempt runs it again.", class_="help"),
            element("button", "It did not happen…", name="answer", value="did-not"),
        )
        note = "You see a summary before anything is decided." + (" A reason is required." if required else "")
        body.append(section("It happened", happened, note=note))
        body.append(section("It did not happen", did_not))
    else:
        body.append(notice("plain", "Deciding needs the role decide."))
    body.append(section("On the command line", record_commands(record)))
    return Shown(f"In doubt: {seen.digest}", body)


def check(ask: PageRequest) -> Shown:
    """The second look: what is about to be decided, about which claim."""
    record = _doubted(ask)
    seen, answer, fence = view(record), _answer(ask), _fence(ask)
    if fence != seen.fence:
        raise _moved()
    happened = isinstance(answer, Found)
    required = ask.data.log.is_chained and ask.data.log.reasons_required()
    decide = form(
        ask.chrome,
        f"/doubt/{seen.id}/decide",
        [
            element("input", type="hidden", name=name, value=ask.form.get(name, ""))
            for name in ("answer", "result", "fence")
        ],
        reason_field(required),
        element(
            "div",
            element("button", "Yes: it happened" if happened else "Yes: it did not happen", class_="primary danger"),
            link(ask.chrome, f"/doubt/{seen.id}", "Back"),
            class_="buttons",
        ),
    )
    effect = (
        [
            "It is settled with this result, and every sender gets it:",
            element("pre", element("code", ask.form.get("result", "").strip()), tabindex=0),
        ]
        if happened
        else "The key is released, and the next attempt runs the operation. If it happened after all, it happens twice."
    )
    body = [
        section(
            "You are about to decide",
            element("p", element("strong", seen.operation or "(unnamed)"), " ", key_of(seen)),
            element("p", known(seen)),
            notice("warn", effect),
        ),
        section(
            "Sure?",
            decide,
            note=f"Bound to attempt {seen.attempt} (fence {seen.fence}): if it has changed since, nothing is done.",
        ),
    ]
    return Shown("It happened?" if happened else "It did not happen?", body)


def decide(ask: PageRequest) -> Done:
    """Carry it out."""
    record = ask.data.record(ask.id(), ask.reach)
    if record is None:
        raise PageMissing
    answer = _answer(ask)
    decided = view(ask.data.decide(record, answer, ask.principal, ask.reason(), _fence(ask)))
    word = "settled" if isinstance(answer, Found) else "released"
    return Done("/doubt", f"{decided.digest} is {word}.")


# --- in bulk, by a probe ---


def _probe_button(ask: PageRequest) -> Content:
    if ask.options.probe is None or not can_decide(ask.chrome):
        return None
    return form(ask.chrome, "/doubt/probe", element("button", "Ask the probe about all of them…"), class_="inline-form")


def probe(ask: PageRequest) -> Shown:
    """What the probe says of each: nothing is decided yet."""
    found = [(one, _probed(ask, one)) for one in (ask.data.in_doubt(ask.reach).value or [])[:PROBED_MAX]]
    if not found:
        return Shown("What the probe says", empty("Nothing is in doubt.", link(ask.chrome, "/doubt", "Back")))
    rows, fields = [], []
    for record, (answer, said) in found:
        seen = view(record)
        rows.append(
            (digest_link(ask.chrome, seen.id), words(seen.operation, 60), key_of(seen, 60), badge(said[0], said[1]))
        )
        if isinstance(answer, Found | NotFound):
            fields.append(element("input", type="hidden", name=f"fence.{seen.id}", value=seen.fence))
    listing = section(
        "What the probe says", table(("Record", "Operation", "Key", "It says"), rows, label="What the probe says")
    )
    if not fields:
        return Shown("What the probe says", [listing, notice("plain", "It could not decide any of them.")])
    required = ask.data.log.is_chained and ask.data.log.reasons_required()
    every = form(
        ask.chrome,
        "/doubt/probe/decide",
        fields,
        reason_field(required),
        element(
            "div",
            element("button", f"Decide {len(fields)} as the probe says", class_="primary danger"),
            link(ask.chrome, "/doubt", "Back"),
            class_="buttons",
        ),
    )
    note = "Each is checked once more and tied to its fence: anything that changed in the meantime is left alone."
    return Shown("What the probe says", [listing, section("Decide them", every, note=note)])


def decide_probed(ask: PageRequest) -> Done:
    """Decide what the probe can decide, of those that were shown."""
    reason, done, left = ask.reason(), 0, 0
    for name, fence in list(ask.form.items())[: PROBED_MAX + 10]:
        if not name.startswith("fence.") or not fence.isdigit():
            continue
        record = ask.data.record(_id_of(name.removeprefix("fence.")), ask.reach)
        answer = None if record is None else _probed(ask, record)[0]
        if record is None or not isinstance(answer, Found | NotFound):
            left += 1
            continue
        try:
            ask.data.decide(record, answer, ask.principal, reason, int(fence))
            done += 1
        except OncewardError:
            left += 1  # It moved on, or was decided by somebody else: the page shows what is left.
    return Done("/doubt", f"{done} decided as the probe says" + (f"; {left} left as they are." if left else "."))


def _probed(ask: PageRequest, record: Record) -> tuple[Any, tuple[str, str]]:
    if ask.options.probe is None:
        raise PageMissing
    try:
        said = ask.options.probe(view(record))
    except Exception as error:  # Somebody's own function: whatever it raises, it does not know.
        return None, ("failed", f"it raised {type(error).__name__}")
    if isinstance(said, Found):
        return said, ("settled", "it happened")
    if isinstance(said, NotFound):
        return said, ("released", "it did not happen")
    return None, ("unknown", "it does not know")


def _id_of(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise RequestInvalid("this is not the id of a record") from None


# --- what was sent ---


def _doubted(ask: PageRequest) -> Record:
    record = ask.data.record(ask.id(), ask.reach)
    if record is None:
        raise PageMissing
    if view(record).state != "in_doubt":
        raise RequestInvalid("this operation is no longer in doubt: someone decided it, or a probe did")
    return record


def _answer(ask: PageRequest) -> Found | NotFound:
    wanted = ask.form.get("answer")
    if wanted == "did-not":
        return NOT_FOUND
    if wanted != "happened":
        raise RequestInvalid("choose whether it happened or not")
    text = ask.form.get("result", "").strip()
    if not text:
        raise RequestInvalid("write the result as JSON, or null if there is none")
    try:
        result = parse_json(text)
        encode(result)
    except (ValueError, OncewardError) as error:
        raise RequestInvalid(f"the result is not valid JSON: {str(error)[:200]}") from None
    return Found(result)


def _fence(ask: PageRequest) -> int:
    text = ask.form.get("fence", "")
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise RequestInvalid("the form does not say which claim it is about: open the operation again")
    return int(text)


def _moved() -> OncewardError:
    return RequestInvalid("the operation has changed since you looked: open it again")


PAGES = (
    Page("doubt", "/doubt", queue, title="In doubt"),
    Page("doubt", "/doubt/probe", probe, role=DashboardRole.DECIDE, action=True),
    Page("doubt", "/doubt/probe/decide", decide_probed, role=DashboardRole.DECIDE, action=True),
    Page("doubt", "/doubt/{id}", show),
    Page("doubt", "/doubt/{id}/check", check, role=DashboardRole.DECIDE, action=True),
    Page("doubt", "/doubt/{id}/decide", decide, role=DashboardRole.DECIDE, action=True),
)
