"""
`onceward tenant`: who may have tokens, what they have paid, what they may hold; and how all of it is erased.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from functools import partial
from typing import Any

from onceward.cli import exit_codes
from onceward.cli.access_arguments import (
    amount,
    format_instant,
    open_access,
    quota,
    tenant_document,
    tenant_name,
)
from onceward.cli.command_parser import CommandGroup, CommandParser, add_command, add_group, count_up_to
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.store_argument import add_store_argument, existing_store_url
from onceward.cli.tenant_data import DATABASES, ROWS, erase_tenant_data
from onceward.cli.tenant_databases import add_folder_argument, databases_folder
from onceward.cli.text_tables import format_facts, format_table
from onceward.service.access import Access, ErasureProgress, Tenant, format_units, top_up_once
from onceward.service.access.flows import LIST_MAX

TELL_EVERY = 10_000
"""Records looked at between two words about the progress of an erasure."""

_HEADINGS = ("TENANT", "BALANCE", "RESERVED", "TOKENS", "RECORDS", "BYTES", "CREATED", "")
_CODES = (exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.REFUSED, exit_codes.STORE)
_LEFT = object()
"""A limit that was not spoken of."""


def add_to(parsers: CommandGroup) -> None:
    """Declare the commands."""
    group = add_group(parsers, "tenant", "who may have tokens: balances, quotas, and erasing a tenant for good")
    create = _add_about_one(
        group,
        "create",
        "make a tenant; one that is there is left as it is",
        _create,
        examples=("onceward tenant create acme", "onceward tenant create globex --prepaid --records 100000"),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.REFUSED, exit_codes.STORE),
        more="The first one makes the tables of tenants and tokens, beside the records.",
    )
    create.add_argument("--prepaid", action="store_true", help="pays in advance: nothing runs without a balance")
    listing = add_command(
        group,
        "list",
        "show tenants, in order of name",
        _list,
        examples=("onceward tenant list",),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.STORE),
    )
    listing.add_argument("--limit", metavar="N", type=count_up_to(LIST_MAX), default=100, help="at most so many (100)")
    listing.add_argument("--after", metavar="NAME", type=tenant_name, help="begin after this name")
    show = _add_about_one(
        group, "show", "show one tenant", _show, examples=("onceward tenant show acme",), codes=_CODES
    )
    topup = _add_about_one(
        group,
        "topup",
        "add to a prepaid balance; with the same key, once",
        _topup,
        examples=("onceward tenant topup acme 25.50 --key invoice-2026-11",),
        codes=_CODES,
        more="Send it again as often as you like: the same key adds once, and gives the same answer.",
    )
    topup.add_argument("amount", metavar="AMOUNT", type=amount, help="units, with at most six decimals")
    topup.add_argument("--key", metavar="KEY", required=True, help="names this top-up, such as the invoice")
    topup.add_argument("--prepaid", action="store_true", help="from now on it pays in advance, if it did not")
    quotas = _add_about_one(
        group,
        "quota",
        "set how many records and bytes a tenant may hold",
        _quota,
        examples=("onceward tenant quota acme --records 100000", "onceward tenant quota acme --bytes none"),
        codes=_CODES,
        more="Running services heed it within seconds. What is there already is not touched.",
    )
    for command in (create, quotas):
        command.add_argument("--records", metavar="N", type=quota, default=_LEFT, help="at most so many, or none")
        command.add_argument("--bytes", metavar="N", type=quota, default=_LEFT, help="of stored answers, or none")
    erase = _add_about_one(
        group,
        "erase",
        "erase a tenant: records, dead letters, databases, ledger, hooks, journal, tokens. There is no way back",
        _erase,
        examples=("onceward tenant erase acme --yes acme",),
        codes=(*_CODES, exit_codes.INTERRUPTED),
        more=(
            "Its tokens end first. Interrupted, it goes on when typed again. A tombstone stays: a digest of the name, "
            "and when."
        ),
    )
    erase.add_argument("--yes", metavar="NAME", help="the tenant's name once more, where nobody can be asked")
    add_folder_argument(erase)
    for command in (create, listing, show, topup, quotas, erase):
        add_store_argument(command)


def _add_about_one(group: CommandGroup, name: str, *words: Any, **more: Any) -> CommandParser:
    """A command about one tenant."""
    command = add_command(group, name, *words, **more)
    command.add_argument("name", metavar="NAME", type=tenant_name, help="the tenant: a-z, 0-9, '.', '_' and '-'")
    return command


def _create(asked: argparse.Namespace) -> int:
    """Make one."""
    records, size = (None if limit is _LEFT else limit for limit in (asked.records, asked.bytes))
    with open_access(asked, create=True) as access:
        is_new = access.create_tenant(asked.name, prepaid=asked.prepaid, quota_records=records, quota_bytes=size)
        if not is_new:
            print_note(f"there is a tenant {asked.name} already; it was left as it is")
        return _tell(_the_tenant(access, asked.name), as_json=asked.json)


def _list(asked: argparse.Namespace) -> int:
    """Show one page."""
    with open_access(asked) as access:
        found = access.tenants(after=asked.after or "", limit=asked.limit)
    following = found[-1].name if len(found) == asked.limit else None
    if asked.json:
        print_json({"tenants": [tenant_document(one) for one in found], "next": following})
        return exit_codes.FINE
    if found:
        print_text(format_table(_HEADINGS, [_row(one) for one in found]))
    else:
        print_note("no tenants")
    if following is not None:
        print_note(f"there may be more: go on with --after {following}")
    return exit_codes.FINE


def _row(tenant: Tenant) -> tuple[object, ...]:
    return (
        tenant.name,
        None if tenant.balance is None else format_units(tenant.balance),
        format_units(tenant.reserved) if tenant.reserved else None,
        tenant.tokens,
        _of(tenant.used_records, tenant.quota_records),
        _of(tenant.used_bytes, tenant.quota_bytes),
        format_instant(tenant.created_at),
        "being erased" if tenant.erasing_at is not None else None,
    )


def _show(asked: argparse.Namespace) -> int:
    """Show one, or when it was erased."""
    with open_access(asked) as access:
        found = access.tenant(asked.name)
        grave = access.tombstone(asked.name) if found is None else None
    if grave is not None and grave.finished_at is not None:
        document = {"name": asked.name, "erasedAt": format_instant(grave.finished_at)}
        if asked.json:
            print_json(document)
        else:
            print_text(format_facts([("name", asked.name), ("erased at", document["erasedAt"])]))
        return exit_codes.FINE
    if found is None:
        raise _no_such(asked.name)
    return _tell(found, as_json=asked.json)


def _topup(asked: argparse.Namespace) -> int:
    """Add to a balance."""
    url = existing_store_url(asked)
    with open_access(asked) as access:
        outcome = top_up_once(access, url, asked.name, asked.amount, asked.key, begin_prepaid=asked.prepaid)
    if outcome is None:
        raise _no_such(asked.name)
    document: dict[str, Any] = {**outcome.value, "replayed": outcome.replayed}
    if outcome.replayed:
        print_note("this key was used before: nothing was added, and this is the answer from then")
    if asked.json:
        print_json(document)
    else:
        print_text(
            format_facts(
                [("tenant", asked.name), ("added", format_units(asked.amount)), ("balance", _balance(document))]
            )
        )
    return exit_codes.FINE


def _balance(document: dict[str, Any]) -> str:
    return format_units(document["balanceMicro"])


def _quota(asked: argparse.Namespace) -> int:
    """Set limits."""
    if asked.records is _LEFT and asked.bytes is _LEFT:
        raise exit_codes.UsageError("which limit? Give --records N, --bytes N, or both; `none` takes one away")
    with open_access(asked) as access:
        found = _the_tenant(access, asked.name)
        records = found.quota_records if asked.records is _LEFT else asked.records
        size = found.quota_bytes if asked.bytes is _LEFT else asked.bytes
        if not access.set_quota(asked.name, records=records, bytes=size):
            raise _no_such(asked.name)
        return _tell(_the_tenant(access, asked.name), as_json=asked.json)


def _erase(asked: argparse.Namespace) -> int:
    """Erase one, after its name was typed twice."""
    with open_access(asked) as access:
        if access.tenant(asked.name) is None and access.tombstone(asked.name) is None:
            raise _no_such(asked.name)
        _confirm(asked)
        folder = databases_folder(asked)
        done, told, counted = ErasureProgress(0, 0), 0, Counter[str]()
        besides = partial(erase_tenant_data, existing_store_url(asked), folder, asked.name, counted)
        for done in access.erase_tenant(asked.name, besides=besides):
            if done.looked_at >= told + TELL_EVERY:
                told = done.looked_at
                print_note(f"looked at {done.looked_at:,} records, erased {done.records:,} of this tenant")
        grave = access.tombstone(asked.name)
    document = {
        "name": asked.name,
        "records": done.records,
        "databases": None if folder is None else counted[DATABASES],
        "others": done.others,
        "rows": counted[ROWS],
        "erasedAt": format_instant(None if grave is None else grave.finished_at),
    }
    if folder is None:
        print_note(
            "Databases were not looked for: this store has no folder of a service beside it. If a service keeps "
            "databases for this tenant, type the command again with --folder PATH"
        )
    if asked.json:
        print_json(document)
    else:
        shown = [("name", asked.name), ("records", done.records), ("databases", document["databases"])]
        shown += [("deltas, events and notes", counted[ROWS]), ("tokens and money", done.others)]
        print_text(format_facts([*shown, ("erased at", document["erasedAt"])]))
    return exit_codes.FINE


def _confirm(asked: argparse.Namespace) -> None:
    typed = asked.yes
    if typed is None:
        print_note(
            f"This erases every record, dead letter, database, delta, event, note, token and balance of {asked.name}. "
            "There is no way back.\nType the tenant's name to go on:"
        )
        typed = sys.stdin.readline().strip()
    if typed != asked.name:
        raise exit_codes.UsageError(
            "that is not the tenant's name, so nothing was erased; type it, or pass it as --yes NAME"
        )


def _the_tenant(access: Access, name: str) -> Tenant:
    found = access.tenant(name)
    if found is None:
        raise _no_such(name)
    return found


def _tell(tenant: Tenant, *, as_json: bool) -> int:
    if as_json:
        print_json(tenant_document(tenant))
        return exit_codes.FINE
    limited = tenant.quota_records is not None or tenant.quota_bytes is not None
    print_text(
        format_facts(
            [
                ("name", tenant.name),
                ("created at", format_instant(tenant.created_at)),
                ("balance", "not prepaid" if tenant.balance is None else format_units(tenant.balance)),
                ("reserved", format_units(tenant.reserved) if tenant.reserved else None),
                ("records", _of(tenant.used_records, tenant.quota_records)),
                ("bytes", _of(tenant.used_bytes, tenant.quota_bytes)),
                ("counted at", format_instant(tenant.counted_at) if limited else None),
                ("tokens", tenant.tokens),
                ("being erased since", format_instant(tenant.erasing_at)),
            ]
        )
    )
    return exit_codes.FINE


def _of(used: int, limit: int | None) -> str | None:
    return None if limit is None else f"{used:,} of {limit:,}"


def _no_such(name: str) -> exit_codes.NoSuchTenant:
    return exit_codes.NoSuchTenant(
        f"there is no tenant {name} in this store; `onceward tenant list` shows those that there are"
    )
