"""
`onceward dashboard`: look at a store in a browser, and decide what is in doubt.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError, OncewardError
from onceward.cli import exit_codes
from onceward.cli.argument_types import count_up_to
from onceward.cli.command_table import GROUPS, Argument, Command
from onceward.cli.decisions import ACTOR, ACTOR_VARIABLE, account_name
from onceward.cli.output import print_json, print_text
from onceward.cli.store_argument import SEAL_KEYS, STORE, existing_store_url, open_chosen_store
from onceward.stores import tables_url

if TYPE_CHECKING:
    from socket import socket

    from onceward._core.dead_letters import DeadLetter
    from onceward.dashboard import DashboardData
    from onceward.dashboard.local_login import LocalDoorkeeper
    from onceward.dashboard.page import DashboardOptions
    from onceward.overview import StatusFinding

ROLES = ("view", "decide", "admin")
PORT = 8610


def _dashboard(args: argparse.Namespace) -> int:
    for needed in ("starlette", "uvicorn"):
        if find_spec(needed) is None:
            raise ConfigurationError(f"the dashboard needs {needed}: pip install 'onceward[serve]'")
    from onceward.audit import DecisionLog
    from onceward.cli.record_probe import import_probe
    from onceward.dashboard import DashboardData, DashboardRole
    from onceward.dashboard.local_login import LocalDoorkeeper
    from onceward.dashboard.page import DashboardOptions
    from onceward.service.access.scopes import tenant_of
    from onceward.service.network.sockets import listen
    from onceward.service.settings import is_loopback

    url = existing_store_url(args)
    options = DashboardOptions(
        show_values=args.show_values,
        requeue=None if args.app is None else _requeue(args.app),
        probe=None if args.probe is None else import_probe(args.probe),
    )
    with open_chosen_store(args) as store, DecisionLog.open(url) as log:
        listening = listen(args.host, args.port)
        if not is_loopback(args.host):
            sys.stderr.write(
                f"onceward: {args.host} is reachable from other machines, and this is not TLS: put it behind a proxy\n"
            )
        host = f"[{args.host}]" if ":" in args.host else args.host
        address = f"http://{host}:{listening.port}"
        role = DashboardRole[args.role.upper()]
        doorkeeper = LocalDoorkeeper(_who(args), role, _announcer(address, as_json=args.json))
        data = DashboardData(url, store, log, tenant_of=tenant_of, beside=partial(unfinished_migrations, url))
        try:
            asyncio.run(_serve(data, doorkeeper, options, listening.socket))
        finally:
            data.close()
    return exit_codes.FINE


async def _serve(
    data: DashboardData, doorkeeper: LocalDoorkeeper, options: DashboardOptions, listening: socket
) -> None:
    """Show the pages until somebody says that it is enough."""
    import uvicorn

    from onceward.dashboard import Dashboard
    from onceward.dashboard.pages import PAGES
    from onceward.service.operator_pages import operator_pages

    async with operator_pages(data.url) as more:
        made = Dashboard(data, doorkeeper, store_name=name_of_store(data.url), options=options, pages=(*PAGES, *more))
        config = uvicorn.Config(made.app(), log_level="warning", access_log=False, server_header=False)
        doorkeeper.renew()
        await uvicorn.Server(config).serve(sockets=[listening])


def unfinished_migrations(url: str) -> list[StatusFinding]:
    """Tables in the store's database whose migration (`onceward migrate apply`) has not come to its end."""
    from onceward.dashboard.data import MIGRATION
    from onceward.migrate import open_database
    from onceward.overview import Level, StatusFinding

    beside = tables_url(url)
    if beside is None:
        return []
    try:
        with open_database(beside) as database:
            found = database.unfinished()
    except OncewardError as error:  # What is beside the store must not hide what waits in it.
        return [StatusFinding(MIGRATION, Level.WATCH, f"tables beside the store could not be looked at: {error}")]
    told = "has both columns for a key, and nothing yet that keeps a key from being used twice"
    where = shlex.quote(_without_password(beside))
    return [
        StatusFinding(
            MIGRATION,
            Level.WATCH,
            f"{f'{schema}.' if schema else ''}{name} {told}: its migration waits, or was killed. Run again, it goes on "
            "where it stopped",
            (
                f"onceward migrate apply {shlex.quote(name)}{f' --schema {shlex.quote(schema)}' if schema else ''} "
                f"--database {where}",
            ),
        )
        for schema, name in found
    ]


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = f"{parts.username}@" if parts.username else ""
    return f"{parts.scheme}://{user}{host}{parts.path}"


def name_of_store(url: str) -> str:
    """A store's URL without what is secret in it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port is not None else ""
    return f"{parts.scheme}://{host}{port}{parts.path}"


def _who(args: argparse.Namespace) -> str:
    named = args.actor or os.environ.get(ACTOR_VARIABLE, "").strip()
    return f"{named} ({account_name()})" if named else account_name()


def _announcer(address: str, *, as_json: bool) -> Callable[[str], None]:
    def announce(code: str) -> None:
        login = f"{address}/login?code={code}"
        if as_json:
            print_json({"address": address, "login": login, "pid": os.getpid()})
        else:
            print_text(f"The dashboard, for one login: {login}\n(Ctrl-C stops it)")
        sys.stdout.flush()

    return announce


def _requeue(path: str) -> Callable[[DeadLetter, bool], object]:
    """The app's own handlers, behind its box of dead letters."""
    from onceward.cli.dead import import_dead_letter_box
    from onceward.gate.dead_letter_box_async import AsyncDeadLetterBox

    box = import_dead_letter_box(path)

    def requeue(letter: DeadLetter, did_not_happen: bool) -> object:
        if letter.scope != box.gate.scope:
            raise ConfigurationError(f"--app {path} has the dead letters of {box.gate.scope}, not of {letter.scope}")
        if isinstance(box, AsyncDeadLetterBox):
            return asyncio.run(_awaited(box, letter, did_not_happen))
        return box.requeue(letter, did_not_happen=did_not_happen)

    return requeue


async def _awaited(box: Any, letter: DeadLetter, did_not_happen: bool) -> object:
    return await box.requeue(letter, did_not_happen=did_not_happen)


COMMANDS = (
    Command(
        name="dashboard",
        until_stopped=True,
        summary=GROUPS["dashboard"],
        run=_dashboard,
        arguments=(
            STORE,
            Argument("--host", "the address to listen on", metavar="HOST", default="127.0.0.1"),
            Argument(
                "--port",
                "the port to listen on; 0 for any free port",
                type=count_up_to(65_535, least=0),
                metavar="N",
                default=PORT,
            ),
            Argument("--role", "what may be done here", metavar="ROLE", choices=ROLES, default="decide"),
            Argument("--show-values", "show stored results and arguments, with --role admin", action="store_true"),
            Argument("--app", "your handlers, to retry operations that were given up", metavar="MODULE:NAME"),
            Argument("--probe", "a function of a record that says whether it happened", metavar="MODULE:NAME"),
            ACTOR,
            SEAL_KEYS,
        ),
        examples=("onceward dashboard --store sqlite:///agent.db", "onceward dashboard --role view --port 0"),
        exit_codes=exit_codes.TO_LIST,
        more="Prints an address with a code for one login, and a new one once that is used. Pages load nothing "
        "from other hosts. Decisions go to the decision log, like those of other commands. Roles: view can look, "
        "decide "
        "can also decide, and admin can also see stored values, with --show-values.",
    ),
)
