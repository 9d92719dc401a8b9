"""
How an overview is printed: a line for each finding with what to type, a sentence at the end, a JSON document.
"""

from __future__ import annotations

import argparse
from typing import Any

from onceward._core.durations import SECOND
from onceward.cli.progress import progress_of
from onceward.cli.record_output import record_document
from onceward.cli.store_argument import open_chosen_store, store_url
from onceward.cli.terminal import GREEN, RED, YELLOW, painted
from onceward.cli.text_tables import escape_invisible
from onceward.cli.typed_command import as_typed
from onceward.overview import Count, Level, Overview, StatusFinding, look_over


def look(args: argparse.Namespace) -> Overview:
    """Look over the store that was named, with a line of progress if it takes long."""
    with open_chosen_store(args) as store, progress_of("looking at records") as progress:
        return look_over(store_url(args), store=store, progress=progress)


def findings_text(findings: tuple[StatusFinding, ...], args: argparse.Namespace) -> str:
    """A line for each finding, and below it what to type."""
    width = max(len(one.subject) for one in findings)
    lines = []
    for one in findings:
        mark = {Level.NEEDED: "NEEDED", Level.WATCH: "watch", Level.FINE: "fine"}[one.level]
        style = {Level.NEEDED: RED, Level.WATCH: YELLOW, Level.FINE: GREEN}[one.level]
        lines.append(f"{one.subject.ljust(width)}  {painted(mark.ljust(6), style)}  {escape_invisible(one.text)}")
        lines += [f"{'':{width}}          {escape_invisible(as_typed(command, args))}" for command in one.commands]
    return "\n".join(lines)


def verdict_text(seen: Overview) -> str:
    """Whether anybody is needed, in words."""
    needed = [one.subject for one in seen.findings if one.level is Level.NEEDED]
    if not needed:
        return painted("Nothing needs attention.", GREEN)
    return painted(f"Action needed: {', '.join(dict.fromkeys(needed))}.", RED)


def status_document(seen: Overview) -> dict[str, Any]:
    """An overview as a JSON document."""
    records = seen.records
    oldest = records.in_flight.oldest[0] if records.in_flight.oldest else None
    return {
        "needed": seen.needs_somebody,
        "findings": [
            {"subject": one.subject, "level": one.level.value, "text": one.text, "commands": list(one.commands)}
            for one in seen.findings
        ],
        "inDoubt": {
            **_count(records.in_doubt.total),
            "oldest": [record_document(one, with_result=False) for one in records.in_doubt.oldest],
        },
        "inFlight": {
            **_count(records.in_flight.total),
            "oldestSeconds": None if oldest is None else oldest.age / SECOND,
            "lapsed": _count(records.lapsed),
        },
        "deadLetters": {
            "operations": _count(records.dead_letters.operations),
            "events": _count(records.dead_letters.events),
            "messages": _count(Count(0) if seen.outbox is None else seen.outbox.dead_letters),
        },
        "relay": None
        if seen.outbox is None
        else {
            "waiting": _count(seen.outbox.waiting),
            "late": [one.endpoint for one in seen.outbox.late],
            "disabled": [name for name, _, _ in seen.outbox.disabled],
        },
        "inbox": None
        if seen.inbox is None
        else {"waiting": _count(seen.inbox.waiting), "lateSeconds": seen.inbox.late_seconds},
        "breakers": [
            {"name": one.name, "scope": one.scope, "state": one.state, "secondsLeft": one.seconds_left}
            for one in records.breakers
        ],
        "purge": {
            "behind": records.purge.is_behind,
            "sampled": records.purge.sampled,
            "overdue": records.purge.overdue,
            "records": {"number": records.purge.records.number, "estimated": not records.purge.records.exact},
        },
        "storeForgot": {
            **_count(records.put_back.total),
            "latestAt": None if records.put_back.latest is None else records.put_back.latest.isoformat(),
        },
        "schema": None
        if seen.schema is None
        else {
            "before": seen.schema.before,
            "after": seen.schema.after,
            "begun": seen.schema.begun,
            "left": list(seen.schema.left),
        },
    }


def _count(count: Count) -> dict[str, Any]:
    return {"number": count.number, "atLeast": not count.exact}
