"""
Dead letters: operations that were given up. Do it again, or let go of it.
"""

from __future__ import annotations

import json

from onceward._core.codec import message_of, type_name
from onceward._core.dead_letters import DeadLetter
from onceward._core.errors import IllegalMove, OncewardError
from onceward._core.keys import bare_key
from onceward.dashboard.html import Content, Markup, element
from onceward.dashboard.layout import (
    badge,
    can_decide,
    code,
    commands,
    digest_link,
    empty,
    facts,
    form,
    freshness,
    instant,
    left,
    link,
    notice,
    reason_field,
    section,
    table,
    words,
)
from onceward.dashboard.page import Done, Page, PageMissing, PageRequest, Shown
from onceward.dashboard.pages.records import masked
from onceward.dashboard.sessions import DashboardRole


def listing(ask: PageRequest) -> Shown:
    """What was given up, the latest first."""
    seen = ask.data.letters(ask.reach)
    found = seen.value
    if found is None or not found.letters:
        nothing = empty(
            "Nothing was given up.",
            "An operation appears here when its retries are used up, if its policy keeps dead letters.",
        )
        return Shown("Dead letters", [freshness(seen), None if found is None else nothing], live=True)
    unreadable = (
        notice("warn", f"{found.unreadable} more cannot be read: damaged, sealed, or written by another version.")
        if found.unreadable
        else None
    )
    headings = ("Letter", "Operation", "Key", "Why", "Effect", "Last", "Error")
    rows = [
        (
            link(ask.chrome, f"/letters/{one.id}", element("code", one.digest)),
            words(one.name, 60),
            code(bare_key(one.scope, one.key), 60),
            f"{words(one.reason)}: {one.attempts}" if one.reason == "attempts" else words(one.reason),
            effect(one),
            instant(one.last_at),
            code(one.error, 60),
        )
        for one in found.letters
    ]
    shown = section(f"{len(rows):,} given up", table(headings, rows, label="Dead letters"))
    return Shown("Dead letters", [freshness(seen), unreadable, shown], live=True)


def effect(letter: DeadLetter) -> Markup:
    """Whether it may have happened."""
    if letter.may_have_happened:
        return badge("in_doubt", "may have happened")
    return badge("released", letter.verdict.certainty.value.replace("_", " "))


def show(ask: PageRequest) -> Shown:
    """One letter."""
    letter = _letter(ask)
    tries = [
        (
            one.number,
            instant(one.at),
            f"{one.seconds:.3f} s",
            badge("unknown" if one.certainty == "unknown" else "failed", str(one.certainty)),
            words(one.error),
            words(one.message, 300),
        )
        for one in letter.tries
    ]
    body: list[Content] = [
        section("What is known", _facts(ask, letter)),
        section("Attempts", table(("Attempt", "At", "Took", "Effect", "Error", "Message"), tries, label="Attempts"))
        if tries
        else None,
        section("Arguments", _payload(ask, letter)),
    ]
    if can_decide(ask.chrome):
        body += [_requeue_form(ask, letter), _discard_form(ask, letter)]
    body.append(section("On the command line", _commands(letter)))
    return Shown(f"Dead letter {letter.digest}", body)


def _facts(ask: PageRequest, letter: DeadLetter) -> Markup:
    return facts(
        [
            ("Operation", words(letter.name)),
            ("Key", code(bare_key(letter.scope, letter.key))),
            ("Scope", code(letter.scope)),
            ("Its record", digest_link(ask.chrome, _record_id(letter))),
            ("Request", code(letter.request)),
            (
                "Given up",
                f"{letter.count} times, last because of: {words(letter.reason)}"
                if letter.count > 1
                else words(letter.reason),
            ),
            ("Effect", effect(letter)),
            ("Attempts", letter.attempts),
            ("Requeued", f"{letter.requeues} times, without success" if letter.requeues else None),
            ("Retry after", instant(letter.retry_at)),
            ("First", instant(letter.first_at)),
            ("Last", instant(letter.last_at)),
            ("Kept", left(letter.seconds_left)),
        ]
    )


def _record_id(letter: DeadLetter) -> str:
    from onceward._core.keys import record_id
    from onceward.gate.call_factory import KEY

    return record_id(KEY, letter.scope, letter.key).hex()


def _payload(ask: PageRequest, letter: DeadLetter) -> Content:
    if letter.payload == "omitted":
        return element(
            "p", "They were not kept", f": {words(letter.payload_note)}" if letter.payload_note else ".", class_="note"
        )
    if letter.payload == "sealed":
        return element("p", "They are sealed: only your handler can open them.", class_="masked")
    if not ask.shows_values:
        return masked(ask)
    try:
        text = json.dumps(json.loads(letter.payload_data or "null"), indent=2, ensure_ascii=False)[:4_000]
    except (ValueError, RecursionError):
        text = "unreadable"
    return element("pre", element("code", text), class_="value", tabindex=0)


def _requeue_form(ask: PageRequest, letter: DeadLetter) -> Markup:
    if ask.options.requeue is None:
        told = "This dashboard has no handlers. Start it with --app MODULE:NAME, or use the command below."
        return section("Do it again", element("p", told, class_="note"))
    look = element(
        "div",
        element("input", type="checkbox", id="did_not_happen", name="did_not_happen"),
        element("label", "I have checked: it did not happen", for_="did_not_happen"),
        class_="check",
    )
    required = ask.data.log.is_chained and ask.data.log.reasons_required()
    again = form(
        ask.chrome,
        f"/letters/{letter.id}/requeue",
        look if letter.may_have_happened else None,
        reason_field(required),
        element("button", "Do it again", class_="primary"),
    )
    return section(
        "Do it again",
        again,
        note="Under the same key, by your own handler. If its record is in doubt, decide that first.",
    )


def _discard_form(ask: PageRequest, letter: DeadLetter) -> Markup:
    sure = element("a", "Discard…", href=ask.chrome.url(f"/letters/{letter.id}/discard"), class_="button")
    return section(
        "Discard it",
        element("p", sure),
        note="Deletes what is known about it, and its arguments. The operation's own record stays.",
    )


def ask_discard(ask: PageRequest) -> Shown:
    """The second look."""
    letter = _letter(ask)
    required = ask.data.log.is_chained and ask.data.log.reasons_required()
    sure = form(
        ask.chrome,
        f"/letters/{letter.id}/discard",
        reason_field(required),
        element(
            "div",
            element("button", "Yes: discard it", class_="primary danger"),
            link(ask.chrome, f"/letters/{letter.id}", "Back"),
            class_="buttons",
        ),
    )
    return Shown(
        "Discard it?",
        section(f"Dead letter {letter.digest}", element("p", words(letter.name), " · ", effect(letter)), sure),
    )


def discard(ask: PageRequest) -> Done:
    """Delete one."""
    if not ask.data.discard_letter(ask.id(), ask.principal, ask.reason()):
        raise PageMissing
    return Done("/letters", f"{ask.names['id'][:12]} is discarded.")


def requeue(ask: PageRequest) -> Done:
    """Do one again."""
    letter = _letter(ask)
    if ask.options.requeue is None:
        raise PageMissing
    looked = ask.form.get("did_not_happen") == "on"
    try:
        ask.data.requeue_letter(letter, ask.principal, ask.reason(), ask.options.requeue, did_not_happen=looked)
    except OncewardError:
        raise
    except Exception as error:
        message = f"{type_name(type(error))}: {message_of(error)[:300]}"
        raise IllegalMove(f"{letter.name} failed again, and the letter is kept with this attempt: {message}") from None
    return Done("/letters", f"{letter.digest} was done again, and its letter is discarded.")


def _commands(letter: DeadLetter) -> Markup:
    show = f"onceward dead show {letter.digest}"
    again = f"onceward dead requeue {letter.digest} --app MODULE:NAME"
    return commands(show, again, f"onceward dead discard {letter.digest} --yes")


def _letter(ask: PageRequest) -> DeadLetter:
    letter = ask.data.letter(ask.id(), ask.reach)
    if letter is None:
        raise PageMissing
    return letter


PAGES = (
    Page("letters", "/letters", listing, title="Dead letters"),
    Page("letters", "/letters/{id}", show),
    Page("letters", "/letters/{id}/discard", ask_discard, role=DashboardRole.DECIDE),
    Page("letters", "/letters/{id}/discard", discard, role=DashboardRole.DECIDE, action=True),
    Page("letters", "/letters/{id}/requeue", requeue, role=DashboardRole.DECIDE, action=True),
)
