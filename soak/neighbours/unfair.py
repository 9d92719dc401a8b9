"""
`onceward serve` in which all tenants share one account without limits, for the control.

This is no setting of the product: it takes the place of what is judged, so that the judge can be seen to fail. Whatever
anybody uses is on everybody's account, nobody is refused for it, and lines are not fair, because there is one.
"""

from __future__ import annotations

import sys

from onceward.cli import main
from onceward.service.access import Account, Accounts, Allowance
from onceward.service.sql.limits import Limits

UNLIMITED = 1 << 40


def _everybodys(accounts: Accounts, owner: str) -> Account:
    """The one account."""
    found = getattr(accounts, "everybody", None)
    if found is None:
        names = ("connections", "body_bytes", "waiting", "running", "databases", "cpu_per_second", "cpu_burst")
        found = Account("everybody", Allowance(**dict.fromkeys(names, UNLIMITED)), accounts)
        accounts.everybody = found  # type: ignore[attr-defined]
    return found


if __name__ == "__main__":
    Accounts.of_tenant = Accounts.of_address = _everybodys  # type: ignore[method-assign]
    Accounts.free = lambda accounts, resource: UNLIMITED  # type: ignore[method-assign]
    # A statement keeps its worker for as long as it may run.
    Limits.__init__.__kwdefaults__["slice_seconds"] = Limits().statement_seconds
    sys.exit(main())
