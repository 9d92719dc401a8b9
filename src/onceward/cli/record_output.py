"""
Records as people see them: a row in a list, and everything about one.
"""

from __future__ import annotations

from typing import Any

from onceward._core.codec import HTTP
from onceward._core.holders import holder_of
from onceward._core.record import Record
from onceward.cli.json_documents import record_document
from onceward.cli.output import print_json, print_text
from onceward.cli.text_tables import format_facts, format_table, pretty_json
from onceward.gate.record_view import RecordView, view

BODY_SHOWN = 2_000
"""Characters of a stored HTTP answer's body that people are shown."""

_HEADINGS = ("DIGEST", "STATE", "SCOPE", "KIND", "KEY", "OPERATION", "ATTEMPT", "FIRST AT")


def record_table(records: list[Record]) -> str:
    """Records, one a line."""
    return format_table(_HEADINGS, [_row(view(one)) for one in records])


def _row(seen: RecordView) -> tuple[object, ...]:
    first_at = seen.first_at.isoformat(sep=" ", timespec="seconds")
    return seen.digest, seen.state, seen.scope, seen.kind, seen.key, seen.operation, seen.attempt, first_at


def print_record(record: Record, *, as_json: bool) -> None:
    """Print everything about one record; for one in doubt, also the ways out."""
    if as_json:
        print_json(record_document(record, with_result=True))
        return
    seen = view(record)
    print_text(
        format_facts(
            [
                ("digest", seen.digest),
                ("id", seen.id),
                ("state", seen.state),
                ("scope", seen.scope),
                ("kind", seen.kind),
                ("key", seen.key),
                ("operation", seen.operation or None),
                ("guarantee", seen.guarantee),
                ("attempt", seen.attempt),
                ("fence", seen.fence),
                ("first at", seen.first_at.isoformat(timespec="seconds")),
                ("settled at", seen.settled_at and seen.settled_at.isoformat(timespec="seconds")),
                ("holder", holder_of(record)),
                ("lease", _left(seen.lease_seconds_left)),
                ("replays", _left(seen.replay_seconds_left)),
                ("kept", _left(seen.forget_seconds_left)),
                ("codec", seen.codec),
                ("failure", seen.failure),
            ]
        )
    )
    if seen.codec is not None:
        result = record_document(record, with_result=True)["result"]
        print_text("\n" + pretty_json(_cut(result) if seen.codec == HTTP else result))
    if seen.state == "in_doubt":
        print_text(
            "\nCheck, where the effect takes place, whether it did. Then\n"
            f"  if it happened:  onceward records reconcile {seen.digest} --happened 'RESULT AS JSON'\n"
            f"  if it did not:   onceward records reconcile {seen.digest} --did-not-happen"
        )


def _cut(answer: dict[str, Any]) -> dict[str, Any]:
    """An HTTP answer for people: the beginning of its body. `--json` has all of it."""
    return {
        name: f"{value[:BODY_SHOWN]}…" if isinstance(value, str) and len(value) > BODY_SHOWN else value
        for name, value in answer.items()
    }


def _left(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return f"for {seconds:,.0f} s more" if seconds > 0 else f"ended {-seconds:,.0f} s ago"
