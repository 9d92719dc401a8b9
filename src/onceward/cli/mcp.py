"""
`onceward mcp`: stand in front of an MCP server, and let each of its calls happen once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from contextlib import ExitStack
from hashlib import sha256
from typing import TYPE_CHECKING

from onceward._core.errors import ConfigurationError
from onceward._core.keys import check_scope
from onceward.cli import exit_codes
from onceward.cli.argument_types import seconds
from onceward.cli.command_table import GROUPS, Argument, Command
from onceward.cli.output import print_note
from onceward.cli.store_argument import SEAL_KEYS, STORE, existing_store_url, seal_of

RUN_VARIABLE = "ONCEWARD_MCP_RUN"
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e]+)")
_GRACE = 30.0

if TYPE_CHECKING:
    from onceward.agents.mcp_proxy.tools_file import ServerTools


def _mcp(args: argparse.Namespace) -> int:
    from onceward.agents.mcp_proxy.tools_file import ServerTools, read_tools_file

    if bool(args.server) == bool(args.url):
        raise exit_codes.UsageError("name one server: either its command after --, or its address with --url")
    run = args.of_run or os.environ.get(RUN_VARIABLE, "")
    if bool(run) == args.require_keys:
        raise exit_codes.UsageError(
            f"name the piece of work that the calls belong to, with --run ID or {RUN_VARIABLE}; or use --require-keys, "
            "and let the client send a key with each call"
        )
    if args.header and not args.url:
        raise exit_codes.UsageError("--header goes with --url")
    headers = dict(map(_header, args.header or ()))
    tools = read_tools_file(args.tools) if args.tools else ServerTools({})
    scope = check_scope(args.scope or _scope_of(args.server, args.url))
    url = existing_store_url(args)
    return asyncio.run(_proxied(args, url, scope, run, headers, tools))


async def _proxied(
    args: argparse.Namespace, url: str, scope: str, run: str, headers: dict[str, str], tools: ServerTools
) -> int:
    from onceward.agents.agent_gate import AgentGate
    from onceward.agents.mcp_proxy.held_calls import CallJudge
    from onceward.agents.mcp_proxy.http_link import HttpLink
    from onceward.agents.mcp_proxy.lines import ClientInput, ClientOutput
    from onceward.agents.mcp_proxy.proxy import McpProxy
    from onceward.agents.mcp_proxy.serve import serve
    from onceward.agents.mcp_proxy.server_process import ServerProcess

    with ExitStack() as stack:
        seal = seal_of(args, url, stack)
        async with AgentGate(url, scope=scope, tools=tools.tools, default=tools.others, seal=seal) as gate:
            judge = CallJudge(gate, gate.run(run) if run else None, tools, trusts=args.trust_annotations)
            server = HttpLink(args.url, headers) if args.url else await ServerProcess.start(args.server)
            proxy = McpProxy(
                judge, tools, client=ClientOutput(1), server=server, note=_note, followed=args.delivered == "followed"
            )
            return await serve(proxy, ClientInput(0), server, _note, args.grace)


def _scope_of(command: list[str], url: str | None) -> str:
    """A scope of its own for each server: two servers may have tools of one name, which must not answer each other."""
    named = "\0".join([url] if url else command)
    return f"mcp:{sha256(named.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"


def _header(text: str) -> tuple[str, str]:
    """A header, whose value may be in an environment variable: no secret should stand in a command."""
    found = _HEADER.fullmatch(text.strip())
    if found is None:
        raise exit_codes.UsageError("--header takes 'Name: value', or 'Name: env:VARIABLE' for what is secret")
    name, value = found[1], found[2].strip()
    if not value.startswith("env:"):
        return name, value
    secret = os.environ.get(value.removeprefix("env:"), "")
    if not secret or not secret.isascii() or not secret.isprintable():
        raise ConfigurationError(
            f"the header {name} is in the variable {value[4:]}, which is not set, or is not a valid header"
        )
    return name, secret


def _note(text: str) -> None:
    print_note(f"onceward mcp: {text}")


COMMANDS = (
    Command(
        name="mcp",
        until_stopped=True,
        summary=GROUPS["mcp"],
        run=_mcp,
        arguments=(
            STORE,
            SEAL_KEYS,
            Argument(
                "--run",
                "the piece of work that the calls belong to",
                metavar="ID",
                dest="of_run",
                default_text=f"${RUN_VARIABLE}",
            ),
            Argument("--require-keys", "no run: the client must send a key with each call", action="store_true"),
            Argument(
                "--scope", "the scope of these calls", metavar="SCOPE", default_text="one for each command or URL"
            ),
            Argument("--tools", "a file that describes the tools, in TOML or JSON", metavar="FILE"),
            Argument(
                "--trust-annotations",
                "trust the server's annotations: a read-only tool is passed through, and an idempotent one may run "
                "again",
                action="store_true",
            ),
            Argument("--url", "a server on streamable HTTP, instead of a command", metavar="URL"),
            Argument(
                "--header", "for --url: 'Name: value', or 'Name: env:VARIABLE'", metavar="HEADER", action="append"
            ),
            Argument(
                "--delivered",
                "when an answer counts as delivered, so that the next equal call is a new one: once it is written, "
                "or once the client sends something after it",
                choices=("written", "followed"),
                default="written",
            ),
            Argument(
                "--grace",
                "how long calls may continue after the client has left",
                metavar="SECONDS",
                type=seconds,
                default=_GRACE,
                default_text="30 s",
            ),
            Argument("server", "the server and its arguments, after --", metavar="COMMAND", nargs="*"),
        ),
        examples=(
            "onceward mcp --run order-42 -- npx -y @modelcontextprotocol/server-filesystem /srv/files",
            "onceward mcp --run order-42 --url https://example.com/mcp --header 'Authorization: env:MCP_TOKEN'",
        ),
        exit_codes=exit_codes.TO_FIND,
        no="the server's own exit code",
        more="Everything passes unchanged between client and server, except calls of tools that are "
        "not read-only: each is claimed before the server sees it, and its result is stored before the client sees "
        "it. Without --tools, every tool is blind: an interrupted call is not run again, and the model is told so. "
        "The exit code is the server's.",
    ),
)
