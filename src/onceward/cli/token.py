"""
`onceward token`: let a program call the service, give it a new secret, or turn it away.

The secret is shown once, on stdout: it is kept nowhere. Everything else about it goes to stderr.
"""

from __future__ import annotations

import argparse

from onceward.cli import exit_codes
from onceward.cli.access_arguments import format_instant, open_access, tenant_name, token_document, token_id
from onceward.cli.command_parser import CommandGroup, add_command, add_group, count_up_to, seconds
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.store_argument import add_store_argument
from onceward.cli.text_tables import format_table
from onceward.service.access import NewToken, Role
from onceward.service.access.flows import LIST_MAX, OVERLAP_SECONDS

_EXAMPLE = "k3v9x2m8q4ab"
_HEADINGS = ("ID", "TENANT", "ENVIRONMENT", "ROLE", "DATABASES", "STATE", "CREATED", "LAST USED", "ENDS")


def add_to(parsers: CommandGroup) -> None:
    """Declare the commands."""
    group = add_group(parsers, "token", "let programs call the service: make, list, rotate and revoke tokens")
    codes = (exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.REFUSED, exit_codes.STORE)
    create = add_command(
        group,
        "create",
        "make a token; it is printed once, and kept nowhere",
        _create,
        examples=(
            "onceward token create --tenant acme",
            "onceward token create --tenant acme --environment test --role read --database shop --expires 86400",
        ),
        codes=codes,
        more="stdout has the token and nothing else: TOKEN=$(onceward token create --tenant acme)",
    )
    create.add_argument("--tenant", metavar="NAME", required=True, type=tenant_name, help="whose token it is")
    create.add_argument("--environment", choices=("live", "test"), default="live", help="live unless said otherwise")
    create.add_argument("--role", choices=tuple(map(str, Role)), default=str(Role.WRITE), help="write unless said")
    create.add_argument(
        "--database", metavar="NAME", action="append", help="only this database; several times for several"
    )
    create.add_argument("--expires", metavar="SECONDS", type=seconds, help="ends by itself after so long")
    listing = add_command(
        group,
        "list",
        "show tokens, in order of id; never their secrets",
        _list,
        examples=("onceward token list", "onceward token list --tenant acme --json"),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.STORE),
    )
    listing.add_argument("--tenant", metavar="NAME", type=tenant_name, help="only this tenant's")
    listing.add_argument("--limit", metavar="N", type=count_up_to(LIST_MAX), default=100, help="at most so many (100)")
    listing.add_argument("--after", metavar="ID", type=token_id, help="begin after this id")
    rotate = add_command(
        group,
        "rotate",
        "make a token's successor: a new secret, the same scope, so that a retry still replays",
        _rotate,
        examples=(f"onceward token rotate {_EXAMPLE}",),
        codes=codes,
        more="The old token lives on for the overlap, so that the new one can be rolled out. 0 ends it at once.",
    )
    rotate.add_argument(
        "--overlap", metavar="SECONDS", type=seconds, default=OVERLAP_SECONDS, help="an hour unless said otherwise"
    )
    revoke = add_command(
        group,
        "revoke",
        "end a token now; every process turns it away within a second",
        _revoke,
        examples=(f"onceward token revoke {_EXAMPLE}",),
        codes=codes,
        more="Again does no harm. A successor, if there is one, is another token and is left as it is.",
    )
    for command in (rotate, revoke):
        command.add_argument("id", metavar="ID", type=token_id, help="the token's id: the 12 characters after ow_live_")
    for command in (create, listing, rotate, revoke):
        add_store_argument(command)


def _create(asked: argparse.Namespace) -> int:
    """Make one."""
    with open_access(asked) as access:
        new = access.create_token(
            asked.tenant,
            environment=asked.environment,
            role=asked.role,
            databases=asked.database,
            expires=asked.expires,
        )
    if new is None:
        raise exit_codes.NoSuchTenant(
            f"there is no tenant {asked.tenant}; `onceward tenant create {asked.tenant}` makes it"
        )
    _show_once(new, as_json=asked.json)
    return exit_codes.FINE


def _rotate(asked: argparse.Namespace) -> int:
    """Make a successor."""
    with open_access(asked) as access:
        new = access.rotate_token(asked.id, overlap=asked.overlap)
        old = access.token(asked.id)
    if new is None or old is None:
        raise _no_such(asked.id)
    _show_once(new, as_json=asked.json)
    print_note(f"{old.id} ends at {format_instant(old.expires_at)}")
    return exit_codes.FINE


def _show_once(new: NewToken, *, as_json: bool) -> None:
    if as_json:
        print_json({"token": new.issued.text, **token_document(new.view)})
    else:
        print_text(new.issued.text)
    view = new.view
    print_note(
        f"{view.id}: {view.role} for {view.tenant} in {view.environment}. It is shown this once: keep it as a password"
    )


def _list(asked: argparse.Namespace) -> int:
    """Show one page."""
    with open_access(asked) as access:
        found = access.tokens(asked.tenant, after=asked.after or "", limit=asked.limit)
    following = found[-1].id if len(found) == asked.limit else None
    if asked.json:
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
        print_note(f"there may be more: go on with --after {following}")
    return exit_codes.FINE


def _revoke(asked: argparse.Namespace) -> int:
    """End one."""
    with open_access(asked) as access:
        ended = access.revoke_token(asked.id)
    if ended is None:
        raise _no_such(asked.id)
    if asked.json:
        print_json(token_document(ended))
    else:
        print_text(f"{ended.id} revoked at {format_instant(ended.revoked_at)}")
    return exit_codes.FINE


def _no_such(id: str) -> exit_codes.NoSuchToken:
    return exit_codes.NoSuchToken(
        f"there is no token {id} in this store; `onceward token list` shows those that there are"
    )
