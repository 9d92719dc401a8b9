"""
`onceward relay`: deliver what outboxes hold, and decide about what could not be delivered.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal

from onceward.cli import exits
from onceward.cli.access import when
from onceward.cli.opening import add_store_argument, url_of
from onceward.cli.parsing import Groups, add_command, add_group, count_up_to
from onceward.cli.printing import note, say, say_document
from onceward.cli.tables import table
from onceward.outbox.leasing import Letter
from onceward.outbox.operating import OutboxDesk

LIST_MAX = 1000
_EXAMPLE = "msg_4cd81f1c58f1d7a3b1f6f4b0a3e4c2d9"


def add_to(parsers: Groups) -> None:
    """Declare the commands."""
    group = add_group(parsers, "relay", "deliver the messages of an outbox: run, look, requeue, enable")
    run = add_command(
        group,
        "run",
        "deliver messages to the endpoints of a file, at least once, until it is stopped",
        _run,
        examples=("onceward relay run --config relay.toml --once",),
        codes=(exits.FINE, exits.USAGE, exits.STORE),
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
        codes=(exits.FINE, exits.USAGE, exits.STORE),
    )
    _add_looking(group)
    for command in (run, init):
        add_store_argument(command)
    for name, summary, act, examples in (
        ("requeue", "try a dead message anew, under its own id", _requeue, (f"onceward relay requeue {_EXAMPLE}",)),
        ("discard", "let go of a dead message", _discard, (f"onceward relay discard {_EXAMPLE} --yes",)),
    ):
        command = add_command(
            group, name, summary, act, examples=examples, codes=(exits.FINE, exits.NO, exits.USAGE, exits.STORE)
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
        codes=(exits.FINE, exits.NO, exits.USAGE, exits.STORE),
    )
    enable.add_argument("endpoint", metavar="NAME", help="the endpoint's name")
    add_store_argument(enable)


def _add_looking(group: Groups) -> None:
    status = add_command(
        group,
        "status",
        "show how many messages wait, were delivered or are dead, by endpoint",
        _status,
        examples=("onceward relay status", "onceward relay status --json"),
        codes=(exits.FINE, exits.USAGE, exits.STORE),
    )
    add_store_argument(status)
    dead = add_command(
        group,
        "dead",
        "show messages that were given up, the oldest first; never their payloads",
        _dead,
        examples=("onceward relay dead", "onceward relay dead --endpoint billing --limit 20"),
        codes=(exits.FINE, exits.USAGE, exits.STORE),
    )
    dead.add_argument("--endpoint", metavar="NAME", help="only this endpoint's")
    dead.add_argument("--limit", metavar="N", type=count_up_to(LIST_MAX), default=50, help="at most so many (50)")
    dead.add_argument("--after", metavar="ID", help="begin after this message")
    add_store_argument(dead)


def _run(asked: argparse.Namespace) -> int:
    from onceward.outbox.configuring import relay_from  # Here, so that `onceward --help` does not wait for it.
    from onceward.outbox.relay import Relay

    async def until_stopped(relay: Relay) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, relay.stop)
        await asyncio.to_thread(relay.run)

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    with relay_from(url_of(asked), asked.config) as relay:
        if asked.once:
            tries = 0
            while taken := relay.step():
                tries += taken
            if asked.json:
                say_document({"tries": tries})
            else:
                say(f"{tries} tries")
        else:
            say_document({"relaying": True}) if asked.json else say("relaying; stop with Ctrl-C")
            asyncio.run(until_stopped(relay))
    return exits.FINE


def _init(asked: argparse.Namespace) -> int:
    OutboxDesk(url_of(asked), create=True).close()
    if asked.json:
        say_document({"ready": True})
    else:
        say("the outbox is ready")
    return exits.FINE


def _status(asked: argparse.Namespace) -> int:
    with OutboxDesk(url_of(asked)) as desk:
        standings, disabled = desk.standings(), desk.disabled()
    if asked.json:
        say_document(
            {
                "messages": [
                    {
                        "endpoint": one.endpoint,
                        "state": one.state,
                        "messages": one.messages,
                        "oldestAt": when(one.oldest_us),
                    }
                    for one in standings
                ],
                "disabled": [
                    {"endpoint": one.endpoint, "since": when(one.since_us), "reason": one.reason} for one in disabled
                ],
            }
        )
        return exits.FINE
    if standings:
        rows = [(one.endpoint, one.state, one.messages, when(one.oldest_us)) for one in standings]
        say(table(("ENDPOINT", "STATE", "MESSAGES", "OLDEST"), rows))
    else:
        note("no messages")
    for one in disabled:
        note(f"{one.endpoint} is disabled since {when(one.since_us)}: {one.reason}")
    return exits.FINE


def _dead(asked: argparse.Namespace) -> int:
    with OutboxDesk(url_of(asked)) as desk:
        found = desk.dead(asked.endpoint, after=asked.after, limit=asked.limit)
    following = found[-1].id if len(found) == asked.limit else None
    if asked.json:
        say_document({"messages": [_document(one) for one in found], "next": following})
        return exits.FINE
    if found:
        rows = [
            (one.id, one.endpoint, one.topic, one.aggregate, one.attempts, when(one.dead_us), one.reason)
            for one in found
        ]
        say(table(("ID", "ENDPOINT", "TOPIC", "AGGREGATE", "TRIES", "DEAD SINCE", "REASON"), rows))
    else:
        note("no dead messages")
    if following is not None:
        note(f"there may be more: go on with --after {following}")
    return exits.FINE


def _document(letter: Letter) -> dict[str, object]:
    return {
        "id": letter.id,
        "endpoint": letter.endpoint,
        "topic": letter.topic,
        "aggregate": letter.aggregate,
        "attempts": letter.attempts,
        "reason": letter.reason,
        "createdAt": when(letter.created_us),
        "deadAt": when(letter.dead_us),
    }


def _requeue(asked: argparse.Namespace) -> int:
    with OutboxDesk(url_of(asked)) as desk:
        if not desk.requeue(asked.id):
            raise _no_such(asked.id)
    return _told(asked, "requeued")


def _discard(asked: argparse.Namespace) -> int:
    if not asked.yes:
        raise exits.UsageError("this deletes the message for good; if that is meant, add --yes")
    with OutboxDesk(url_of(asked)) as desk:
        if not desk.discard(asked.id):
            raise _no_such(asked.id)
    return _told(asked, "discarded")


def _enable(asked: argparse.Namespace) -> int:
    with OutboxDesk(url_of(asked)) as desk:
        if not desk.enable(asked.endpoint):
            raise exits.NoSuchMessage(
                f"the endpoint {asked.endpoint} is not disabled; `onceward relay status` shows it"
            )
    asked.id = asked.endpoint
    return _told(asked, "enabled")


def _told(asked: argparse.Namespace, done: str) -> int:
    if asked.json:
        say_document({"id": asked.id, "state": done})
    else:
        say(f"{asked.id} {done}")
    return exits.FINE


def _no_such(id: str) -> exits.NoSuchMessage:
    return exits.NoSuchMessage(f"there is no dead message {id}; `onceward relay dead` shows those that there are")
