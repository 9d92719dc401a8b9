"""
`onceward token`: let a program call the service, give it a new secret, or end its token.

The secret is shown once, on stdout: it is kept nowhere. Everything else about it goes to stderr.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onceward._core.durations import SECOND, format_micros
from onceward.audit import OpenDecision
from onceward.cli import exit_codes
from onceward.cli.access_arguments import format_instant, open_access, tenant_name, token_document, token_id
from onceward.cli.argument_types import limit, seconds
from onceward.cli.command_table import Argument, Command
from onceward.cli.decisions import DECIDING, deciding
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.store_argument import STORE, existing_store_url
from onceward.cli.text_tables import format_table
from onceward.service.access import Access, NewToken, Role, TokenView
from onceward.service.access.flows import LIST_MAX, OVERLAP_SECONDS

_EXAMPLE = "k3v9x2m8q4ab"
_HEADINGS = ("ID", "TENANT", "ENVIRONMENT", "ROLE", "DATABASES", "STATE", "CREATED", "LAST USED", "ENDS")


def _create(args: argparse.Namespace) -> int:
    """Make a token."""
    with open_access(args) as access:
        if access.tenant(args.tenant) is None:
            raise _no_such_tenant(args.tenant)
        about = {"tenant": args.tenant, "environment": args.environment}
        with deciding(args, existing_store_url(args), "token.create", f"tenant {args.tenant}", **about) as made:
            new = access.create_token(
                args.tenant,
                environment=args.environment,
                role=args.role,
                databases=args.database,
                expires=args.expires,
            )
            if new is None:
                raise _no_such_tenant(args.tenant)
            made.after = _facts(new.view)
    _show_once(new, as_json=args.json)
    return exit_codes.FINE


def _rotate(args: argparse.Namespace) -> int:
    """Make a successor."""
    with open_access(args) as access, _deciding_about(args, access, "token.rotate") as made:
        new = access.rotate_token(args.id, overlap=args.overlap)
        old = access.token(args.id)
        if new is None or old is None:
            raise _no_such(args.id)
        made.after = {**_facts(old), "successor": new.view.id}
    _show_once(new, as_json=args.json)
    print_note(f"{old.id} ends at {format_instant(old.expires_at)}")
    return exit_codes.FINE


@contextmanager
def _deciding_about(args: argparse.Namespace, access: Access, action: str) -> Iterator[OpenDecision]:
    """Write down a decision about one token, which must be there."""
    found = access.token(args.id)
    if found is None:
        raise _no_such(args.id)
    about: dict[str, Any] = {"tenant": found.tenant, "environment": found.environment, "before": _facts(found)}
    with deciding(args, existing_store_url(args), action, found.id, **about) as made:
        yield made


def _facts(view: TokenView) -> dict[str, Any]:
    """What the decision log says of a token; it has no secret, nor a digest of one."""
    document = token_document(view)
    return {name: document[name] for name in ("id", "role", "databases", "state", "expiresAt") if document[name]}


def _no_such_tenant(name: str) -> exit_codes.NoSuchTenant:
    return exit_codes.NoSuchTenant(f"there is no tenant {name}; `onceward tenant create {name}` makes it")


def _show_once(new: NewToken, *, as_json: bool) -> None:
    if as_json:
        print_json({"token": new.issued.text, **token_document(new.view)})
    else:
        print_text(new.issued.text)
    view = new.view
    print_note(
        f"{view.id}: {view.role} for {view.tenant} in {view.environment}. It is shown only once: keep it like a "
        f"password"
    )


def _list(args: argparse.Namespace) -> int:
    """Show one page."""
    with open_access(args) as access:
        found = access.tokens(args.tenant, after=args.after or "", limit=args.limit)
    following = found[-1].id if len(found) == args.limit else None
    if args.json:
        print_json({"tokens": [token_document(one) for one in found], "next": following})
        return exit_codes.FINE
    if found:
        rows = [
            (
                one.id,
                one.tenant,
                one.environment,
                one.role,
                "all" if one.databases is None else ", ".join(one.databases),
                one.state,
                format_instant(one.created_at),
                format_instant(one.last_used_at),
                format_instant(one.revoked_at or one.expires_at),
            )
            for one in found
        ]
        print_text(format_table(_HEADINGS, rows))
    else:
        print_note("no tokens")
    if following is not None:
        print_note(f"there may be more: continue with --after {following}")
    return exit_codes.FINE


def _revoke(args: argparse.Namespace) -> int:
    """End a token."""
    with open_access(args) as access, _deciding_about(args, access, "token.revoke") as made:
        ended = access.revoke_token(args.id)
        if ended is None:
            raise _no_such(args.id)
        made.after = _facts(ended)
    if args.json:
        print_json(token_document(ended))
    else:
        print_text(f"{ended.id} revoked at {format_instant(ended.revoked_at)}")
    return exit_codes.FINE


def _no_such(id: str) -> exit_codes.NoSuchToken:
    return exit_codes.NoSuchToken(f"there is no token {id} in this store; `onceward token list` lists the tokens")


_TOKEN = Argument("id", "the token's id: the 12 characters after ow_live_ or ow_test_", metavar="ID", type=token_id)

COMMANDS = (
    Command(
        name="token create",
        summary="make a token; it is printed once, and never stored",
        run=_create,
        arguments=(
            Argument("--tenant", "whose token it is", metavar="NAME", required=True, type=tenant_name),
            Argument("--environment", "live or test", choices=("live", "test"), default="live"),
            Argument("--role", "what it may do", choices=tuple(map(str, Role)), default=str(Role.WRITE)),
            Argument("--database", "only this database; may be repeated", metavar="NAME", action="append"),
            Argument(
                "--expires", "seconds until it ends", metavar="SECONDS", type=seconds, default_text="it does not end"
            ),
            *DECIDING,
            STORE,
        ),
        examples=(
            "onceward token create --tenant acme",
            "onceward token create --tenant acme --environment test --role read --database shop --expires 86400",
        ),
        exit_codes=exit_codes.TO_DECIDE,
        no="there is no such tenant",
        more="stdout gets the token and nothing else: TOKEN=$(onceward token create --tenant acme)",
    ),
    Command(
        name="token list",
        summary="list tokens by id, without their secrets",
        run=_list,
        arguments=(
            Argument("--tenant", "only this tenant's", metavar="NAME", type=tenant_name),
            limit(LIST_MAX, 100),
            Argument("--after", "begin after this id", metavar="ID", type=token_id),
            STORE,
        ),
        examples=("onceward token list", "onceward token list --tenant acme --json"),
        exit_codes=exit_codes.TO_LIST,
    ),
    Command(
        name="token rotate",
        summary="replace a token: a new secret with the same scope, so that retries still replay",
        run=_rotate,
        arguments=(
            _TOKEN,
            Argument(
                "--overlap",
                "how long the old token stays valid",
                metavar="SECONDS",
                type=seconds,
                default=OVERLAP_SECONDS,
                default_text=format_micros(round(OVERLAP_SECONDS * SECOND)),
            ),
            *DECIDING,
            STORE,
        ),
        examples=(f"onceward token rotate {_EXAMPLE}",),
        exit_codes=exit_codes.TO_DECIDE,
        no="there is no such token",
        more="The old token stays valid during the overlap, while you roll out the new one. 0 ends it at once.",
    ),
    Command(
        name="token revoke",
        summary="revoke a token; every process refuses it within a second",
        run=_revoke,
        arguments=(_TOKEN, *DECIDING, STORE),
        examples=(f"onceward token revoke {_EXAMPLE}",),
        exit_codes=exit_codes.TO_DECIDE,
        no="there is no such token",
        more="Running it again is safe. A successor is another token, and stays valid.",
    ),
)
