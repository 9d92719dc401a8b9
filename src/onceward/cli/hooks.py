"""
`onceward hooks`: which webhooks a service takes, what came of them, and what to do about those that were given up.

A secret is never an argument and never shown: the source names an environment variable or a file.
"""

from __future__ import annotations

import argparse
import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError, OncewardError, SourceUnknown
from onceward.cli import exit_codes
from onceward.cli.access_arguments import format_instant
from onceward.cli.command_parser import (
    CommandGroup,
    CommandParser,
    add_command,
    add_group,
    count_up_to,
    seconds,
)
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.store_argument import add_store_argument, existing_store_url
from onceward.cli.text_tables import format_table
from onceward.messaging.inbox.handlers import import_handler
from onceward.messaging.inbox.inbox import Inbox
from onceward.messaging.inbox.sample_event import SampleEvent, signed_sample
from onceward.messaging.inbox.source import ATTEMPTS
from onceward.messaging.inbox.stored_sources import (
    GAPS_SHOWN,
    SCHEMES,
    SourceView,
    StoredSource,
    read_secret,
)
from onceward.messaging.webhooks import PlainHmac, Scheme
from onceward.runtime.environment import REAL
from onceward.service.access.scopes import check_environment, check_tenant, scope_of

_HEADINGS = (
    "SOURCE", "SCOPE", "SCHEME", "SECRETS", "HANDLER", "EVENTS", "WAITING", "DEAD", "REPEATS", "ALTERED",
    "RENAMED", "NUMBERS", "LAST",
)  # fmt: skip
_ANSWER_SECONDS = 30.0


def add_to(parsers: CommandGroup) -> None:
    """Declare the commands."""
    group = add_group(parsers, "hooks", "receive webhooks: add sources, see what came, try them out")
    _add_adding(group)
    listing = add_command(
        group,
        "list",
        "show sources with what came from them: waiting, given up, repeated, and gaps in their numbers",
        _list,
        examples=("onceward hooks list",),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.STORE),
        more="REPEATS are deliveries of events that were here already. Many of them: the answers come too late. "
        "RENAMED are those of a message that was here under another id, where the id is not signed.",
    )
    test = add_command(
        group,
        "test",
        "sign a sample event as its sender would, and show what would happen; with --url, send it",
        _test,
        examples=("onceward hooks test stripe", "onceward hooks test stripe --url http://127.0.0.1:8600"),
        codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.REFUSED, exit_codes.STORE),
        more="Without --url nothing is written or run. With it the event is a real one: its handler runs.",
    )
    test.add_argument("--url", metavar="URL", help="where the service listens")
    requeue = add_command(
        group,
        "requeue",
        "process an event again that was given up",
        _requeue,
        examples=("onceward hooks requeue stripe evt_1",),
        codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.REFUSED, exit_codes.STORE),
        more="An event in doubt is refused: reconcile its record first (the error says how).",
    )
    for command in (test, requeue):
        command.add_argument("source", metavar="SOURCE", help="the source's name")
    requeue.add_argument("id", metavar="EVENT", help="the event's id")
    for command in (listing, test, requeue):
        add_store_argument(command)


def _add_adding(group: CommandGroup) -> None:
    add = add_command(
        group,
        "add",
        "take webhooks from a source, at /hooks/SOURCE; again with the same name replaces it",
        _add,
        examples=(
            "onceward hooks add stripe --scheme stripe --secret-env STRIPE_SECRET --handler shop.hooks:paid "
            "--tenant acme",
            "onceward hooks add crm --scheme hmac --signature-header X-Signature --id-member id "
            "--secret-file /run/secrets/crm --handler shop.hooks:crm --tenant acme",
        ),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.STORE),
        more="The secret stays where it is: name --secret-env twice while it is being replaced. The handler is a "
        "function under @handler of onceward.messaging.inbox; the service imports it from --hooks-path, PYTHONPATH or "
        "what is "
        "installed. A running service takes the source within a second.",
    )
    add.add_argument("name", metavar="SOURCE", help="its name, which its address ends with")
    add.add_argument("--scheme", choices=tuple(SCHEMES), required=True, help="how the sender signs")
    add.add_argument("--secret-env", metavar="NAME", action="append", default=[], help="a variable of the service")
    add.add_argument("--secret-file", metavar="PATH", action="append", default=[], help="a file with the secret")
    add.add_argument("--handler", metavar="MODULE:FUNCTION", required=True, help="such as shop.hooks:paid")
    add.add_argument("--tenant", metavar="NAME", required=True, help="whose events they are")
    add.add_argument("--environment", metavar="NAME", default="live", help="live unless said otherwise")
    add.add_argument("--attempts", metavar="N", type=count_up_to(1_000), default=ATTEMPTS, help=f"tries ({ATTEMPTS})")
    add.add_argument("--number-at", metavar="PLACE", help="where events are numbered: header:NAME or member:PATH")
    add.add_argument("--keep", metavar="SECONDS", type=seconds, help="how long ids are kept once done; 0: for ever")
    add.add_argument(
        "--trust-unsigned-id", action="store_true",
        help="where the id is not signed: equal messages with different ids are different events. Whoever has seen one "
        "message can then have it processed as often as they like",
    )  # fmt: skip
    _add_scheme_arguments(add)
    add_store_argument(add)


def _add_scheme_arguments(add: CommandParser) -> None:
    add.add_argument("--tolerance", metavar="SECONDS", type=count_up_to(86_400), help="of a signed time (300)")
    add.add_argument("--signature-header", metavar="NAME", help="with --scheme hmac: where the signature is")
    add.add_argument("--signature-prefix", metavar="TEXT", help="with --scheme hmac: what stands before it")
    add.add_argument("--spelling", choices=("hex", "base64"), help="with --scheme hmac: hex unless said otherwise")
    add.add_argument("--id-header", metavar="NAME", help="with --scheme hmac: where the event's id is")
    add.add_argument("--id-member", metavar="NAME", help="with --scheme hmac: the same, of a JSON body")
    add.add_argument(
        "--header-prefix", metavar="TEXT", help="with --scheme standard: svix for svix-id (webhook, for webhook-id)"
    )


def _scheme(asked: argparse.Namespace) -> Scheme:
    wanted = {
        "header": asked.signature_header,
        "prefix": asked.header_prefix if asked.scheme == "standard" else asked.signature_prefix,
        "spelling": asked.spelling,
        "id_header": asked.id_header,
        "id_member": asked.id_member,
        "tolerance": asked.tolerance,
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    kind = SCHEMES[asked.scheme]
    for option, needs in (("header_prefix", "standard"), ("signature_prefix", "hmac")):
        if getattr(asked, option) is not None and asked.scheme != needs:
            raise ConfigurationError(f"--{option.replace('_', '-')} goes with --scheme {needs} only")
    if kind is PlainHmac and "header" not in given:
        raise ConfigurationError("--scheme hmac needs --signature-header NAME: where the signature is")
    try:
        made: Scheme = kind(**given)
    except TypeError:
        raise ConfigurationError(
            f"--scheme {asked.scheme} does not take {', '.join(sorted(given))}: its sender decides that"
        ) from None
    return made


def _add(asked: argparse.Namespace) -> int:
    """Write one."""
    references = [f"env:{name}" for name in asked.secret_env]
    references += [f"file:{Path(path).resolve()}" for path in asked.secret_file]
    scope = scope_of(check_environment(asked.environment), check_tenant(asked.tenant))
    source = StoredSource(
        asked.name, scope, _scheme(asked), tuple(references), asked.handler, asked.number_at, asked.attempts,
        asked.keep, asked.trust_unsigned_id,
    ).checked()  # fmt: skip
    with _opened(asked) as inbox:
        is_new = inbox.store_source(source)
    if asked.json:
        print_json({"source": source.name, "path": f"/hooks/{source.name}", "new": is_new})
    else:
        print_text(f"{source.name} {'added' if is_new else 'replaced'}: POST /hooks/{source.name}")
    print_note(f"try it: onceward hooks test {source.name}")
    return exit_codes.FINE


def _list(asked: argparse.Namespace) -> int:
    """Show all of them."""
    with _opened(asked) as inbox:
        found = inbox.sources()
    if asked.json:
        print_json({"sources": [_document(one) for one in found]})
        return exit_codes.FINE
    if not found:
        print_note("no sources")
        return exit_codes.FINE
    print_text(format_table(_HEADINGS, [_row(one) for one in found]))
    for one in found:
        if one.repeats > one.events:
            print_note(
                f"{one.name}: more deliveries are repeats than not. Senders repeat what is not answered in time: "
                "answer before you work (POST /hooks, or Inbox.answer), and look at what is slow in between"
            )
    return exit_codes.FINE


def _test(asked: argparse.Namespace) -> int:
    """Sign a sample, and let the verifier say what it thinks of it."""
    with _opened(asked) as inbox:
        source = inbox.stored_source(asked.source)
    if source is None:
        raise SourceUnknown(f"there is no source {asked.source}; `onceward hooks list` shows those that there are")
    secrets = {reference: read_secret(reference, source.scheme) for reference in source.secrets}
    usable = [one for one in secrets.values() if one is not None]
    if not usable:
        raise ConfigurationError(
            f"no secret of {source.name} can be read here: {', '.join(secrets)}; set it as the sender shows it"
        )
    now = REAL.wall_us() / 1e6
    made = signed_sample(source.scheme, usable[0], f"test_{REAL.random(8).hex()}", now=now)
    verified = source.scheme.verify(made.headers, made.body, usable, now=now)
    told: dict[str, Any] = {
        "source": source.name,
        "event": verified.id,
        "secrets": {reference: "readable" if found is not None else "missing" for reference, found in secrets.items()},
        "signature": "right",
        "handler": _handler_told(source.handler),
    }
    if asked.url is not None:
        told["status"], told["answer"] = _sent(asked.url, source.name, made)
    if asked.json:
        print_json(told)
    else:
        for name, value in told.items():
            print_text(f"{name}: {json.dumps(value) if isinstance(value, dict) else value}")
    return exit_codes.FINE if told.get("status", 200) == 200 else exit_codes.NO


def _requeue(asked: argparse.Namespace) -> int:
    """Make one due again."""
    with _opened(asked) as inbox:
        inbox.requeue(asked.source, asked.id)
    if asked.json:
        print_json({"source": asked.source, "event": asked.id, "requeued": True})
    else:
        print_text(f"{asked.id} of {asked.source} is due again")
    return exit_codes.FINE


def _opened(asked: argparse.Namespace) -> Inbox:
    return Inbox(existing_store_url(asked), stored_sources=True)


def _handler_told(path: str) -> str:
    try:
        return f"{path} ({import_handler(path).guarantee})"
    except OncewardError as error:
        return f"{path}, not importable here: {error}"


def _sent(url: str, source: str, made: SampleEvent) -> tuple[int, str]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigurationError("--url is where the service listens, such as http://127.0.0.1:8600")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=_ANSWER_SECONDS)
    try:
        connection.request("POST", f"{parts.path.rstrip('/')}/hooks/{source}", made.body, made.headers)
        response = connection.getresponse()
        return response.status, response.read(10_000).decode("utf-8", "replace")
    except OSError as error:
        raise ConfigurationError(f"{url} does not answer: {error.strerror or type(error).__name__}") from None
    finally:
        connection.close()


def _document(view: SourceView) -> dict[str, Any]:
    stored = view.stored
    return {
        "source": view.name,
        "scope": view.scope,
        "scheme": None if stored is None else _scheme_name(stored.scheme),
        "secrets": [] if stored is None else list(stored.secrets),
        "handler": None if stored is None else stored.handler,
        "events": view.events,
        "waiting": view.waiting,
        "dead": view.dead,
        "repeats": view.repeats,
        "altered": view.altered,
        "renamed": view.renamed,
        "lastAt": format_instant(view.last_at),
        "highest": view.highest,
        "missing": list(view.missing),
        "rewinds": view.rewinds,
    }


def _row(view: SourceView) -> tuple[Any, ...]:
    told = _document(view)
    numbers = "" if view.highest is None else f"to {view.highest}"
    if view.missing:
        more = ", ..." if len(view.missing) > GAPS_SHOWN else ""
        numbers += f"; missing {', '.join(view.missing[:GAPS_SHOWN])}{more}"
    if view.rewinds:
        numbers += f"; {view.rewinds} rewound"
    return (
        view.name, view.scope, told["scheme"], ", ".join(told["secrets"]), told["handler"], view.events, view.waiting,
        view.dead, view.repeats, view.altered, view.renamed, numbers, told["lastAt"],
    )  # fmt: skip


def _scheme_name(scheme: Scheme) -> str:
    return next((name for name, kind in SCHEMES.items() if type(scheme) is kind), type(scheme).__name__)
