"""
`onceward ledger`: is every row of a ledger what it was when it was written, and who its customers are.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import TYPE_CHECKING

from onceward._core.errors import ConfigurationError
from onceward._core.keys import ENVIRONMENTS
from onceward.cli import exits
from onceward.cli.access import tenant_name
from onceward.cli.opening import add_store_argument, existing_url_of
from onceward.cli.parsing import Groups, add_command, add_group
from onceward.cli.printing import note, say, say_document
from onceward.cli.tables import table, visible

if TYPE_CHECKING:
    from onceward.service.ledger.auditing import Audited
    from onceward.service.ledger.shells import Ledger

_HEADINGS = ("TABLE", "ROW", "WHAT IS WRONG")


def add_to(parsers: Groups) -> None:
    """Declare the commands."""
    group = add_group(parsers, "ledger", "the balance ledger: walk its chain, add customers")
    verify = add_command(
        group,
        "verify",
        "walk the whole ledger: every entry, every checkpoint, and the chains of both",
        _verify,
        examples=("onceward ledger verify",),
        codes=(exits.FINE, exits.NO, exits.USAGE, exits.STORE),
        more="A row that is not what it was when it was written is named, and the exit code is 1. It only reads, and a "
        "running service is not held up.",
    )
    customer = add_command(
        group,
        "customer",
        "add a customer to a tenant's ledger; one that is there is left as it is",
        _customer,
        examples=("onceward ledger customer acme cus_17 --environment live",),
        codes=(exits.FINE, exits.USAGE, exits.STORE),
        more="Needed only where the service takes deltas for known customers alone (--ledger-customers known).",
    )
    customer.add_argument("tenant", metavar="TENANT", type=tenant_name, help="whose ledger")
    customer.add_argument("customer", metavar="CUSTOMER", help="the customer's id")
    customer.add_argument("--environment", choices=ENVIRONMENTS, required=True, help="live or test")
    for command in (verify, customer):
        add_store_argument(command)


def _verify(asked: argparse.Namespace) -> int:
    with _opened(asked, create=False) as ledger:
        from onceward.service.ledger.auditing import audit

        found = ledger.run(audit())
    code = exits.NO if found.findings else exits.FINE
    if asked.json:
        say_document(_document(found))
        return code
    for finding in found.findings[:1]:
        say(table(_HEADINGS, ((one.table, one.row, one.fault) for one in found.findings), limit=None))
        note(f"{len(found.findings)} findings; the first is {visible(finding.row)} of {finding.table}")
    if not found.findings:
        say(
            f"every row is what it was: {found.customers} customers, {found.entries} entries, {found.checkpoints} "
            "checkpoints"
        )
    return code


def _customer(asked: argparse.Namespace) -> int:
    with _opened(asked, create=True) as ledger:
        from onceward.service.ledger import Place

        place = Place.of(asked.environment, asked.tenant)
        is_new = ledger.run(ledger.flows.add_customer(place, asked.customer))
    if asked.json:
        say_document({"customer": asked.customer, "added": is_new})
    elif is_new:
        say(f"{asked.customer} is a customer of {asked.environment}:{asked.tenant}")
    else:
        note(f"{asked.customer} is a customer already; it was left as it is")
    return exits.FINE


def _opened(asked: argparse.Namespace, *, create: bool) -> Ledger:
    for needed in ("starlette", "msgspec"):
        if find_spec(needed) is None:
            raise ConfigurationError(f"the ledger needs {needed}: pip install 'onceward[serve]'")
    from onceward.service.ledger import Ledger

    return Ledger.open(existing_url_of(asked), create=create)


def _document(found: Audited) -> dict[str, object]:
    return {
        "customers": found.customers,
        "entries": found.entries,
        "checkpoints": found.checkpoints,
        "findings": [{"table": one.table, "row": one.row, "fault": one.fault} for one in found.findings],
    }
