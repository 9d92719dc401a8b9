"""
`onceward serve`: start the service, SQL over HTTP with keys and plans, on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager, nullcontext
from dataclasses import fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from onceward._core.durations import SECOND, format_micros
from onceward._core.errors import ConfigurationError
from onceward.cli import exit_codes
from onceward.cli.command_table import GROUPS, Argument, Command
from onceward.cli.contract import field_docs
from onceward.cli.output import print_json, print_text
from onceward.cli.typed_command import as_typed, store_option
from onceward.runtime.environment import REAL
from onceward.runtime.garbage import look_for_garbage_rarely
from onceward.service import settings
from onceward.service.first_token import AUTO, FIRST_TENANT, TokenPlace, hand_out
from onceward.service.private_folder import make_private_folder
from onceward.service.settings import Settings, is_loopback, is_stateless, load_settings, store_url_of

if TYPE_CHECKING:
    from onceward.service.access import NewToken
    from onceward.service.app import Service
    from onceward.service.logs import BoundedLogHandler
    from onceward.service.network.sockets import ListeningSocket

SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter while another waits for it; Python's own 5 ms add up."""


def _serve(args: argparse.Namespace) -> int:
    for needed in ("starlette", "msgspec", "uvicorn"):
        if find_spec(needed) is None:
            raise ConfigurationError(f"serving needs {needed}: pip install 'onceward[serve]'")
    given = {field.name: getattr(args, field.name) for field in fields(Settings)}
    # A switch that was not given says nothing: the variable or the file may have it.
    flags = {name: None if value is False else value for name, value in given.items()}
    # A thread that parses a large body gives way to the event loop, which has to ask for that several times a request.
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=event_loop()) as runner:
        return runner.run(_run(load_settings(flags, os.environ, args.config), as_json=args.json))


def event_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, if it is installed; None: Python's own."""
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return cast("Callable[[], asyncio.AbstractEventLoop]", uvloop.new_event_loop)


async def _run(chosen: Settings, *, as_json: bool) -> int:
    from onceward.service.app import open_service
    from onceward.service.logs import TELL_SECONDS, log_to_stderr
    from onceward.service.network.certificates import Certificates
    from onceward.service.network.server import server_of
    from onceward.service.network.sockets import fitting_connections, handed_over_socket, listen

    handler = log_to_stderr(chosen.log_level, chosen.log_rate_bytes)
    chosen = replace(chosen, connections=fitting_connections(chosen.connections))
    certificates = Certificates(chosen.tls_certificate, chosen.tls_key) if chosen.tls_certificate else None
    given = handed_over_socket(os.environ)  # Before worker processes are started.
    async with open_service(chosen) as made, AsyncExitStack() as stack:
        listening = given or listen(chosen.host, chosen.port)
        _warn_of_strangers(chosen, listening)
        server = server_of(made.app, chosen, listening, made.accounts, certificates)
        # Its own handlers raise the signal again once it has stopped, and the process would be gone before we close.
        server.capture_signals = nullcontext  # type: ignore[assignment]
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, server.handle_exit, number, None)
        stack.enter_context(_in_background(_tell(handler, TELL_SECONDS)))
        if certificates is not None:
            hurry = asyncio.Event()
            loop.add_signal_handler(signal.SIGHUP, hurry.set)
            stack.enter_context(_in_background(certificates.watch(hurry)))
        tenants = await made.access.tenants(limit=1)
        # After the handlers: who reads this may send a signal.
        _print_address(chosen, made, listening, tenants[0].name if tenants else None, as_json=as_json)
        handler.write_together(loop.call_soon)
        stack.callback(handler.write_together, None)
        look_for_garbage_rarely()
        await server.serve()
    handler.tell()
    return exit_codes.FINE


async def _tell(handler: BoundedLogHandler, seconds: float) -> None:
    """Say now and then what the log left out."""
    while True:
        await REAL.asleep(seconds)
        handler.tell()


@contextmanager
def _in_background(work: Coroutine[Any, Any, None]) -> Iterator[None]:
    task = asyncio.get_running_loop().create_task(work)
    try:
        yield
    finally:
        task.cancel()


def _warn_of_strangers(chosen: Settings, listening: ListeningSocket) -> None:
    host = str(listening.socket.getsockname()[0])
    if not is_loopback(host) and not chosen.tls_certificate:
        sys.stderr.write(
            f"onceward: {host} is reachable from other machines; set tls_certificate and tls_key, or put TLS in front\n"
        )


def _print_address(
    chosen: Settings, made: Service, listening: ListeningSocket, tenant: str | None, *, as_json: bool
) -> None:
    host = str(listening.socket.getsockname()[0]) if listening.is_handed_over else chosen.host
    scheme = "https" if chosen.tls_certificate else "http"
    address = f"{scheme}://{host if ':' not in host else f'[{host}]'}:{listening.port}"
    token = None if made.first_token is None else _handed_out(chosen, made.first_token)
    if as_json:
        text, file = (None, None) if token is None else token
        shown: dict[str, Any] = {"address": address, "token": text, "pid": os.getpid()}
        if made.confined is not None:
            shown |= {"confinedBy": made.confined.active, "notConfinedBy": made.confined.missing}
        print_json(shown if file is None else {**shown, "tokenFile": str(file)})
        return
    print_text(f"Onceward is listening on {address}\n")
    print_text(f"  API        {address}/   (every call, with a sample to copy)")
    if chosen.dashboard == "on":
        print_text(f"  Dashboard  {address}/dashboard   (log in with a token)")
    if made.confined is not None:
        where = "PostgreSQL, tenants" if chosen.sql else "processes"
        print_text(f"  SQL        in {where} confined by: {made.confined.line()}")
    if token is None:
        _print_how_to_get_a_token(chosen, tenant)
    else:
        where = "shown only this once" if token.text else "in a file that only you can read"
        print_text(f"\nA token for the tenant {FIRST_TENANT}, to try things with ({where}):\n")
        print_text(f"  {token.text or token.file}\n")
    if made.engine is not None:
        _print_lines_to_try(f"{address}/v1/db/{tenant or FIRST_TENANT}/shop", token)
    print_text("Stop with Ctrl-C.")


def _print_lines_to_try(place: str, token: TokenPlace | None) -> None:
    """Three commands: a database, a table, and a write that may be sent again."""
    in_shell = "$TOKEN" if token is None else token.in_shell
    quote = "'" if token is not None and token.text else '"'
    authorization = f"-H {quote}Authorization: Bearer {in_shell}{quote}"
    kind = "-H 'Content-Type: application/json'"
    create = json.dumps({"sql": "CREATE TABLE IF NOT EXISTS events (id TEXT PRIMARY KEY, name TEXT)"})
    insert = json.dumps({"sql": "INSERT INTO events VALUES (?, ?)", "params": ["e-1", "click"]})
    print_text("Try:\n" if token is not None else "Try, with that token in TOKEN (TOKEN=ow_...):\n")
    print_text(f"  curl -X PUT {place} {authorization}\n")
    print_text(f"  curl {place}/query {authorization} {kind} -d '{create}'\n")
    print_text(f"  curl -i {place}/query {authorization} {kind} -H 'Idempotency-Key: evt-1' -d '{insert}'\n")
    print_text("Send the last one again: the row is written once, and the response says Idempotency-Replayed: true.\n")


def _print_how_to_get_a_token(chosen: Settings, tenant: str | None) -> None:
    """Say, as it can be typed, how to get a token where there is none to show: tokens are shown once."""
    here = argparse.Namespace(store=store_url_of(chosen))
    print_text("\nTokens are shown only once, when they are made. To make one, and to list them:\n")
    whose = tenant or FIRST_TENANT
    first = () if tenant is not None else (f"onceward tenant create {FIRST_TENANT}",)
    # With the first token's rights, so that what was tried with it is there again.
    rights = " --environment test --role admin" if whose == FIRST_TENANT else ""
    for command in (*first, f"onceward token create --tenant {whose}{rights}", "onceward token list"):
        print_text(f"  {as_typed(command, here)}\n")
    if not store_option(here):
        print_text("Put the URL of the store into the environment variable ONCEWARD_STORE: it contains a password.\n")


def _handed_out(chosen: Settings, made: NewToken) -> TokenPlace:
    if is_stateless(chosen) and chosen.first_token == AUTO and not sys.stdout.isatty():
        make_private_folder(chosen.folder)  # Nothing else has needed it.
    return hand_out(made.issued.text, chosen.first_token, Path(chosen.folder), terminal=sys.stdout.isatty())


def _setting_arguments() -> Iterator[Argument]:
    """One flag for each setting; its help is the text beside the setting, with the unit of the default written out."""
    helps = field_docs(settings, "Settings")
    for field in fields(Settings):
        name, default = field.name, field.default
        help = helps.get(name) or name.replace("_", " ")
        if isinstance(default, bool):
            yield Argument(f"--{name.replace('_', '-')}", help[0].lower() + help[1:].rstrip("."), action="store_true")
            continue
        if isinstance(default, float):
            default = format_micros(round(default * SECOND))
        elif "_bytes" in name:
            default = f"{default:,} bytes"
        yield Argument(
            f"--{name.replace('_', '-')}",
            help[0].lower() + help[1:].rstrip("."),
            metavar="SECONDS" if isinstance(field.default, float) else "N" if field.type == "int" else "VALUE",
            default_text="none" if default in ("", ()) else str(default),
        )


COMMANDS = (
    Command(
        name="serve",
        until_stopped=True,
        summary=GROUPS["serve"],
        run=_serve,
        arguments=(Argument("--config", "settings in TOML", metavar="FILE"), *_setting_arguments()),
        examples=("onceward serve", "onceward serve --port 8080 --folder data"),
        exit_codes=exit_codes.TO_LIST,
        more="Settings come from flags, then ONCEWARD_SERVE_* variables, then the file. The first start makes a tenant "
        "to try things with, and shows its token once (in a file, if stdout is not a terminal). SIGTERM and Ctrl-C "
        "finish "
        "what is under way. If systemd passes a socket (LISTEN_FDS), it is used instead of host and port.",
    ),
)
