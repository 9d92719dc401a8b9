"""
How records are printed: a row in a list, everything about one, a JSON document.
"""

from __future__ import annotations

import argparse
from base64 import b64encode
from dataclasses import fields
from datetime import datetime
from typing import Any

from onceward._core.codec import HTTP
from onceward._core.durations import SECOND
from onceward._core.holders import holder_of
from onceward._core.record import Record
from onceward._core.reply import Reply
from onceward.cli.output import camel_case, print_json, print_text
from onceward.cli.text_tables import format_facts, format_table, pretty_json
from onceward.cli.typed_command import as_typed
from onceward.gate.record_view import HolderView, RecordView, view
from onceward.overview import age_text, decide_commands

BODY_SHOWN = 2_000
"""Characters of a stored HTTP response's body that people are shown."""

_HEADINGS = ("DIGEST", "STATE", "AGE", "OPERATION", "HOLDER", "FAILURE", "SCOPE", "KIND", "KEY", "ATTEMPT", "FIRST AT")


def record_table(records: list[Record]) -> str:
    """A table with one record per line."""
    return format_table(_HEADINGS, [_row(one, view(one)) for one in records])


def _row(record: Record, seen: RecordView) -> tuple[object, ...]:
    first_at = seen.first_at.isoformat(sep=" ", timespec="seconds")
    holder = f"{seen.holder.host}:{seen.holder.pid}" if seen.holder is not None else ""
    age = age_text(max(0, record.age) / SECOND)
    about = (seen.digest, seen.state, age, seen.operation, holder, seen.failure)
    return (*about, seen.scope, seen.kind, seen.key, seen.attempt, first_at)


def print_record(record: Record, args: argparse.Namespace) -> None:
    """Print everything about one record; for one in doubt, also the ways out."""
    if args.json:
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
                ("age", age_text(max(0, record.age) / SECOND)),
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
        commands = decide_commands(record)
        print_text(
            "\nCheck whether it happened, in the system it acts on. Then\n"
            f"  if it happened:  {as_typed(commands.happened, args)}\n"
            f"  if it did not:   {as_typed(commands.did_not_happen, args)}"
        )


def _cut(response: dict[str, Any]) -> dict[str, Any]:
    """A stored HTTP response for people: the beginning of its body. `--json` has all of it."""
    return {
        name: f"{value[:BODY_SHOWN]}…" if isinstance(value, str) and len(value) > BODY_SHOWN else value
        for name, value in response.items()
    }


def _left(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return f"for {seconds:,.0f} s more" if seconds > 0 else f"ended {-seconds:,.0f} s ago"


def record_document(record: Record, *, with_result: bool) -> dict[str, Any]:
    """A record for programs. Lists leave the result out: a page of them may be half a gigabyte."""
    seen = view(record)
    return {
        camel_case(field.name): _plain(getattr(seen, field.name))
        for field in fields(RecordView)
        if with_result or field.name != "result"
    }


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")  # Codec bytes/1.
    if isinstance(value, HolderView):
        return {camel_case(field.name): _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Reply):
        return _response_document(value)  # Codec http/1.
    return value


def _response_document(reply: Reply) -> dict[str, Any]:
    """A stored HTTP response: its body as text if it is text, otherwise in base64."""
    try:
        body = {"body": reply.body.decode()}
    except UnicodeDecodeError:
        body = {"bodyInBase64": b64encode(reply.body).decode("ascii")}
    headers = [f"{name}: {value}" for name, value in reply.headers]
    return {"status": reply.status, "headers": headers, "bodyBytes": len(reply.body), **body}
