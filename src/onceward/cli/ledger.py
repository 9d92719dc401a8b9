"""
`onceward ledger`: is every row of a ledger what it was when it was written, and who its customers are.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import TYPE_CHECKING

from onceward._core.errors import ConfigurationError
from onceward._core.keys import ENVIRONMENTS
from onceward.cli import exit_codes
from onceward.cli.access_arguments import tenant_name
from onceward.cli.command_parser import CommandGroup, add_command, add_group
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.store_argument import add_store_argument, existing_store_url
from onceward.cli.text_tables import escape_invisible, format_table

if TYPE_CHECKING:
    from onceward.service.ledger.ledger import Ledger
    from onceward.service.ledger.ledger_audit import AuditReport

_HEADINGS = ("TABLE", "ROW", "WHAT IS WRONG")


def add_to(parsers: CommandGroup) -> None:
    """Declare the commands."""
    group = add_group(parsers, "ledger", "the balance ledger: walk its chain, add customers")
    verify = add_command(
        group,
        "verify",
        "walk the whole ledger: every entry, every checkpoint, and the chains of both",
        _verify,
        examples=("onceward ledger verify",),
        codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.STORE),
        more="A row that is not what it was when it was written is named, and the exit code is 1. It only reads, and a "
        "running service is not held up.",
    )
    customer = add_command(
        group,
        "customer",
        "add a customer to a tenant's ledger; one that is there is left as it is",
        _customer,
        examples=("onceward ledger customer acme cus_17 --environment live",),
        codes=(exit_codes.FINE, exit_codes.USAGE, exit_codes.STORE),
        more="Needed only where the service takes deltas for known customers alone (--ledger-customers known).",
    )
    customer.add_argument("tenant", metavar="TENANT", type=tenant_name, help="whose ledger")
    customer.add_argument("customer", metavar="CUSTOMER", help="the customer's id")
    customer.add_argument("--environment", choices=ENVIRONMENTS, required=True, help="live or test")
    for command in (verify, customer):
        add_store_argument(command)


def _verify(asked: argparse.Namespace) -> int:
    with _opened(asked, create=False) as ledger:
        from onceward.service.ledger.ledger_audit import audit

        found = ledger.run(audit())
    code = exit_codes.NO if found.findings else exit_codes.FINE
    if asked.json:
        print_json(_document(found))
        return code
    for finding in found.findings[:1]:
        print_text(format_table(_HEADINGS, ((one.table, one.row, one.fault) for one in found.findings), limit=None))
        print_note(f"{len(found.findings)} findings; the first is {escape_invisible(finding.row)} of {finding.table}")
    if not found.findings:
        print_text(
            f"every row is what it was: {found.customers} customers, {found.entries} entries, {found.checkpoints} "
            "checkpoints"
        )
    return code


def _customer(asked: argparse.Namespace) -> int:
    with _opened(asked, create=True) as ledger:
        from onceward.service.ledger import LedgerScope

        place = LedgerScope.of(asked.environment, asked.tenant)
        is_new = ledger.run(ledger.flows.add_customer(place, asked.customer))
    if asked.json:
        print_json({"customer": asked.customer, "added": is_new})
    elif is_new:
        print_text(f"{asked.customer} is a customer of {asked.environment}:{asked.tenant}")
    else:
        print_note(f"{asked.customer} is a customer already; it was left as it is")
    return exit_codes.FINE


def _opened(asked: argparse.Namespace, *, create: bool) -> Ledger:
    for needed in ("starlette", "msgspec"):
        if find_spec(needed) is None:
            raise ConfigurationError(f"the ledger needs {needed}: pip install 'onceward[serve]'")
    from onceward.service.ledger import Ledger

    return Ledger.open(existing_store_url(asked), create=create)


def _document(found: AuditReport) -> dict[str, object]:
    return {
        "customers": found.customers,
        "entries": found.entries,
        "checkpoints": found.checkpoints,
        "findings": [{"table": one.table, "row": one.row, "fault": one.fault} for one in found.findings],
    }
