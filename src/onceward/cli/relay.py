"""
`onceward relay`: deliver what outboxes hold, and decide about what could not be delivered.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal

from onceward.cli import exit_codes
from onceward.cli.access_arguments import format_instant
from onceward.cli.command_parser import CommandGroup, add_command, add_group, count_up_to
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.store_argument import add_store_argument, store_url
from onceward.cli.text_tables import format_table
from onceward.messaging.outbox.message_queue import DeadMessage
from onceward.messaging.outbox.outbox_admin import OutboxAdmin

LIST_MAX = 1000
_EXAMPLE = "msg_4cd81f1c58f1d7a3b1f6f4b0a3e4c2d9"


def add_to(parsers: CommandGroup) -> None:
    """Declare the commands."""
    group = add_group(parsers, "relay", "deliver the messages of an outbox: run, look, requeue, enable")
    run = add_command(
        group,
        "run",
        "deliver messages to the endpoints of a file, at least once, until it is stopped",
        _run,
        examples=("onceward relay run --config relay.toml --once",),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.STORE),
        more="Any number of relays may run at once. SIGTERM and Ctrl-C finish what is under way; after kill -9 nothing "
        "is lost, and another relay goes on when the lease has run out.",
    )
    run.add_argument("--config", metavar="FILE", required=True, help="endpoints and settings in TOML")
    run.add_argument("--once", action="store_true", help="deliver what is due now, and end")
    init = add_command(
        group,
        "init",
        "make the tables of an outbox in your database; again does no harm",
        _init,
        examples=("onceward relay init",),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.STORE),
    )
    _add_looking(group)
    for command in (run, init):
        add_store_argument(command)
    for name, summary, act, examples in (
        ("requeue", "try a dead message anew, under its own id", _requeue, (f"onceward relay requeue {_EXAMPLE}",)),
        ("discard", "let go of a dead message", _discard, (f"onceward relay discard {_EXAMPLE} --yes",)),
    ):
        command = add_command(
            group,
            name,
            summary,
            act,
            examples=examples,
            codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.STORE),
        )
        command.add_argument("id", metavar="ID", help="the message's id")
        add_store_argument(command)
        if name == "discard":
            command.add_argument("--yes", action="store_true", help="yes: nobody needs to hear of it")
    enable = add_command(
        group,
        "enable",
        "let an endpoint that said it was gone (410) have its messages again",
        _enable,
        examples=("onceward relay enable billing",),
        codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.STORE),
    )
    enable.add_argument("endpoint", metavar="NAME", help="the endpoint's name")
    add_store_argument(enable)


def _add_looking(group: CommandGroup) -> None:
    status = add_command(
        group,
        "status",
        "show how many messages wait, were delivered or are dead, by endpoint",
        _status,
        examples=("onceward relay status", "onceward relay status --json"),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.STORE),
    )
    add_store_argument(status)
    dead = add_command(
        group,
        "dead",
        "show messages that were given up, the oldest first; never their payloads",
        _dead,
        examples=("onceward relay dead", "onceward relay dead --endpoint billing --limit 20"),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.STORE),
    )
    dead.add_argument("--endpoint", metavar="NAME", help="only this endpoint's")
    dead.add_argument("--limit", metavar="N", type=count_up_to(LIST_MAX), default=50, help="at most so many (50)")
    dead.add_argument("--after", metavar="ID", help="begin after this message")
    add_store_argument(dead)


def _run(asked: argparse.Namespace) -> int:
    from onceward.messaging.outbox.relay import Relay
    from onceward.messaging.outbox.relay_config import (
        relay_from_file,  # Here, so that `onceward --help` does not wait for it.
    )

    async def until_stopped(relay: Relay) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, relay.stop)
        await asyncio.to_thread(relay.run)

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    with relay_from_file(store_url(asked), asked.config) as relay:
        if asked.once:
            tries = 0
            while taken := relay.step():
                tries += taken
            if asked.json:
                print_json({"tries": tries})
            else:
                print_text(f"{tries} tries")
        else:
            print_json({"relaying": True}) if asked.json else print_text("relaying; stop with Ctrl-C")
            asyncio.run(until_stopped(relay))
    return exit_codes.FINE


def _init(asked: argparse.Namespace) -> int:
    OutboxAdmin(store_url(asked), create=True).close()
    if asked.json:
        print_json({"ready": True})
    else:
        print_text("the outbox is ready")
    return exit_codes.FINE


def _status(asked: argparse.Namespace) -> int:
    with OutboxAdmin(store_url(asked)) as desk:
        standings, disabled = desk.message_counts(), desk.disabled()
    if asked.json:
        print_json(
            {
                "messages": [
                    {
                        "endpoint": one.endpoint,
                        "state": one.state,
                        "messages": one.messages,
                        "oldestAt": format_instant(one.oldest_us),
                    }
                    for one in standings
                ],
                "disabled": [
                    {"endpoint": one.endpoint, "since": format_instant(one.since_us), "reason": one.reason}
                    for one in disabled
                ],
            }
        )
        return exit_codes.FINE
    if standings:
        rows = [(one.endpoint, one.state, one.messages, format_instant(one.oldest_us)) for one in standings]
        print_text(format_table(("ENDPOINT", "STATE", "MESSAGES", "OLDEST"), rows))
    else:
        print_note("no messages")
    for one in disabled:
        print_note(f"{one.endpoint} is disabled since {format_instant(one.since_us)}: {one.reason}")
    return exit_codes.FINE


def _dead(asked: argparse.Namespace) -> int:
    with OutboxAdmin(store_url(asked)) as desk:
        found = desk.dead(asked.endpoint, after=asked.after, limit=asked.limit)
    following = found[-1].id if len(found) == asked.limit else None
    if asked.json:
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


def _document(letter: DeadMessage) -> dict[str, object]:
    return {
        "id": letter.id,
        "endpoint": letter.endpoint,
        "topic": letter.topic,
        "aggregate": letter.aggregate,
        "attempts": letter.attempts,
        "reason": letter.reason,
        "createdAt": format_instant(letter.created_us),
        "deadAt": format_instant(letter.dead_us),
    }


def _requeue(asked: argparse.Namespace) -> int:
    with OutboxAdmin(store_url(asked)) as desk:
        if not desk.requeue(asked.id):
            raise _no_such(asked.id)
    return _told(asked, "requeued")


def _discard(asked: argparse.Namespace) -> int:
    if not asked.yes:
        raise exit_codes.UsageError("this deletes the message for good; if that is meant, add --yes")
    with OutboxAdmin(store_url(asked)) as desk:
        if not desk.discard(asked.id):
            raise _no_such(asked.id)
    return _told(asked, "discarded")


def _enable(asked: argparse.Namespace) -> int:
    with OutboxAdmin(store_url(asked)) as desk:
        if not desk.enable(asked.endpoint):
            raise exit_codes.NoSuchMessage(
                f"the endpoint {asked.endpoint} is not disabled; `onceward relay status` shows it"
            )
    asked.id = asked.endpoint
    return _told(asked, "enabled")


def _told(asked: argparse.Namespace, done: str) -> int:
    if asked.json:
        print_json({"id": asked.id, "state": done})
    else:
        print_text(f"{asked.id} {done}")
    return exit_codes.FINE


def _no_such(id: str) -> exit_codes.NoSuchMessage:
    return exit_codes.NoSuchMessage(f"there is no dead message {id}; `onceward relay dead` shows those that there are")
