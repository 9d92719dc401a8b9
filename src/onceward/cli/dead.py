"""
`onceward dead`: look at what was given up, do it again, or let go of it. Any scope; a requeue, the app's own.

Messages are shown as they were kept, made harmless; payloads only if they are asked for.
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
from onceward.cli.command_parser import (
    CommandGroup,
    CommandParser,
    add_command,
    add_group,
    count_up_to,
    id_digits,
)
from onceward.cli.dead_letter_output import dead_letter_document, dead_letter_table, print_dead_letter
from onceward.cli.dead_letter_requeue import requeue_letter
from onceward.cli.dead_letter_requeue_async import requeue_letter_async
from onceward.cli.dead_letter_selection import (
    MESSAGE_CHARACTERS_MAX,
    is_named_by_key,
    requeue_error,
    require_one,
)
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.store_argument import add_store_argument, open_chosen_store
from onceward.cli.text_tables import shorten
from onceward.gate import Gate
from onceward.gate.call_factory import SCAN_PAGE
from onceward.gate.dead_letter_box import DeadLetterBox
from onceward.gate.dead_letter_box_async import AsyncDeadLetterBox
from onceward.gate.operator_actions import ID_DIGITS, discard_dead_letter, find_records, id_of_dead_letter
from onceward.gate.payload_seal import Sealed

TOKEN_VARIABLE = "ONCEWARD_TOKEN"  # noqa: S105 - the name of a variable
LIST_MAX = 10_000
"""Letters in one answer: a page that a program reads at once. Go on with --after."""

_EXAMPLE = "362b9c594b0a"
"""The digest of the letter about charge:order-18 in live:acme, so that the examples are true."""


def add_to(parsers: CommandGroup) -> None:
    """Declare the commands."""
    group = add_group(parsers, "dead", "look at operations that were given up, do them again, or let go of them")
    _add_looking(group)
    codes = (exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.REFUSED, exit_codes.STORE)
    requeue = add_command(
        group,
        "requeue",
        "do an operation again that was given up, under the same key",
        _requeue,
        examples=(f"onceward dead requeue {_EXAMPLE} --app shop:dead",),
        codes=codes,
        more=(
            "MODULE:NAME is your gate.dead_letters(), with its handlers registered; the store is that gate's.\n"
            "A request of our own clients needs no handler: --send-to https://sql.example.com says where it may be\n"
            "sent (onceward dead show prints the address), with the token of\n"
            f"the environment variable {TOKEN_VARIABLE}, if that is set. It is sent there and nowhere else.\n"
            "An operation in doubt is refused: reconcile its record first (the error says how)."
        ),
    )
    _add_letter_arguments(requeue)
    how = requeue.add_mutually_exclusive_group(required=True)
    how.add_argument("--app", metavar="MODULE:NAME", help="where your handlers are, such as shop:dead")
    how.add_argument("--send-to", metavar="URL", help="send the kept request again, if it was for this address")
    requeue.add_argument(
        "--token-variable",
        metavar="NAME",
        default=TOKEN_VARIABLE,
        help=f"with --send-to: another than {TOKEN_VARIABLE}",
    )
    requeue.add_argument(
        "--seal-variable", metavar="NAME", help="with --send-to: the variable with the key of sealed payloads"
    )
    add_store_argument(requeue)
    requeue.add_argument(
        "--did-not-happen",
        action="store_true",
        help="it may have happened, and it has been checked that it did not",
    )
    discard = add_command(
        group,
        "discard",
        "let go of a dead letter: it will not be done again from here",
        _discard,
        examples=(f"onceward dead discard {_EXAMPLE} --yes",),
        codes=codes,
        more="The operation's own record is left as it is.",
    )
    _add_letter_arguments(discard)
    add_store_argument(discard)
    discard.add_argument("--yes", action="store_true", help="yes: it is done, or need not be done")


def _add_looking(group: CommandGroup) -> None:
    listing = add_command(
        group,
        "list",
        "show what was given up, in order of id",
        _list,
        examples=("onceward dead list", "onceward dead list --scope live:acme --limit 20"),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.STORE),
    )
    listing.add_argument("--scope", metavar="SCOPE", help="only letters of this scope")
    listing.add_argument("--limit", metavar="N", type=count_up_to(LIST_MAX), default=50, help="at most so many (50)")
    listing.add_argument("--after", metavar="ID", type=id_digits, help="begin after this id or digest")
    add_store_argument(listing)
    show = add_command(
        group,
        "show",
        "show one dead letter with its attempts",
        _show,
        examples=(f"onceward dead show {_EXAMPLE}", "onceward dead show --scope live:acme --key charge:order-18"),
        codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.STORE),
    )
    _add_letter_arguments(show)
    add_store_argument(show)
    show.add_argument("--payload", action="store_true", help="show the arguments, too, if they were kept as plain text")


def _add_letter_arguments(command: CommandParser) -> None:
    command.add_argument("id", metavar="ID", nargs="?", type=id_digits, help="the letter's id, or its digest")
    command.add_argument("--scope", metavar="SCOPE", help="with --key: the scope of the gate")
    command.add_argument("--key", metavar="KEY", help="with --scope: the key, as the caller gives it")


def _list(asked: argparse.Namespace) -> int:
    """Show one page."""
    unreadable: list[str] = []
    with open_chosen_store(asked) as store:
        found = list(islice(_letters(store, asked, unreadable), asked.limit + 1))
    page = found[: asked.limit]
    upcoming = page[-1].id if len(found) > len(page) else None
    if unreadable:
        print_note(f"{len(unreadable)} cannot be read (damaged, or of another version): {', '.join(unreadable[:10])}")
    if asked.json:
        print_json({"letters": [dead_letter_document(one) for one in page], "next": upcoming})
        return exit_codes.FINE
    if page:
        print_text(dead_letter_table(page))
    else:
        print_note("no dead letters")
    if upcoming is not None:
        print_note(f"there are more: go on with --after {upcoming}")
    return exit_codes.FINE


def _letters(store: Store, asked: argparse.Namespace, unreadable: list[str]) -> Iterator[DeadLetter]:
    selection = Selection(scope=asked.scope, kind=DEAD)
    after = bytes.fromhex(asked.after.ljust(ID_DIGITS, "f")) if asked.after else b""
    while page := store.scan(after, min(SCAN_PAGE, asked.limit + 1), selection):
        for one in filter(is_dead_letter, page):
            try:
                yield dead_letter_of(one)
            except OncewardError:
                unreadable.append(one.id.hex()[:12])
        after = page[-1].id


def _show(asked: argparse.Namespace) -> int:
    """Show one letter."""
    with open_chosen_store(asked) as store:
        letter = dead_letter_of(_the_letter(store, asked))
    print_dead_letter(letter, with_payload=asked.payload, as_json=asked.json)
    return exit_codes.FINE


def _discard(asked: argparse.Namespace) -> int:
    """Let go of one letter."""
    if not asked.yes:
        raise exit_codes.UsageError(
            "discarding a dead letter lets go of what is known about an operation that was given up, and of its "
            "payload. If it is done, or need not be done, add --yes"
        )
    with open_chosen_store(asked) as store:
        found = _the_letter(store, asked)
        discard_dead_letter(store, found.id)
    _tell_done({"digest": found.id.hex()[:12], "discarded": True}, as_json=asked.json)
    return exit_codes.FINE


def _requeue(asked: argparse.Namespace) -> int:
    """Do one again."""
    letter = _sent_again(asked) if asked.app is None else _handled_again(asked)
    _tell_done({"digest": letter.digest, "requeued": True}, as_json=asked.json)
    return exit_codes.FINE


def _sent_again(asked: argparse.Namespace) -> DeadLetter:
    """A request of our own clients, sent from here."""
    from onceward.http.client.dead_letter_sender import dead_letter_sender

    seal = None if asked.seal_variable is None else Sealed(_secret(asked.seal_variable))
    send = dead_letter_sender(asked.send_to, os.environ.get(asked.token_variable, "").strip() or None)
    with open_chosen_store(asked) as store:
        letter = dead_letter_of(_the_letter(store, asked))
        if letter.request is None:
            raise exit_codes.UsageError(
                f"{letter.name} is no HTTP request of our clients: name your handlers with --app"
            )
        box = Gate(store, scope=letter.scope).dead_letters(payload=seal or "plain")
        box.handle_requests(asked.send_to, send)
        try:
            box.requeue(letter, did_not_happen=asked.did_not_happen)
        except Exception as error:
            raise requeue_error(letter, error) from None
    return letter


def _secret(variable: str) -> str:
    found = os.environ.get(variable, "").strip()
    if not found:
        raise exit_codes.UsageError(f"the environment variable {variable} is not set")
    return found


def _handled_again(asked: argparse.Namespace) -> DeadLetter:
    """Anything, by the app's own handler."""
    box = _app(asked.app)
    by_key = is_named_by_key(asked)
    if by_key and asked.scope != box.gate.scope:
        raise exit_codes.UsageError(f"--app {asked.app} has the letters of {box.gate.scope}, not of {asked.scope}")
    return (
        asyncio.run(requeue_letter_async(box, asked))
        if isinstance(box, AsyncDeadLetterBox)
        else requeue_letter(box, asked)
    )


def _tell_done(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        print_text(f"{document['digest']} {'requeued, and discarded' if 'requeued' in document else 'discarded'}")


# --- which letter, and whose handlers ---


def _the_letter(store: Store, asked: argparse.Namespace) -> Record:
    if is_named_by_key(asked):
        found = store.load(id_of_dead_letter(asked.scope, asked.key))
        candidates = [found] if found is not None else []
    else:
        candidates = find_records(store, asked.id, Selection(kind=DEAD))
    letter: Record = require_one([one for one in candidates if is_dead_letter(one)], asked)
    return letter


def _app(path: str) -> DeadLetterBox | AsyncDeadLetterBox:
    """The object that an import path names."""
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise exit_codes.UsageError(f"--app is MODULE:NAME, such as shop:dead, and not {path[:100]!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")  # As `python -m` does: an app is looked for where one stands.
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
