"""
`onceward relay`: deliver the messages of an outbox, and requeue or delete those that were given up.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal

from onceward.cli import exit_codes
from onceward.cli.access_arguments import format_instant
from onceward.cli.argument_types import limit
from onceward.cli.command_table import Argument, Command
from onceward.cli.decisions import DECIDING, deciding
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.store_argument import STORE, store_url
from onceward.cli.text_tables import format_table
from onceward.messaging.outbox.message_queue import DeadMessage
from onceward.messaging.outbox.outbox_admin import OutboxAdmin

LIST_MAX = 1000
_EXAMPLE = "msg_4cd81f1c58f1d7a3b1f6f4b0a3e4c2d9"


def _run(args: argparse.Namespace) -> int:
    from onceward.messaging.outbox.relay import Relay
    from onceward.messaging.outbox.relay_config import relay_from_file

    async def until_stopped(relay: Relay) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, relay.stop)
        await asyncio.to_thread(relay.run)

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    with relay_from_file(store_url(args), args.config) as relay:
        if args.once:
            tries = 0
            while taken := relay.step():
                tries += taken
            if args.json:
                print_json({"tries": tries})
            else:
                print_text(f"{tries} tries")
        else:
            print_json({"relaying": True}) if args.json else print_text("relaying; stop with Ctrl-C")
            asyncio.run(until_stopped(relay))
    return exit_codes.FINE


def _init(args: argparse.Namespace) -> int:
    OutboxAdmin(store_url(args), create=True).close()
    if args.json:
        print_json({"ready": True})
    else:
        print_text("the outbox is ready")
    return exit_codes.FINE


def _status(args: argparse.Namespace) -> int:
    with OutboxAdmin(store_url(args)) as admin:
        counts, disabled = admin.message_counts(), admin.disabled()
    if args.json:
        print_json(
            {
                "messages": [
                    {
                        "endpoint": one.endpoint,
                        "state": one.state,
                        "messages": one.messages,
                        "oldestAt": format_instant(one.oldest_us),
                    }
                    for one in counts
                ],
                "disabled": [
                    {"endpoint": one.endpoint, "since": format_instant(one.since_us), "reason": one.reason}
                    for one in disabled
                ],
            }
        )
        return exit_codes.FINE
    if counts:
        rows = [(one.endpoint, one.state, one.messages, format_instant(one.oldest_us)) for one in counts]
        print_text(format_table(("ENDPOINT", "STATE", "MESSAGES", "OLDEST"), rows))
    else:
        print_note("no messages")
    for one in disabled:
        print_note(f"{one.endpoint} is disabled since {format_instant(one.since_us)}: {one.reason}")
    return exit_codes.FINE


def _dead(args: argparse.Namespace) -> int:
    with OutboxAdmin(store_url(args)) as admin:
        found = admin.dead(args.endpoint, after=args.after, limit=args.limit)
    following = found[-1].id if len(found) == args.limit else None
    if args.json:
        print_json({"messages": [_document(one) for one in found], "next": following})
        return exit_codes.FINE
    if found:
        rows = [
            (one.id, one.endpoint, one.topic, one.aggregate, one.attempts, format_instant(one.dead_us), one.reason)
            for one in found
        ]
        print_text(format_table(("ID", "ENDPOINT", "TOPIC", "AGGREGATE", "TRIES", "DEAD SINCE", "REASON"), rows))
    else:
        print_note("no dead messages")
    if following is not None:
        print_note(f"there may be more: go on with --after {following}")
    return exit_codes.FINE


def _document(message: DeadMessage) -> dict[str, object]:
    return {
        "id": message.id,
        "endpoint": message.endpoint,
        "topic": message.topic,
        "aggregate": message.aggregate,
        "attempts": message.attempts,
        "reason": message.reason,
        "createdAt": format_instant(message.created_us),
        "deadAt": format_instant(message.dead_us),
    }


def _requeue(args: argparse.Namespace) -> int:
    with OutboxAdmin(store_url(args)) as admin, deciding(args, store_url(args), "message.requeue", args.id):
        if not admin.requeue(args.id):
            raise _no_such(args.id)
    return _print_done(args, args.id, "requeued")


def _discard(args: argparse.Namespace) -> int:
    if not args.yes:
        raise exit_codes.UsageError(
            "this deletes the message, which cannot be undone. If that is what you want, add --yes"
        )
    with OutboxAdmin(store_url(args)) as admin, deciding(args, store_url(args), "message.discard", args.id):
        if not admin.discard(args.id):
            raise _no_such(args.id)
    return _print_done(args, args.id, "discarded")


def _enable(args: argparse.Namespace) -> int:
    with OutboxAdmin(store_url(args)) as admin, deciding(args, store_url(args), "endpoint.enable", args.endpoint):
        if not admin.enable(args.endpoint):
            raise exit_codes.NoSuchMessage(
                f"the endpoint {args.endpoint} is not disabled; `onceward relay status` lists those that are"
            )
    return _print_done(args, args.endpoint, "enabled")


def _print_done(args: argparse.Namespace, name: str, done: str) -> int:
    if args.json:
        print_json({"id": name, "state": done})
    else:
        print_text(f"{name} {done}")
    return exit_codes.FINE


def _no_such(id: str) -> exit_codes.NoSuchMessage:
    return exit_codes.NoSuchMessage(f"there is no dead message {id}; `onceward relay dead` lists them")


_MESSAGE = Argument("id", "the message's id", metavar="ID")

COMMANDS = (
    Command(
        name="relay run",
        summary="deliver messages to the endpoints of a file, at least once, until it is stopped",
        run=_run,
        arguments=(
            Argument("--config", "endpoints and settings in TOML", metavar="FILE", required=True),
            Argument("--once", "deliver what is due now, and end", action="store_true"),
            STORE,
        ),
        examples=("onceward relay run --config relay.toml --once",),
        exit_codes=exit_codes.TO_LIST,
        more="Any number of relays may run at once. SIGTERM and Ctrl-C finish what is under way; after kill -9 nothing "
        "is lost, and another relay goes on when the lease has run out.",
    ),
    Command(
        name="relay init",
        summary="make the tables of an outbox in your database; doing it again does no harm",
        run=_init,
        arguments=(STORE,),
        examples=("onceward relay init",),
        exit_codes=exit_codes.TO_LIST,
    ),
    Command(
        name="relay status",
        summary="show how many messages wait, were delivered or are dead, by endpoint",
        run=_status,
        arguments=(STORE,),
        examples=("onceward relay status", "onceward relay status --json"),
        exit_codes=exit_codes.TO_LIST,
    ),
    Command(
        name="relay dead",
        summary="show messages that were given up, the oldest first; never their payloads",
        run=_dead,
        arguments=(
            Argument("--endpoint", "only this endpoint's", metavar="NAME"),
            limit(LIST_MAX, 50),
            Argument("--after", "begin after this message", metavar="ID"),
            STORE,
        ),
        examples=("onceward relay dead", "onceward relay dead --endpoint billing --limit 20"),
        exit_codes=exit_codes.TO_LIST,
    ),
    Command(
        name="relay requeue",
        summary="try a dead message anew, under its own id",
        run=_requeue,
        arguments=(_MESSAGE, *DECIDING, STORE),
        examples=(f"onceward relay requeue {_EXAMPLE}",),
        exit_codes=exit_codes.TO_FIND,
    ),
    Command(
        name="relay discard",
        summary="delete a dead message",
        run=_discard,
        arguments=(
            _MESSAGE,
            Argument("--yes", "yes: nobody needs to hear of it", action="store_true"),
            *DECIDING,
            STORE,
        ),
        examples=(f"onceward relay discard {_EXAMPLE} --yes",),
        exit_codes=exit_codes.TO_FIND,
    ),
    Command(
        name="relay enable",
        summary="deliver again to an endpoint that was disabled because it was gone (410)",
        run=_enable,
        arguments=(Argument("endpoint", "the endpoint's name", metavar="NAME"), *DECIDING, STORE),
        examples=("onceward relay enable billing",),
        exit_codes=exit_codes.TO_FIND,
    ),
)
