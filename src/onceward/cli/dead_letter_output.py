"""
How dead letters are printed: a row in a list, everything about one, a JSON document.

Keys appear as digests; payloads only when asked for.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from onceward._core.dead_letters import DeadLetter
from onceward._core.keys import bare_key
from onceward._core.sent_request import origin_of
from onceward.cli.dead_messages import message_row
from onceward.cli.output import camel_case, print_json, print_text
from onceward.cli.text_tables import format_facts, format_table, pretty_json
from onceward.cli.typed_command import as_typed
from onceward.messaging.outbox.message_queue import DeadMessage
from onceward.overview.record_overview import EVENT_PREFIX

_HEADINGS = ("ID", "OF", "SCOPE", "OPERATION", "REASON", "EFFECT", "COUNT", "ATTEMPTS", "LAST AT", "ERROR")
_TRIES = ("ATTEMPT", "AT", "SECONDS", "EFFECT", "KIND", "ERROR", "MESSAGE")

MESSAGE_CELL = 80
"""Characters of a message in the table of attempts; --json has all that was kept."""


def dead_letter_table(letters: list[DeadLetter | DeadMessage]) -> str:
    """A table with one dead letter per line."""
    return format_table(_HEADINGS, [message_row(one) if isinstance(one, DeadMessage) else _row(one) for one in letters])


def _row(one: DeadLetter) -> tuple[object, ...]:
    of = "event" if source_of(one) else "operation"
    at = one.last_at.isoformat(sep=" ", timespec="seconds")
    about = (one.digest, of, one.scope, one.name, one.reason, one.verdict.certainty.value)
    return (*about, one.count, one.attempts, at, one.error)


def source_of(dead_letter: DeadLetter) -> str | None:
    """The source of an event of the inbox; None for an operation."""
    is_event = dead_letter.name.startswith(EVENT_PREFIX)
    return dead_letter.name.removeprefix(EVENT_PREFIX) if is_event else None


def event_of(dead_letter: DeadLetter) -> str | None:
    """The id of an event; None if it was too long to be in its key."""
    kind, _, id = bare_key(dead_letter.scope, dead_letter.key).partition(":")
    return id if kind == "event" else None


def print_dead_letter(dead_letter: DeadLetter, args: argparse.Namespace) -> None:
    """Print everything about one dead letter except its key, and the payload only if asked for."""
    if args.json:
        print_json(dead_letter_document(dead_letter, with_payload=args.payload))
        return
    print_text(
        format_facts(
            [
                ("digest", dead_letter.digest),
                ("id", dead_letter.id),
                ("scope", dead_letter.scope),
                ("record", dead_letter.record),
                ("operation", dead_letter.name),
                ("request", dead_letter.request),
                ("keyed", dead_letter.keyed),
                ("fingerprint", dead_letter.fingerprint),
                ("reason", dead_letter.reason),
                ("effect", f"{dead_letter.verdict.certainty.value} ({dead_letter.verdict.kind.value})"),
                ("retry", dead_letter.verdict.action.value),
                ("retry at", dead_letter.retry_at and dead_letter.retry_at.isoformat(timespec="seconds")),
                ("given up", f"{dead_letter.count} times" if dead_letter.count != 1 else "once"),
                ("requeued", f"{dead_letter.requeues} times, without success" if dead_letter.requeues else None),
                ("attempts", dead_letter.attempts),
                ("first at", dead_letter.first_at.isoformat(timespec="seconds")),
                ("last at", dead_letter.last_at.isoformat(timespec="seconds")),
                ("kept", None if dead_letter.seconds_left is None else f"for {dead_letter.seconds_left:,.0f} s more"),
                (
                    "payload",
                    dead_letter.payload + (f" ({dead_letter.payload_note})" if dead_letter.payload_note else ""),
                ),
                ("requeue", _requeue(dead_letter, args)),
            ]
        )
    )
    if dead_letter.tries:
        rows = [
            (one.number, one.at.isoformat(timespec="seconds"), f"{one.seconds:.3f}", *one[3:])
            for one in dead_letter.tries
        ]
        print_text("\n" + format_table(_TRIES, rows, limit=MESSAGE_CELL))
    if args.payload:
        payload = _payload(dead_letter)
        print_text(
            "\n"
            + (
                pretty_json(payload)
                if payload is not None
                else f"there is no payload to show: it is {dead_letter.payload}"
            )
        )
    if dead_letter.may_have_happened:
        print_text(
            "\nIt may have happened. If its record is in doubt, decide that first:\n"
            f"  {as_typed(f'onceward records show {dead_letter.record}', args)}"
        )


def _requeue(dead_letter: DeadLetter, args: argparse.Namespace) -> str:
    """How it can be done again, or that it cannot."""
    if (source := source_of(dead_letter)) is not None:
        named = event_of(dead_letter) is not None
        command = f"dead requeue {dead_letter.digest}" if named else f"hooks requeue {source} EVENT"
        return as_typed(f"onceward {command}", args)
    if dead_letter.request is None:
        return f"with your handler of {dead_letter.name!r}"
    if dead_letter.payload == "omitted":
        return "not possible here: the request was not kept"
    origin = origin_of(dead_letter.request.partition(" ")[2])
    return as_typed(f"onceward dead requeue {dead_letter.digest} --send-to {origin}", args)


def dead_letter_document(dead_letter: DeadLetter, *, with_payload: bool = False) -> dict[str, Any]:
    """A dead letter as a JSON document."""
    document: dict[str, Any] = {"of": "event" if source_of(dead_letter) else "operation"}
    document |= {
        name: getattr(dead_letter, name)
        for name in (
            "id",
            "digest",
            "record",
            "scope",
            "keyed",
            "name",
            "request",
            "fingerprint",
            "reason",
            "count",
            "requeues",
        )
    }
    document |= {
        "verdict": {
            "certainty": dead_letter.verdict.certainty.value,
            "kind": dead_letter.verdict.kind.value,
            "action": dead_letter.verdict.action.value,
            "code": dead_letter.verdict.code,
        },
        "attempts": dead_letter.attempts,
        "tries": [
            {camel_case(name): value for name, value in (one._asdict() | {"at": one.at.isoformat()}).items()}
            for one in dead_letter.tries
        ],
        "error": dead_letter.error,
        "message": dead_letter.message,
        "retryAt": None if dead_letter.retry_at is None else dead_letter.retry_at.isoformat(),
        "firstAt": dead_letter.first_at.isoformat(),
        "lastAt": dead_letter.last_at.isoformat(),
        "secondsLeft": dead_letter.seconds_left,
        "payload": dead_letter.payload,
        "payloadNote": dead_letter.payload_note,
    }
    if with_payload:
        document["arguments"] = _payload(dead_letter)
    return document


def _payload(dead_letter: DeadLetter) -> Any:
    if dead_letter.payload != "plain" or dead_letter.payload_data is None:
        return None
    try:
        kept = json.loads(dead_letter.payload_data)
        return {"args": kept["args"], "kwargs": kept["kwargs"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
