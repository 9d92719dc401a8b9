"""
Dead letters as people and programs see them. Keys appear as digests; payloads only when asked for.
"""

from __future__ import annotations

import json
from typing import Any

from onceward._core.dead_letters import DeadLetter
from onceward._core.sent_request import origin_of
from onceward.cli.output import camel_case, print_json, print_text
from onceward.cli.text_tables import format_facts, format_table, pretty_json

_HEADINGS = ("DIGEST", "SCOPE", "OPERATION", "REASON", "EFFECT", "COUNT", "ATTEMPTS", "LAST AT", "ERROR")
_TRIES = ("ATTEMPT", "AT", "SECONDS", "EFFECT", "KIND", "ERROR", "MESSAGE")

MESSAGE_CELL = 80
"""Characters of a message in the table of attempts; --json has all that was kept."""


def dead_letter_table(letters: list[DeadLetter]) -> str:
    """Letters, one a line."""
    return format_table(
        _HEADINGS,
        [
            (
                *(one.digest, one.scope, one.name, one.reason, one.verdict.certainty.value, one.count, one.attempts),
                one.last_at.isoformat(sep=" ", timespec="seconds"),
                one.error,
            )
            for one in letters
        ],
    )


def print_dead_letter(letter: DeadLetter, *, with_payload: bool, as_json: bool) -> None:
    """Print everything about one letter, but for the key; and the payload if it is asked for."""
    if as_json:
        print_json(dead_letter_document(letter, with_payload=with_payload))
        return
    print_text(
        format_facts(
            [
                ("digest", letter.digest),
                ("id", letter.id),
                ("scope", letter.scope),
                ("record", letter.record),
                ("operation", letter.name),
                ("request", letter.request),
                ("keyed", letter.keyed),
                ("fingerprint", letter.fingerprint),
                ("reason", letter.reason),
                ("effect", f"{letter.verdict.certainty.value} ({letter.verdict.kind.value})"),
                ("retry", letter.verdict.action.value),
                ("retry at", letter.retry_at and letter.retry_at.isoformat(timespec="seconds")),
                ("given up", f"{letter.count} times" if letter.count != 1 else "once"),
                ("requeued", f"{letter.requeues} times, in vain" if letter.requeues else None),
                ("attempts", letter.attempts),
                ("first at", letter.first_at.isoformat(timespec="seconds")),
                ("last at", letter.last_at.isoformat(timespec="seconds")),
                ("kept", None if letter.seconds_left is None else f"for {letter.seconds_left:,.0f} s more"),
                ("payload", letter.payload + (f" ({letter.payload_note})" if letter.payload_note else "")),
                ("requeue", _requeue(letter)),
            ]
        )
    )
    if letter.tries:
        rows = [
            (one.number, one.at.isoformat(timespec="seconds"), f"{one.seconds:.3f}", *one[3:]) for one in letter.tries
        ]
        print_text("\n" + format_table(_TRIES, rows, limit=MESSAGE_CELL))
    if with_payload:
        payload = _payload(letter)
        print_text(
            "\n" + (pretty_json(payload) if payload is not None else f"the payload is {letter.payload}: none to show")
        )
    if letter.may_have_happened:
        print_text(
            "\nIt may have happened. If its record is in doubt, decide that first:\n"
            f"  onceward records show {letter.record}"
        )


def _requeue(letter: DeadLetter) -> str:
    """How it can be done again, or that it cannot."""
    if letter.request is None:
        return f"with your handler of {letter.name!r}"
    if letter.payload == "omitted":
        return "not from here: the request was not kept"
    origin = origin_of(letter.request.partition(" ")[2])
    return f"onceward dead requeue {letter.digest} --send-to {origin}"


def dead_letter_document(letter: DeadLetter, *, with_payload: bool = False) -> dict[str, Any]:
    """A letter for programs."""
    document: dict[str, Any] = {
        name: getattr(letter, name)
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
            "certainty": letter.verdict.certainty.value,
            "kind": letter.verdict.kind.value,
            "action": letter.verdict.action.value,
            "code": letter.verdict.code,
        },
        "attempts": letter.attempts,
        "tries": [
            {camel_case(name): value for name, value in (one._asdict() | {"at": one.at.isoformat()}).items()}
            for one in letter.tries
        ],
        "error": letter.error,
        "message": letter.message,
        "retryAt": None if letter.retry_at is None else letter.retry_at.isoformat(),
        "firstAt": letter.first_at.isoformat(),
        "lastAt": letter.last_at.isoformat(),
        "secondsLeft": letter.seconds_left,
        "payload": letter.payload,
        "payloadNote": letter.payload_note,
    }
    if with_payload:
        document["arguments"] = _payload(letter)
    return document


def _payload(letter: DeadLetter) -> Any:
    if letter.payload != "plain" or letter.payload_data is None:
        return None
    try:
        kept = json.loads(letter.payload_data)
        return {"args": kept["args"], "kwargs": kept["kwargs"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
