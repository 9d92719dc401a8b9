"""
`onceward relay`: deliver the messages of an outbox. What was given up is among the dead letters (`onceward dead`).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal

from onceward.cli import exit_codes
from onceward.cli.access_arguments import format_instant
from onceward.cli.command_table import Argument, Command
from onceward.cli.decisions import DECIDING, deciding
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.store_argument import STORE, store_url
from onceward.cli.text_tables import format_table
from onceward.messaging.outbox.outbox_admin import OutboxAdmin


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
    if any(one.state == "dead" for one in counts):
        print_note("what is dead was given up: `onceward dead list` says why, and how to deliver it again")
    for one in disabled:
        print_note(f"{one.endpoint} has been disabled since {format_instant(one.since_us)}: {one.reason}")
    return exit_codes.FINE


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


COMMANDS = (
    Command(
        name="relay run",
        until_stopped=True,
        summary="deliver messages to the endpoints of a file, at least once, until it is stopped",
        run=_run,
        arguments=(
            Argument("--config", "endpoints and settings in TOML", metavar="FILE", required=True),
            Argument("--once", "deliver what is due now, then exit", action="store_true"),
            STORE,
        ),
        examples=("onceward relay run --config relay.toml --once",),
        exit_codes=exit_codes.TO_LIST,
        more="Any number of relays may run at once. SIGTERM and Ctrl-C finish what is under way. After kill -9 "
        "nothing is lost: another relay takes over when the lease has run out.",
    ),
    Command(
        name="relay init",
        summary="make the tables of an outbox in your database; running it again is safe",
        run=_init,
        arguments=(STORE,),
        examples=("onceward relay init",),
        exit_codes=exit_codes.TO_LIST,
    ),
    Command(
        name="relay status",
        summary="show how many messages are waiting, delivered or dead letters, by endpoint",
        run=_status,
        arguments=(STORE,),
        examples=("onceward relay status", "onceward relay status --json"),
        exit_codes=exit_codes.TO_LIST,
    ),
    Command(
        name="relay enable",
        summary="deliver again to an endpoint that was disabled because it answered 410 Gone",
        run=_enable,
        arguments=(Argument("endpoint", "the endpoint's name", metavar="NAME"), *DECIDING, STORE),
        examples=("onceward relay enable billing",),
        exit_codes=exit_codes.TO_FIND,
        no="no such endpoint is disabled",
    ),
)
