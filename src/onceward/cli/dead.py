"""
`onceward dead`: look at what was given up, do it again, or let go of it.

For operators: any scope. A requeue works in the scope of the app's own gate. Messages are shown
as they were kept, with control characters escaped; payloads only with --payload.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from onceward._core.codec import message_of, type_name
from onceward._core.dead_letters import DEAD, DeadLetter, dead_letter_of, is_dead_letter
from onceward._core.errors import ConfigurationError, OncewardError
from onceward._core.record import Record
from onceward._core.store_protocols import Selection, Store
from onceward.cli import exit_codes
from onceward.cli.argument_types import id_digits, limit
from onceward.cli.command_table import Argument, Command
from onceward.cli.dead_letter_output import dead_letter_document, dead_letter_table, print_dead_letter
from onceward.cli.dead_letter_requeue import requeue_letter
from onceward.cli.dead_letter_requeue_async import requeue_letter_async
from onceward.cli.dead_letter_selection import (
    DEAD_LETTER,
    MESSAGE_CHARACTERS_MAX,
    deciding_requeue,
    is_named_by_key,
    requeue_error,
    require_one,
)
from onceward.cli.decisions import DECIDING, open_log, operator_of
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.store_argument import SEAL_KEYS, STORE, open_chosen_store, store_url
from onceward.cli.text_tables import shorten
from onceward.gate import Gate
from onceward.gate.call_factory import SCAN_PAGE
from onceward.gate.dead_letter_box import DeadLetterBox
from onceward.gate.dead_letter_box_async import AsyncDeadLetterBox
from onceward.gate.operator_actions import ID_DIGITS, discard_dead_letter, find_records, id_of_dead_letter
from onceward.gate.record_decisions import decision_about
from onceward.gate.seal_keys import Sealed
from onceward.service.access.scopes import tenant_of

TOKEN_VARIABLE = "ONCEWARD_TOKEN"  # noqa: S105 - the name of a variable
LIST_MAX = 10_000
"""Dead letters in one page, which a program reads at once. Go on with --after."""

_EXAMPLE = "362b9c594b0a"
"""The digest of the dead letter about charge:order-18 in live:acme, so that the examples are true."""


def _list(args: argparse.Namespace) -> int:
    """Show one page."""
    unreadable: list[str] = []
    with open_chosen_store(args) as store:
        found = list(islice(_matching(store, args, unreadable), args.limit + 1))
    page = found[: args.limit]
    upcoming = page[-1].id if len(found) > len(page) else None
    if unreadable:
        print_note(f"{len(unreadable)} cannot be read (damaged, or of another version): {', '.join(unreadable[:10])}")
    if args.json:
        print_json({"letters": [dead_letter_document(one) for one in page], "next": upcoming})
        return exit_codes.FINE
    if page:
        print_text(dead_letter_table(page))
    else:
        print_note("no dead letters")
    if upcoming is not None:
        print_note(f"there are more: go on with --after {upcoming}")
    return exit_codes.FINE


def _matching(store: Store, args: argparse.Namespace, unreadable: list[str]) -> Iterator[DeadLetter]:
    selection = Selection(scope=args.scope, kind=DEAD)
    after = bytes.fromhex(args.after.ljust(ID_DIGITS, "f")) if args.after else b""
    while page := store.scan(after, min(SCAN_PAGE, args.limit + 1), selection):
        for one in filter(is_dead_letter, page):
            try:
                yield dead_letter_of(one)
            except OncewardError:
                unreadable.append(one.id.hex()[:12])
        after = page[-1].id


def _show(args: argparse.Namespace) -> int:
    """Show one dead letter."""
    with open_chosen_store(args) as store:
        dead_letter = dead_letter_of(_dead_letter_record(store, args))
    print_dead_letter(dead_letter, with_payload=args.payload, as_json=args.json)
    return exit_codes.FINE


def _discard(args: argparse.Namespace) -> int:
    """Delete one dead letter."""
    if not args.yes:
        raise exit_codes.UsageError(
            "discarding a dead letter deletes what is known about an operation that was given up, and its payload. "
            "If the operation is done, or need not be done, add --yes"
        )
    with open_chosen_store(args) as store:
        found = _dead_letter_record(store, args)
        whose = tenant_of(found.scope)
        with (
            open_log(store_url(args)) as log,
            log.deciding(decision_about(found, "letter.discard", operator_of(args), whose)) as made,
        ):
            made.after = {"discarded": discard_dead_letter(store, found.id)}
    _print_done({"digest": found.id.hex()[:12], "discarded": True}, as_json=args.json)
    return exit_codes.FINE


def _requeue(args: argparse.Namespace) -> int:
    """Do one operation again."""
    dead_letter = _send_again(args) if args.app is None else _handle_again(args)
    _print_done({"digest": dead_letter.digest, "requeued": True}, as_json=args.json)
    return exit_codes.FINE


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
    box = _import_dead_letter_box(args.app)
    by_key = is_named_by_key(args)
    if by_key and args.scope != box.gate.scope:
        raise exit_codes.UsageError(f"--app {args.app} has the dead letters of {box.gate.scope}, not of {args.scope}")
    return (
        asyncio.run(requeue_letter_async(box, args))
        if isinstance(box, AsyncDeadLetterBox)
        else requeue_letter(box, args)
    )


def _print_done(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        print_text(f"{document['digest']} {'requeued, and discarded' if 'requeued' in document else 'discarded'}")


def _dead_letter_record(store: Store, args: argparse.Namespace) -> Record:
    if is_named_by_key(args):
        found = store.load(id_of_dead_letter(args.scope, args.key))
        candidates = [found] if found is not None else []
    else:
        candidates = find_records(store, args.id, Selection(kind=DEAD))
    dead_letter: Record = require_one([one for one in candidates if is_dead_letter(one)], args)
    return dead_letter


def _import_dead_letter_box(path: str) -> DeadLetterBox | AsyncDeadLetterBox:
    """The box of dead letters that MODULE:NAME names."""
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise exit_codes.UsageError(f"--app takes MODULE:NAME, such as shop:dead, not {path[:100]!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")  # As `python -m` does: an app is looked for in the current folder.
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"--app {path}: there is no module {error.name!r} to import; run this where your app is, or set PYTHONPATH"
        ) from None
    except (Exception, SystemExit) as error:
        raise ConfigurationError(
            f"--app {path}: importing {module_name} raised {type_name(type(error))}: "
            f"{shorten(message_of(error), MESSAGE_CHARACTERS_MAX)}"
        ) from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise ConfigurationError(f"--app {path}: {module_name} has no {attribute!r}; name your gate.dead_letters()")
        found = getattr(found, name)
    if not isinstance(found, DeadLetterBox | AsyncDeadLetterBox):
        raise ConfigurationError(
            f"--app {path} is a {type(found).__name__}; name what gate.dead_letters() gave you, where the handlers are"
        )
    return found


COMMANDS = (
    Command(
        name="dead list",
        summary="show what was given up, in order of id",
        run=_list,
        arguments=(
            Argument("--scope", "only dead letters of this scope", metavar="SCOPE"),
            limit(LIST_MAX, 50),
            Argument("--after", "begin after this id or digest", metavar="ID", type=id_digits),
            STORE,
            SEAL_KEYS,
        ),
        examples=("onceward dead list", "onceward dead list --scope live:acme --limit 20"),
        exit_codes=exit_codes.TO_LIST,
    ),
    Command(
        name="dead show",
        summary="show one dead letter with its attempts",
        run=_show,
        arguments=(
            *DEAD_LETTER,
            Argument("--payload", "show the arguments, too, if they were kept as plain text", action="store_true"),
        ),
        examples=(f"onceward dead show {_EXAMPLE}", "onceward dead show --scope live:acme --key charge:order-18"),
        exit_codes=exit_codes.TO_FIND,
    ),
    Command(
        name="dead requeue",
        summary="do an operation again that was given up, under the same key",
        run=_requeue,
        arguments=(
            *DEAD_LETTER,
            Argument("--app", "where your handlers are, such as shop:dead", metavar="MODULE:NAME", one_of="how"),
            Argument(
                "--send-to", "send the kept request again, if it was for this address", metavar="URL", one_of="how"
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
                "it may have happened, and you have checked that it did not",
                action="store_true",
            ),
            *DECIDING,
        ),
        examples=(f"onceward dead requeue {_EXAMPLE} --app shop:dead",),
        exit_codes=exit_codes.TO_DECIDE,
        more=(
            "MODULE:NAME is your gate.dead_letters(), with its handlers registered; the store is that gate's.\n"
            "A request of our own clients needs no handler: --send-to https://sql.example.com says where it may be\n"
            "sent (onceward dead show prints the address), with the token of the environment variable\n"
            f"{TOKEN_VARIABLE}, if that is set. It is sent there and nowhere else.\n"
            "An operation in doubt is refused: reconcile its record first (the error says how)."
        ),
    ),
    Command(
        name="dead discard",
        summary="let go of a dead letter: it will not be done again from here",
        run=_discard,
        arguments=(
            *DEAD_LETTER,
            Argument("--yes", "yes: it is done, or need not be done", action="store_true"),
            *DECIDING,
        ),
        examples=(f"onceward dead discard {_EXAMPLE} --yes",),
        exit_codes=exit_codes.TO_DECIDE,
        more="The operation's own record is left as it is.",
    ),
)
