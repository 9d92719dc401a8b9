"""
`onceward ledger`: check that no row of a ledger has changed since it was written, and add customers.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import TYPE_CHECKING

from onceward._core.errors import ConfigurationError
from onceward._core.keys import ENVIRONMENTS
from onceward.cli import exit_codes
from onceward.cli.access_arguments import tenant_name
from onceward.cli.command_table import Argument, Command
from onceward.cli.decisions import DECIDING, deciding
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.progress import progress_of
from onceward.cli.store_argument import STORE, existing_store_url
from onceward.cli.text_tables import escape_invisible, format_table

if TYPE_CHECKING:
    from onceward.service.ledger.ledger import Ledger
    from onceward.service.ledger.ledger_audit import AuditReport

_HEADINGS = ("TABLE", "ROW", "WHAT IS WRONG")


def _verify(args: argparse.Namespace) -> int:
    with _open_ledger(args, create=False) as ledger:
        from onceward.service.ledger.ledger_audit import audit

        with progress_of("walking the ledger") as progress:
            found = ledger.run(audit(progress))
    code = exit_codes.NO if found.findings else exit_codes.FINE
    if args.json:
        print_json(_document(found))
        return code
    for finding in found.findings[:1]:
        print_text(format_table(_HEADINGS, ((one.table, one.row, one.fault) for one in found.findings), limit=None))
        print_note(f"{len(found.findings)} findings; the first is {escape_invisible(finding.row)} of {finding.table}")
    if not found.findings:
        print_text(
            f"every row is as it was written: {found.customers} customers, {found.entries} entries, "
            f"{found.checkpoints} "
            "checkpoints"
        )
    return code


def _customer(args: argparse.Namespace) -> int:
    with _open_ledger(args, create=True) as ledger:
        from onceward.service.ledger import LedgerScope

        place = LedgerScope.of(args.environment, args.tenant)
        about = {"tenant": args.tenant, "environment": args.environment}
        with deciding(args, existing_store_url(args), "customer.add", args.customer, **about) as made:
            is_new = ledger.run(ledger.flows.add_customer(place, args.customer))
            made.after = {"new": is_new}
    if args.json:
        print_json({"customer": args.customer, "added": is_new})
    elif is_new:
        print_text(f"{args.customer} is a customer of {args.environment}:{args.tenant}")
    else:
        print_note(f"{args.customer} is already a customer; nothing was changed")
    return exit_codes.FINE


def _open_ledger(args: argparse.Namespace, *, create: bool) -> Ledger:
    for needed in ("starlette", "msgspec"):
        if find_spec(needed) is None:
            raise ConfigurationError(f"the ledger needs {needed}: pip install 'onceward[serve]'")
    from onceward.service.ledger import Ledger

    return Ledger.open(existing_store_url(args), create=create)


def _document(found: AuditReport) -> dict[str, object]:
    return {
        "customers": found.customers,
        "entries": found.entries,
        "checkpoints": found.checkpoints,
        "findings": [{"table": one.table, "row": one.row, "fault": one.fault} for one in found.findings],
    }


COMMANDS = (
    Command(
        name="ledger verify",
        summary="verify the whole ledger: every entry, every checkpoint, and both chains",
        run=_verify,
        arguments=(STORE,),
        examples=("onceward ledger verify",),
        exit_codes=exit_codes.TO_FIND,
        no="a row was changed, added or removed",
        more="If a row has changed since it was written, it is named, and the exit code is 1. This only reads, "
        "and does not hold up a running service.",
    ),
    Command(
        name="ledger customer",
        summary="add a customer to a tenant's ledger; an existing customer is left as it is",
        run=_customer,
        arguments=(
            Argument("tenant", "whose ledger", metavar="TENANT", type=tenant_name),
            Argument("customer", "the customer's id", metavar="CUSTOMER"),
            Argument("--environment", "live or test", choices=ENVIRONMENTS, required=True),
            *DECIDING,
            STORE,
        ),
        examples=("onceward ledger customer acme cus_17 --environment live",),
        exit_codes=exit_codes.TO_LIST,
        more="Needed only where the service takes deltas for known customers alone (--ledger-customers known).",
    ),
)
