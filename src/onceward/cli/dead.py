"""
`onceward dead`: dead letters, which is everything that was given up: operations, messages of the outbox, events of the
inbox. Look at it, do it again, or let go of it.

For operators: any scope. A requeue works in the scope of the app's own gate. Messages are shown
as they were kept, with control characters escaped; payloads only with --payload.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

from onceward._core.dead_letters import DEAD, DeadLetter, dead_letter_of, is_dead_letter
from onceward._core.errors import ConfigurationError, OncewardError
from onceward._core.keys import kind_family
from onceward._core.record import Record
from onceward._core.store_protocols import Selection, Store
from onceward.cli import exit_codes
from onceward.cli.argument_types import limit
from onceward.cli.command_table import Argument, Command
from onceward.cli.dead_letter_output import (
    dead_letter_document,
    dead_letter_table,
    event_of,
    print_dead_letter,
    source_of,
)
from onceward.cli.dead_letter_requeue import requeue_letter
from onceward.cli.dead_letter_requeue_async import requeue_letter_async
from onceward.cli.dead_letter_selection import (
    DEAD_LETTER,
    deciding_requeue,
    is_named_by_key,
    requeue_error,
    require_one,
)
from onceward.cli.dead_messages import (
    discard_message,
    is_message,
    letter_name,
    list_messages,
    message_document,
    requeue_message,
    show_message,
)
from onceward.cli.decisions import DECIDING, deciding, open_log, operator_of
from onceward.cli.imported_name import import_named
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.record_listing import suggest_scope
from onceward.cli.store_argument import SEAL_KEYS, STORE, open_chosen_store, store_url
from onceward.gate import Gate
from onceward.gate.call_factory import SCAN_PAGE
from onceward.gate.dead_letter_box import DeadLetterBox
from onceward.gate.dead_letter_box_async import AsyncDeadLetterBox
from onceward.gate.operator_actions import ID_DIGITS, discard_dead_letter, find_records, id_of_dead_letter
from onceward.gate.record_decisions import decision_about, environment_of
from onceward.gate.seal_keys import Sealed
from onceward.messaging.outbox.message_queue import DeadMessage
from onceward.service.access.scopes import tenant_of

TOKEN_VARIABLE = "ONCEWARD_TOKEN"  # noqa: S105 - the name of a variable
LIST_MAX = 10_000
"""Dead letters in one page, which a program reads at once. Go on with --after."""

_EXAMPLE = "362b9c594b0a"
"""The digest of the dead letter about charge:order-18 in live:acme, so that the examples are true."""
_EXAMPLE_MESSAGE = "msg_4cd81f1c58f1d7a3b1f6f4b0a3e4c2d9"


def _list(args: argparse.Namespace) -> int:
    """Show one page: operations and events in order of id, then messages."""
    if args.endpoint is not None and args.of not in (None, "messages"):
        raise exit_codes.UsageError("--endpoint is for messages only: leave out --endpoint or --of")
    letters: list[DeadLetter] = []
    unreadable: list[str] = []
    wants_messages = args.scope is None and args.of in (None, "messages")
    if args.endpoint is None and args.of != "messages" and not is_message(args.after):
        with open_chosen_store(args) as store:
            letters = list(islice(_matching(store, args, unreadable), args.limit + 1))
            if not letters and args.scope is not None and not args.after:
                suggest_scope(store, args.scope)
    room = args.limit + 1 - len(letters)
    messages = list_messages(args, room) if wants_messages and room > 0 else []
    found: list[DeadLetter | DeadMessage] = [*letters, *messages]
    page = found[: args.limit]
    upcoming = page[-1].id if len(found) > len(page) else None
    if unreadable:
        print_note(
            f"{len(unreadable)} cannot be read (damaged, or written by another version): {', '.join(unreadable[:10])}"
        )
    if args.json:
        print_json({"letters": [_document(one) for one in page], "next": upcoming})
        return exit_codes.NO if page and args.fail_if_any else exit_codes.FINE
    if page:
        print_text(dead_letter_table(page))
    else:
        print_note("no dead letters")
    if upcoming is not None:
        print_note(f"there are more: continue with --after {upcoming}")
    return exit_codes.NO if page and args.fail_if_any else exit_codes.FINE


def _document(letter: DeadLetter | DeadMessage) -> dict[str, Any]:
    return message_document(letter) if isinstance(letter, DeadMessage) else dead_letter_document(letter)


def _matching(store: Store, args: argparse.Namespace, unreadable: list[str]) -> Iterator[DeadLetter]:
    """Those of the kind that was asked for, found by the index of dead letters."""
    selection = Selection(scope=args.scope, kind=DEAD, family=kind_family(DEAD))
    after = bytes.fromhex(args.after.ljust(ID_DIGITS, "f")) if args.after else b""
    while page := store.scan(after, min(SCAN_PAGE, args.limit + 1), selection):
        for one in filter(is_dead_letter, page):
            try:
                letter = dead_letter_of(one)
            except OncewardError:
                unreadable.append(one.id.hex()[:12])
                continue
            if args.of in (None, "events" if source_of(letter) else "operations"):
                yield letter
        after = page[-1].id


def _show(args: argparse.Namespace) -> int:
    """Show one dead letter."""
    if is_message(args.id):
        return show_message(args)
    with open_chosen_store(args) as store:
        dead_letter = dead_letter_of(_dead_letter_record(store, args))
    print_dead_letter(dead_letter, args)
    return exit_codes.FINE


def _discard(args: argparse.Namespace) -> int:
    """Delete one dead letter."""
    if not args.yes:
        raise exit_codes.UsageError(
            "discarding a dead letter deletes what is known about an operation that was given up, and its payload. "
            "If the operation is done, or no longer needed, add --yes"
        )
    if is_message(args.id):
        discard_message(args)
        _print_done({"digest": args.id, "discarded": True}, "discarded", as_json=args.json)
        return exit_codes.FINE
    with open_chosen_store(args) as store:
        found = _dead_letter_record(store, args)
        whose = tenant_of(found.scope)
        with (
            open_log(store_url(args)) as log,
            log.deciding(decision_about(found, "letter.discard", operator_of(args), whose)) as made,
        ):
            made.after = {"discarded": discard_dead_letter(store, found.id)}
    _print_done({"digest": found.id.hex()[:12], "discarded": True}, "discarded", as_json=args.json)
    return exit_codes.FINE


def _requeue(args: argparse.Namespace) -> int:
    """Do one operation again, deliver a message again, or process an event again."""
    if args.app is not None and args.send_to is not None:
        raise exit_codes.UsageError("give --app or --send-to, not both")
    if is_message(args.id):
        requeue_message(args)
        name, done = args.id, "requeued: the next relay delivers it"
    elif args.app is not None or args.send_to is not None:
        name = (_send_again(args) if args.app is None else _handle_again(args)).digest
        done = "requeued, and discarded"
    else:
        name, done = _process_again(args).digest, "requeued: the service that has its handler processes it"
    _print_done({"digest": name, "requeued": True}, done, as_json=args.json)
    return exit_codes.FINE


def _process_again(args: argparse.Namespace) -> DeadLetter:
    """Make an event due again; an operation needs to be told who does it."""
    from onceward.messaging.inbox.inbox import Inbox

    with open_chosen_store(args) as store:
        letter = dead_letter_of(_dead_letter_record(store, args))
    source, event = source_of(letter), event_of(letter)
    if source is None:
        raise exit_codes.UsageError(
            f"{letter.name} is an operation: say who does it again, with --app MODULE:NAME (your handlers) or "
            "--send-to URL (a request of our clients)"
        )
    if event is None:
        raise exit_codes.UsageError(
            f"the id of this event is too long for a key: onceward hooks requeue {source} EVENT"
        )
    url = store_url(args)
    about: dict[str, Any] = {"tenant": tenant_of(letter.scope), "environment": environment_of(letter.scope)}
    with (
        Inbox(url, stored_sources=True) as inbox,
        deciding(args, url, "event.requeue", f"{source} {event}", **about),
    ):
        inbox.requeue(source, event)
    return letter


def _send_again(args: argparse.Namespace) -> DeadLetter:
    """Send a request of our own clients from here."""
    from onceward.http.client.dead_letter_sender import dead_letter_sender

    seal = None if args.seal_variable is None else Sealed(_secret(args.seal_variable))
    send = dead_letter_sender(args.send_to, os.environ.get(args.token_variable, "").strip() or None)
    with open_chosen_store(args) as store:
        dead_letter = dead_letter_of(_dead_letter_record(store, args))
        if dead_letter.request is None:
            raise exit_codes.UsageError(
                f"{dead_letter.name} is not an HTTP request of our clients and cannot be sent: "
                "name your handlers with --app"
            )
        box = Gate(store, scope=dead_letter.scope).dead_letters(payload=seal or "plain")
        box.handle_requests(args.send_to, send)
        with deciding_requeue(args, store, dead_letter):
            try:
                box.requeue(dead_letter, did_not_happen=args.did_not_happen)
            except Exception as error:
                raise requeue_error(dead_letter, error) from None
    return dead_letter


def _secret(variable: str) -> str:
    found = os.environ.get(variable, "").strip()
    if not found:
        raise exit_codes.UsageError(
            f"the environment variable {variable} is not set: it has the key of sealed payloads"
        )
    return found


def _handle_again(args: argparse.Namespace) -> DeadLetter:
    """Let the app's own handler do it."""
    box = import_dead_letter_box(args.app)
    by_key = is_named_by_key(args)
    if by_key and args.scope != box.gate.scope:
        raise exit_codes.UsageError(f"--app {args.app} has the dead letters of {box.gate.scope}, not of {args.scope}")
    return (
        asyncio.run(requeue_letter_async(box, args))
        if isinstance(box, AsyncDeadLetterBox)
        else requeue_letter(box, args)
    )


def _print_done(document: dict[str, Any], done: str, *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        print_text(f"{document['digest']} {done}")


def _dead_letter_record(store: Store, args: argparse.Namespace) -> Record:
    if is_named_by_key(args):
        found = store.load(id_of_dead_letter(args.scope, args.key))
        candidates = [found] if found is not None else []
    else:
        candidates = find_records(store, args.id, Selection(kind=DEAD))
    dead_letter: Record = require_one([one for one in candidates if is_dead_letter(one)], args)
    return dead_letter


def import_dead_letter_box(path: str) -> DeadLetterBox | AsyncDeadLetterBox:
    """The box of dead letters that MODULE:NAME names."""
    found = import_named("--app", path, "your gate.dead_letters()")
    if not isinstance(found, DeadLetterBox | AsyncDeadLetterBox):
        raise ConfigurationError(
            f"--app {path} is a {type(found).__name__}; name what gate.dead_letters() gave you, where the handlers are"
        )
    return found


COMMANDS = (
    Command(
        name="dead list",
        summary="list what was given up: operations, outbox messages, inbox events",
        run=_list,
        arguments=(
            Argument("--of", "only these", choices=("operations", "messages", "events"), metavar="WHAT"),
            Argument("--scope", "only operations and events of this scope", metavar="SCOPE"),
            Argument("--endpoint", "only messages for this endpoint", metavar="NAME"),
            Argument("--fail-if-any", "exit code 1 if anything is listed, for scripts", action="store_true"),
            limit(LIST_MAX, 50),
            Argument("--after", "begin after this id or digest", metavar="ID", type=letter_name),
            STORE,
            SEAL_KEYS,
        ),
        examples=(
            "onceward dead list",
            "onceward dead list --scope live:acme --limit 20",
            "onceward dead list --of messages --endpoint billing",
        ),
        exit_codes=exit_codes.TO_FIND,
        no="with --fail-if-any: something is listed",
        more="Operations and events by id, then messages, oldest first. Payloads are never shown.",
    ),
    Command(
        name="dead show",
        summary="show one dead letter with its attempts",
        run=_show,
        arguments=(
            *DEAD_LETTER,
            Argument("--payload", "also show the arguments, if they were kept as plain text", action="store_true"),
        ),
        examples=(
            f"onceward dead show {_EXAMPLE}",
            "onceward dead show --scope live:acme --key charge:order-18",
            f"onceward dead show {_EXAMPLE_MESSAGE}",
        ),
        exit_codes=exit_codes.TO_FIND,
        no="there is no such dead letter",
    ),
    Command(
        name="dead requeue",
        summary="retry an operation, message or event that was given up, under the same key",
        run=_requeue,
        arguments=(
            *DEAD_LETTER,
            Argument("--app", "for an operation: where your handlers are, such as shop:dead", metavar="MODULE:NAME"),
            Argument(
                "--send-to",
                "for an operation: send the stored request again, if it was for this address",
                metavar="URL",
            ),
            Argument(
                "--token-variable",
                "with --send-to: the environment variable with the token",
                metavar="NAME",
                default=TOKEN_VARIABLE,
            ),
            Argument(
                "--seal-variable",
                "with --send-to: the environment variable with the key of sealed payloads",
                metavar="NAME",
            ),
            Argument(
                "--did-not-happen",
                "confirm that you have checked: it did not happen",
                action="store_true",
            ),
            *DECIDING,
        ),
        examples=(
            f"onceward dead requeue {_EXAMPLE} --app shop:dead",
            f"onceward dead requeue {_EXAMPLE_MESSAGE}",
        ),
        exit_codes=exit_codes.TO_DECIDE,
        no="there is no such dead letter, or it failed again",
        more=(
            "A message is delivered by the next relay, an event is processed by the service that has its handler;\n"
            "neither needs more than its id. An operation is done here and now:\n"
            "MODULE:NAME is your gate.dead_letters(), with its handlers registered; the store is that gate's.\n"
            "A request of our own clients needs no handler: --send-to https://sql.example.com says where it may be\n"
            "sent (onceward dead show prints the address), with the token of the environment variable\n"
            f"{TOKEN_VARIABLE}, if that is set. It is sent there and nowhere else.\n"
            "An operation in doubt is refused: reconcile its record first (the error says how)."
        ),
    ),
    Command(
        name="dead discard",
        summary="discard a dead letter: it will not be retried from here",
        run=_discard,
        arguments=(
            *DEAD_LETTER,
            Argument("--yes", "confirm: it is done, or no longer needed", action="store_true"),
            *DECIDING,
        ),
        examples=(f"onceward dead discard {_EXAMPLE} --yes", f"onceward dead discard {_EXAMPLE_MESSAGE} --yes"),
        exit_codes=exit_codes.TO_DECIDE,
        no="there is no such dead letter",
        more="The record of an operation or an event is left as it is. A message is deleted.",
    ),
)
