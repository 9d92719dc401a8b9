"""
`onceward serve` in which all tenants share one account without limits, for the control.

This is no setting of the product: it takes the place of what is judged, so that the judge can be seen to fail. Whatever
anybody uses is on everybody's account, nobody is refused for it, and lines are not fair, because there is one.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from onceward.cli import main
from onceward.service.access import Account, Accounts, Allowance
from onceward.service.sql.limits import Limits

UNLIMITED = 1 << 40
RESOURCES = ("connections", "body_bytes", "waiting", "running", "databases", "cpu_per_second", "cpu_burst")


@cache
def _everybodys(accounts: Accounts) -> Account:
    """The one account."""
    return Account("everybody", Allowance(**dict.fromkeys(RESOURCES, UNLIMITED)), accounts)


def lift_limits() -> None:
    """Put this in the place of accounts, and let a statement keep its worker for as long as it may run."""
    accounts: Any = Accounts
    accounts.of_tenant = accounts.of_address = lambda self, owner: _everybodys(self)
    accounts.free = lambda self, resource: UNLIMITED
    defaults: Any = Limits.__init__.__kwdefaults__
    defaults["slice_seconds"] = defaults["statement_seconds"]


if __name__ == "__main__":
    lift_limits()
    sys.exit(main())
