"""
`onceward hooks`: which webhooks a service receives, what came of them, and how to process again what was given up.

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
from onceward.cli.argument_types import count_up_to, seconds
from onceward.cli.command_table import Argument, Command
from onceward.cli.decisions import DECIDING, deciding
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.store_argument import STORE, existing_store_url
from onceward.cli.text_tables import format_table
from onceward.gate.record_decisions import environment_of
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
from onceward.service.access.scopes import check_environment, check_tenant, scope_of, tenant_of

_HEADINGS = (
    "SOURCE", "SCOPE", "SCHEME", "SECRETS", "HANDLER", "EVENTS", "WAITING", "DEAD LETTERS", "REPEATS", "ALTERED",
    "RENAMED", "NUMBERS", "LAST",
)  # fmt: skip
_RESPONSE_SECONDS = 30.0


def _scheme(args: argparse.Namespace) -> Scheme:
    options = {
        "header": args.signature_header,
        "prefix": args.header_prefix if args.scheme == "standard" else args.signature_prefix,
        "spelling": args.spelling,
        "id_header": args.id_header,
        "id_member": args.id_member,
        "tolerance": args.tolerance,
    }
    given = {name: value for name, value in options.items() if value is not None}
    kind = SCHEMES[args.scheme]
    for option, needs in (("header_prefix", "standard"), ("signature_prefix", "hmac")):
        if getattr(args, option) is not None and args.scheme != needs:
            raise ConfigurationError(f"--{option.replace('_', '-')} goes with --scheme {needs} only; leave it out")
    if kind is PlainHmac and "header" not in given:
        raise ConfigurationError("--scheme hmac needs --signature-header NAME: where the signature is")
    try:
        made: Scheme = kind(**given)
    except TypeError:
        raise ConfigurationError(
            f"--scheme {args.scheme} does not take {', '.join(sorted(given))}: its sender decides that. Leave it out"
        ) from None
    return made


def _add(args: argparse.Namespace) -> int:
    """Add or replace a source."""
    references = [f"env:{name}" for name in args.secret_env]
    references += [f"file:{Path(path).resolve()}" for path in args.secret_file]
    scope = scope_of(check_environment(args.environment), check_tenant(args.tenant))
    source = StoredSource(
        args.name, scope, _scheme(args), tuple(references), args.handler, args.number_at, args.attempts,
        args.keep, args.trust_unsigned_id,
    ).checked()  # fmt: skip
    with _open_inbox(args) as inbox:
        about = {"tenant": args.tenant, "environment": args.environment}
        before = inbox.stored_source(source.name)
        with deciding(
            args, existing_store_url(args), "source.add", source.name, **about, before=_source_facts(before)
        ) as made:
            is_new = inbox.store_source(source)
            made.after = {"new": is_new, **_source_facts(source)}
    if args.json:
        print_json({"source": source.name, "path": f"/hooks/{source.name}", "new": is_new})
    else:
        print_text(f"{source.name} {'added' if is_new else 'replaced'}: POST /hooks/{source.name}")
    print_note(f"try it: onceward hooks test {source.name}")
    return exit_codes.FINE


def _source_facts(source: StoredSource | None) -> dict[str, Any]:
    """What the decision log says of a source: where its secrets are, and never what they are."""
    if source is None:
        return {}
    return {
        "scope": source.scope,
        "scheme": _scheme_name(source.scheme),
        "secrets": list(source.secrets),
        "handler": source.handler,
        "attempts": source.attempts,
    }


def _list(args: argparse.Namespace) -> int:
    """Show every source."""
    with _open_inbox(args) as inbox:
        found = inbox.sources()
    if args.json:
        print_json({"sources": [_document(one) for one in found]})
        return exit_codes.FINE
    if not found:
        print_note("no sources")
        return exit_codes.FINE
    print_text(format_table(_HEADINGS, [_row(one) for one in found]))
    for one in found:
        if one.repeats > one.events:
            print_note(
                f"{one.name}: most deliveries are repeats, because senders repeat what gets no "
                "response in time. Respond before you do the work (POST /hooks, or Inbox.answer), and find out what "
                "is slow"
            )
    return exit_codes.FINE


def _test(args: argparse.Namespace) -> int:
    """Sign a sample event, and verify it as the service would."""
    with _open_inbox(args) as inbox:
        source = inbox.stored_source(args.source)
    if source is None:
        raise SourceUnknown(f"there is no source {args.source}; `onceward hooks list` lists the sources")
    secrets = {reference: read_secret(reference, source.scheme) for reference in source.secrets}
    usable = [one for one in secrets.values() if one is not None]
    if not usable:
        raise ConfigurationError(
            f"no secret of {source.name} can be read here: {', '.join(secrets)}; set it as the sender shows it"
        )
    now = REAL.wall_us() / 1e6
    made = signed_sample(source.scheme, usable[0], f"test_{REAL.random(8).hex()}", now=now)
    verified = source.scheme.verify(made.headers, made.body, usable, now=now)
    result: dict[str, Any] = {
        "source": source.name,
        "event": verified.id,
        "secrets": {reference: "readable" if found is not None else "missing" for reference, found in secrets.items()},
        "signature": "right",
        "handler": _describe_handler(source.handler),
    }
    if args.url is not None:
        result["status"], result["answer"] = _send(args.url, source.name, made)
    if args.json:
        print_json(result)
    else:
        for name, value in result.items():
            print_text(f"{name}: {json.dumps(value) if isinstance(value, dict) else value}")
    return exit_codes.FINE if result.get("status", 200) == 200 else exit_codes.NO


def _requeue(args: argparse.Namespace) -> int:
    """Make an event due again."""
    with _open_inbox(args) as inbox:
        source = inbox.stored_source(args.source)
        scope = "" if source is None else source.scope
        about: dict[str, Any] = {"tenant": tenant_of(scope), "environment": environment_of(scope)}
        with deciding(args, existing_store_url(args), "event.requeue", f"{args.source} {args.id}", **about):
            inbox.requeue(args.source, args.id)
    if args.json:
        print_json({"source": args.source, "event": args.id, "requeued": True})
    else:
        print_text(f"{args.id} of {args.source} is due again")
    return exit_codes.FINE


def _open_inbox(args: argparse.Namespace) -> Inbox:
    return Inbox(existing_store_url(args), stored_sources=True)


def _describe_handler(path: str) -> str:
    try:
        return f"{path} ({import_handler(path).guarantee})"
    except OncewardError as error:
        return f"{path}, not importable here: {error}"


def _send(url: str, source: str, made: SampleEvent) -> tuple[int, str]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigurationError("--url takes the address where the service listens, such as http://127.0.0.1:8600")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=_RESPONSE_SECONDS)
    try:
        connection.request("POST", f"{parts.path.rstrip('/')}/hooks/{source}", made.body, made.headers)
        response = connection.getresponse()
        return response.status, response.read(10_000).decode("utf-8", "replace")
    except OSError as error:
        raise ConfigurationError(
            f"{url} cannot be reached: {error.strerror or type(error).__name__}. Is the service running there?"
        ) from None
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
    document = _document(view)
    numbers = "" if view.highest is None else f"to {view.highest}"
    if view.missing:
        more = ", ..." if len(view.missing) > GAPS_SHOWN else ""
        numbers += f"; missing {', '.join(view.missing[:GAPS_SHOWN])}{more}"
    if view.rewinds:
        numbers += f"; {view.rewinds} rewound"
    return (
        view.name, view.scope, document["scheme"], ", ".join(document["secrets"]), document["handler"],
        view.events, view.waiting, view.dead, view.repeats, view.altered, view.renamed, numbers, document["lastAt"],
    )  # fmt: skip


def _scheme_name(scheme: Scheme) -> str:
    return next((name for name, kind in SCHEMES.items() if type(scheme) is kind), type(scheme).__name__)


_SOURCE = Argument("source", "the source's name", metavar="SOURCE")
_SCHEME = (
    Argument(
        "--tolerance",
        "how old a signed time may be",
        metavar="SECONDS",
        type=count_up_to(86_400),
        default_text="300 s",
    ),
    Argument("--signature-header", "with --scheme hmac: where the signature is", metavar="NAME"),
    Argument("--signature-prefix", "with --scheme hmac: the text before the signature", metavar="TEXT"),
    Argument(
        "--spelling", "with --scheme hmac: how the signature is encoded", choices=("hex", "base64"), default_text="hex"
    ),
    Argument("--id-header", "with --scheme hmac: the header with the event's id", metavar="NAME"),
    Argument("--id-member", "with --scheme hmac: the member of a JSON body with the event's id", metavar="NAME"),
    Argument(
        "--header-prefix",
        "with --scheme standard: what the headers begin with; svix for svix-id",
        metavar="TEXT",
        default_text="webhook",
    ),
)

COMMANDS = (
    Command(
        name="hooks add",
        summary="receive webhooks from a source, at /hooks/SOURCE; the same name again replaces it",
        run=_add,
        arguments=(
            Argument("name", "the name of the source, which its address ends with", metavar="SOURCE"),
            Argument("--scheme", "how the sender signs", choices=tuple(SCHEMES), required=True),
            Argument(
                "--secret-env",
                "an environment variable of the service with the secret; may be repeated",
                metavar="NAME",
                action="append",
                default=[],
            ),
            Argument(
                "--secret-file", "a file with the secret; may be repeated", metavar="PATH", action="append", default=[]
            ),
            Argument(
                "--handler",
                "the function that processes events, such as shop.hooks:paid",
                metavar="MODULE:FUNCTION",
                required=True,
            ),
            Argument("--tenant", "whose events they are", metavar="NAME", required=True),
            Argument("--environment", "live or test", metavar="NAME", default="live"),
            Argument(
                "--attempts", "how often an event is tried", metavar="N", type=count_up_to(1_000), default=ATTEMPTS
            ),
            Argument("--number-at", "where the number of an event is: header:NAME or member:PATH", metavar="PLACE"),
            Argument(
                "--keep", "how long ids are kept after an event is done; 0 for ever", metavar="SECONDS", type=seconds
            ),
            Argument(
                "--trust-unsigned-id",
                "where the id is not signed: treat equal messages with different ids as different events. Anyone "
                "who has seen one message can then have it processed as often as they like",
                action="store_true",
            ),
            *_SCHEME,
            *DECIDING,
            STORE,
        ),
        examples=(
            "onceward hooks add stripe --scheme stripe --secret-env STRIPE_SECRET --handler shop.hooks:paid "
            "--tenant acme",
            "onceward hooks add crm --scheme hmac --signature-header X-Signature --id-member id "
            "--secret-file /run/secrets/crm --handler shop.hooks:crm --tenant acme",
        ),
        exit_codes=exit_codes.TO_LIST,
        more="The secret itself is not stored here. Give --secret-env twice while you replace it. The handler is "
        "a function under @handler of onceward.messaging.inbox; the service imports it from --hooks-path, PYTHONPATH "
        "or what is installed. A running service takes the source within a second.",
    ),
    Command(
        name="hooks list",
        summary="show sources and what arrived from them: waiting, dead letters, repeats, and gaps in their numbers",
        run=_list,
        arguments=(STORE,),
        examples=("onceward hooks list",),
        exit_codes=exit_codes.TO_LIST,
        more="REPEATS are deliveries of events that had already arrived; many of them mean slow responses. "
        "RENAMED are deliveries of a message that had already arrived under another id, where the id is not signed.",
    ),
    Command(
        name="hooks test",
        summary="sign a sample event as its sender would, and show what would happen; with --url, send it",
        run=_test,
        arguments=(_SOURCE, Argument("--url", "where the service listens", metavar="URL"), STORE),
        examples=("onceward hooks test stripe", "onceward hooks test stripe --url http://127.0.0.1:8600"),
        exit_codes=exit_codes.TO_DECIDE,
        no="there is no such source, or the event would be refused",
        more="Without --url nothing is written or run. With it the event is a real one: its handler runs.",
    ),
    Command(
        name="hooks requeue",
        summary="process again an event that was given up",
        run=_requeue,
        arguments=(_SOURCE, Argument("id", "the event's id", metavar="EVENT"), *DECIDING, STORE),
        examples=("onceward hooks requeue stripe evt_1",),
        exit_codes=exit_codes.TO_DECIDE,
        no="there is no such dead letter or source",
        more="`onceward dead requeue` does the same for one of `onceward dead list`. An event in doubt is refused: "
        "reconcile its record first (the error says how).",
    ),
)
