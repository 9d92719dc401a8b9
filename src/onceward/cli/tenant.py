"""
`onceward tenant`: who may have tokens, what they have paid, what they may hold; and how all of it is erased.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from onceward.audit import OpenDecision
from onceward.cli import exit_codes
from onceward.cli.access_arguments import (
    amount,
    format_instant,
    open_access,
    quota,
    tenant_document,
    tenant_name,
)
from onceward.cli.argument_types import limit
from onceward.cli.command_table import Argument, Command
from onceward.cli.decisions import DECIDING, deciding, operator_of
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.progress import asking, progress_of
from onceward.cli.store_argument import STORE, existing_store_url
from onceward.cli.tenant_data import DATABASES, ROWS, erase_decisions, erase_tenant_data
from onceward.cli.tenant_databases import FOLDER, SQL, databases_folder, sql_urls
from onceward.cli.tenant_prepare import PREPARE_COMMANDS
from onceward.cli.text_tables import format_facts, format_table
from onceward.service.access import Access, ErasureProgress, Tenant, format_units, top_up_once
from onceward.service.access.flows import LIST_MAX

_HEADINGS = ("TENANT", "BALANCE", "RESERVED", "TOKENS", "RECORDS", "BYTES", "CREATED", "")
_LEFT = object()
"""The value of a quota that was not typed: it is left as it is."""


def _create(args: argparse.Namespace) -> int:
    """Make a tenant."""
    given = (args.records, args.bytes, args.databases)
    records, size, databases = (None if limit is _LEFT else limit for limit in given)
    with open_access(args, create=True) as access:
        before = access.tenant(args.name)
        with _deciding_about(args, "tenant.create", before) as made:
            is_new = access.create_tenant(
                args.name, prepaid=args.prepaid, quota_records=records, quota_bytes=size, quota_databases=databases
            )
            made.after = {"new": is_new, **_facts(access.tenant(args.name))}
        if not is_new:
            print_note(f"the tenant {args.name} already exists; nothing was changed")
        return _print_tenant(_find_tenant(access, args.name), as_json=args.json)


def _list(args: argparse.Namespace) -> int:
    """Show one page."""
    with open_access(args) as access:
        found = access.tenants(after=args.after or "", limit=args.limit)
    following = found[-1].name if len(found) == args.limit else None
    if args.json:
        print_json({"tenants": [tenant_document(one) for one in found], "next": following})
        return exit_codes.FINE
    if found:
        print_text(format_table(_HEADINGS, [_row(one) for one in found]))
    else:
        print_note("no tenants")
    if following is not None:
        print_note(f"there may be more: continue with --after {following}")
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


def _show(args: argparse.Namespace) -> int:
    """Show a tenant, or when it was erased."""
    with open_access(args) as access:
        found = access.tenant(args.name)
        grave = access.tombstone(args.name) if found is None else None
    if grave is not None and grave.finished_at is not None:
        document = {"name": args.name, "erasedAt": format_instant(grave.finished_at)}
        if args.json:
            print_json(document)
        else:
            print_text(format_facts([("name", args.name), ("erased at", document["erasedAt"])]))
        return exit_codes.FINE
    if found is None:
        raise _no_such(args.name)
    return _print_tenant(found, as_json=args.json)


def _topup(args: argparse.Namespace) -> int:
    """Add to a balance."""
    url = existing_store_url(args)
    with (
        open_access(args) as access,
        _deciding_about(args, "tenant.topup", _find_tenant(access, args.name)) as made,
    ):
        outcome = top_up_once(access, url, args.name, args.amount, args.key, begin_prepaid=args.prepaid)
        if outcome is None:
            raise _no_such(args.name)
        document: dict[str, Any] = {**outcome.value, "replayed": outcome.replayed}
        made.after = {name: value for name, value in document.items() if name != "tenant"}
    if outcome.replayed:
        print_note("this key was used before: nothing was added, and this is the first result")
    if args.json:
        print_json(document)
    else:
        print_text(
            format_facts([("tenant", args.name), ("added", format_units(args.amount)), ("balance", _balance(document))])
        )
    return exit_codes.FINE


def _balance(document: dict[str, Any]) -> str:
    return format_units(document["balanceMicro"])


def _quota(args: argparse.Namespace) -> int:
    """Set limits."""
    if args.records is _LEFT and args.bytes is _LEFT and args.databases is _LEFT:
        raise exit_codes.UsageError(
            "no limit was given. Add --records N, --bytes N, --databases N, or several; `none` removes a limit"
        )
    with open_access(args) as access:
        found = _find_tenant(access, args.name)
        records = found.quota_records if args.records is _LEFT else args.records
        size = found.quota_bytes if args.bytes is _LEFT else args.bytes
        databases = found.quota_databases if args.databases is _LEFT else args.databases
        with _deciding_about(args, "tenant.quota", found) as made:
            if not access.set_quota(args.name, records=records, bytes=size, databases=databases):
                raise _no_such(args.name)
            made.after = {"quotaRecords": records, "quotaBytes": size, "quotaDatabases": databases}
        return _print_tenant(_find_tenant(access, args.name), as_json=args.json)


def _erase(args: argparse.Namespace) -> int:
    """Erase one, after its name was typed twice."""
    with open_access(args) as access:
        before = access.tenant(args.name)
        if before is None and access.tombstone(args.name) is None:
            raise _no_such(args.name)
        _confirm(args)
        folder, sql = databases_folder(args), sql_urls(args)
        counted = Counter[str]()
        with _deciding_about(args, "tenant.erase", before) as made:
            done = _erase_all(args, access, (folder, sql), counted)
            made.after = {"records": done.records, "rows": counted[ROWS], "databases": counted[DATABASES]}
        grave = access.tombstone(args.name)
    document = {
        "name": args.name,
        "records": done.records,
        "databases": None if folder is None and not sql else counted[DATABASES],
        "others": done.others,
        "rows": counted[ROWS],
        "erasedAt": format_instant(None if grave is None else grave.finished_at),
    }
    if folder is None and not sql:
        print_note(
            "no databases were erased: no service folder was found beside this store. If a service "
            "keeps databases for this tenant, run the command again with --folder PATH"
        )
    if args.json:
        print_json(document)
    else:
        shown = [("name", args.name), ("records", done.records), ("databases", document["databases"])]
        shown += [("deltas, events and notes", counted[ROWS]), ("tokens and money", done.others)]
        print_text(format_facts([*shown, ("erased at", document["erasedAt"])]))
    return exit_codes.FINE


def _erase_all(
    args: argparse.Namespace, access: Access, databases: tuple[Path | None, list[str]], counted: Counter[str]
) -> ErasureProgress:
    """Erase everything, databases in a folder and in PostgreSQL too."""
    done = ErasureProgress(0, 0)
    url, operator = existing_store_url(args), operator_of(args)
    besides = partial(erase_tenant_data, url, *databases, args.name, counted, operator)
    with progress_of("erasing") as progress:
        for done in access.erase_tenant(args.name, besides=besides):
            progress(0.0, f"looked at {done.looked_at:,} records, erased {done.records:,} of this tenant")
    erase_decisions(url, args.name, operator)  # What another operator decided about it meanwhile.
    return done


@contextmanager
def _deciding_about(args: argparse.Namespace, action: str, before: Tenant | None) -> Iterator[OpenDecision]:
    """Write down a decision about the tenant that was named."""
    url, known = existing_store_url(args), _facts(before)
    with deciding(args, url, action, f"tenant {args.name}", tenant=args.name, before=known) as made:
        yield made


def _facts(tenant: Tenant | None) -> dict[str, Any]:
    """What the decision log says of a tenant; its name is not part of it."""
    if tenant is None:
        return {}
    document = tenant_document(tenant)
    return {name: document[name] for name in ("balanceMicro", "quotaRecords", "quotaBytes", "tokens")}


def _confirm(args: argparse.Namespace) -> None:
    typed = args.yes
    if typed is None:
        print_note(
            f"This erases every record, dead letter, database, delta, event, note, token and balance of {args.name}. "
            "It cannot be undone.\nType the tenant's name to continue:"
        )
        with asking():
            typed = sys.stdin.readline().strip()
    if typed != args.name:
        raise exit_codes.UsageError(
            "nothing was erased: that is not the tenant's name. Type the name, or pass it as --yes NAME"
        )


def _find_tenant(access: Access, name: str) -> Tenant:
    found = access.tenant(name)
    if found is None:
        raise _no_such(name)
    return found


def _print_tenant(tenant: Tenant, *, as_json: bool) -> int:
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
                ("databases", None if tenant.quota_databases is None else f"at most {tenant.quota_databases:,}"),
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
    return exit_codes.NoSuchTenant(f"there is no tenant {name} in this store; `onceward tenant list` lists the tenants")


_TENANT = Argument("name", "the tenant: a-z, 0-9, '.', '_' and '-'", metavar="NAME", type=tenant_name)
_QUOTAS = (
    Argument("--records", "how many records it may hold, or none for no limit", metavar="N", type=quota, default=_LEFT),
    Argument(
        "--bytes",
        "how many bytes of databases and results, or none for no limit",
        metavar="N",
        type=quota,
        default=_LEFT,
    ),
    Argument(
        "--databases", "how many databases, or none for what the service allows", metavar="N", type=quota, default=_LEFT
    ),
)

COMMANDS = (
    Command(
        name="tenant create",
        summary="make a tenant; an existing one is left as it is",
        run=_create,
        arguments=(
            _TENANT,
            Argument("--prepaid", "the tenant pays in advance: nothing runs without a balance", action="store_true"),
            *_QUOTAS,
            *DECIDING,
            STORE,
        ),
        examples=("onceward tenant create acme", "onceward tenant create globex --prepaid --records 100000"),
        exit_codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.REFUSED, exit_codes.STORE),
        more="The first tenant also makes the tables for tenants and tokens, beside the records.",
    ),
    Command(
        name="tenant list",
        summary="list tenants by name",
        run=_list,
        arguments=(
            limit(LIST_MAX, 100),
            Argument("--after", "begin after this name", metavar="NAME", type=tenant_name),
            STORE,
        ),
        examples=("onceward tenant list",),
        exit_codes=exit_codes.TO_LIST,
    ),
    Command(
        name="tenant show",
        summary="show one tenant",
        run=_show,
        arguments=(_TENANT, STORE),
        examples=("onceward tenant show acme",),
        exit_codes=exit_codes.TO_DECIDE,
        no="there is no such tenant",
    ),
    Command(
        name="tenant topup",
        summary="add to a prepaid balance; with the same key, once",
        run=_topup,
        arguments=(
            _TENANT,
            Argument("amount", "units, with at most six decimals", metavar="AMOUNT", type=amount),
            Argument("--key", "names this top-up, such as the invoice", metavar="KEY", required=True),
            Argument("--prepaid", "make the tenant pay in advance from now on", action="store_true"),
            *DECIDING,
            STORE,
        ),
        examples=("onceward tenant topup acme 25.50 --key invoice-2026-11",),
        exit_codes=exit_codes.TO_DECIDE,
        no="there is no such tenant",
        more="Run it as often as you like: the same key adds once, and gives the same result.",
    ),
    Command(
        name="tenant quota",
        summary="set how many records, bytes and databases a tenant may hold",
        run=_quota,
        arguments=(_TENANT, *_QUOTAS, *DECIDING, STORE),
        examples=("onceward tenant quota acme --records 100000", "onceward tenant quota acme --bytes none"),
        exit_codes=exit_codes.TO_DECIDE,
        no="there is no such tenant",
        more="Running services follow within seconds. What is already stored is not touched.",
    ),
    Command(
        name="tenant erase",
        summary="erase a tenant: records, dead letters, databases, ledger, hooks, journal, tokens. It cannot be undone",
        run=_erase,
        arguments=(
            _TENANT,
            Argument("--yes", "the tenant's name again, to confirm without being asked", metavar="NAME"),
            FOLDER,
            SQL,
            *DECIDING,
            STORE,
        ),
        examples=("onceward tenant erase acme --yes acme",),
        exit_codes=(*exit_codes.TO_DECIDE, exit_codes.INTERRUPTED),
        no="there is no such tenant",
        more=(
            "Its tokens end first. If it is interrupted, run it again and it continues. A tombstone stays: a "
            "digest of the name, and the time."
        ),
    ),
    *PREPARE_COMMANDS,
)
