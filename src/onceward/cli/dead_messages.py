"""
Dead letters of an outbox, for `onceward dead`: messages that the relay gave up. Their names are their ids, `msg_...`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onceward._core.errors import ConfigurationError
from onceward.cli import exit_codes
from onceward.cli.access_arguments import format_instant
from onceward.cli.argument_types import id_digits
from onceward.cli.decisions import deciding
from onceward.cli.output import print_json, print_text
from onceward.cli.store_argument import store_url
from onceward.cli.text_tables import format_facts
from onceward.cli.typed_command import as_typed
from onceward.messaging.outbox.message_queue import DeadMessage
from onceward.messaging.outbox.outbox_admin import OutboxAdmin
from onceward.stores import tables_url

PREFIX = "msg_"
"""What the ids of messages begin with; ids of records are hex digits."""


def letter_name(text: str) -> str:
    """An argument that names a dead letter: a message's id, or the id or digest of an operation's or event's letter."""
    return text if is_message(text) else id_digits(text)


def is_message(name: str | None) -> bool:
    """Whether a message is named."""
    return name is not None and name.startswith(PREFIX)


def list_messages(args: argparse.Namespace, limit: int) -> list[DeadMessage]:
    """At most so many, the oldest first; none if the store's database has no outbox."""
    url = store_url(args)
    if tables_url(url) is None:
        return []
    try:
        admin = OutboxAdmin(url)
    except ConfigurationError:
        if args.of is not None or args.endpoint is not None:
            raise  # Messages were asked for, and there is no outbox.
        return []
    with admin:
        return admin.dead(args.endpoint, after=args.after if is_message(args.after) else None, limit=limit)


def message_row(message: DeadMessage) -> tuple[object, ...]:
    """A row among dead letters of all kinds."""
    at = format_instant(message.dead_us)
    return (
        message.id,
        "message",
        f"to {message.endpoint}",
        message.topic,
        "",
        "",
        1,
        message.attempts,
        at,
        message.reason,
    )


def message_document(message: DeadMessage) -> dict[str, Any]:
    """A message as a JSON document. Never its payload."""
    return {
        "of": "message",
        "id": message.id,
        "endpoint": message.endpoint,
        "topic": message.topic,
        "aggregate": message.aggregate,
        "attempts": message.attempts,
        "reason": message.reason,
        "createdAt": format_instant(message.created_us),
        "deadAt": format_instant(message.dead_us),
    }


def show_message(args: argparse.Namespace) -> int:
    """Print everything about one message except its payload."""
    with _outbox(args) as admin:
        message = admin.dead_message(args.id)
    if message is None:
        raise _no_such(args.id)
    document = message_document(message)
    if args.json:
        print_json(document)
        return exit_codes.FINE
    facts = [(name, document[name]) for name in ("id", "endpoint", "topic", "aggregate", "attempts", "reason")]
    print_text(format_facts([*facts, ("created at", document["createdAt"]), ("given up at", document["deadAt"])]))
    print_text(
        f"\nTo deliver it again:  {as_typed(f'onceward dead requeue {message.id}', args)}\n"
        f"To discard it:      {as_typed(f'onceward dead discard {message.id} --yes', args)}"
    )
    return exit_codes.FINE


def requeue_message(args: argparse.Namespace) -> None:
    """Let the relay try it anew, under its own id."""
    with _outbox(args) as admin, deciding(args, store_url(args), "message.requeue", args.id):
        if not admin.requeue(args.id):
            raise _no_such(args.id)


def discard_message(args: argparse.Namespace) -> None:
    """Delete it."""
    with _outbox(args) as admin, deciding(args, store_url(args), "message.discard", args.id):
        if not admin.discard(args.id):
            raise _no_such(args.id)


@contextmanager
def _outbox(args: argparse.Namespace) -> Iterator[OutboxAdmin]:
    with OutboxAdmin(store_url(args)) as admin:
        yield admin


def _no_such(id: str) -> exit_codes.NoSuchMessage:
    return exit_codes.NoSuchMessage(
        f"there is no dead letter {id}: it was requeued or discarded, or is in another store. `onceward dead list` "
        "lists them"
    )
