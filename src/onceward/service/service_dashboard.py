"""
The dashboard of a service, at `/dashboard`: the pages of every dashboard, and those that need the service.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.applications import Starlette

from onceward._core.record import Record
from onceward._core.store_protocols import Store
from onceward.audit import DecisionLog
from onceward.dashboard import Dashboard, DashboardData
from onceward.dashboard.page import DashboardOptions
from onceward.dashboard.pages import PAGES
from onceward.dashboard.sessions import Reach
from onceward.service.access import tenant_of
from onceward.service.dashboard_login import TokenDoorkeeper
from onceward.service.ledger.ledger_async import AsyncLedger
from onceward.service.ledger.ledger_pages import LedgerPages
from onceward.service.records.app import DATABASES_MAX, RecordsInDatabases
from onceward.service.sql.sql_pages import SqlPages
from onceward.service.usage.account_page import AccountPages
from onceward.service.web.calls import Authenticator

BASE = "/dashboard"


class KeyedSqlRecords:
    """The records of keyed SQL, in the databases of whoever looks."""

    def __init__(self, databases: RecordsInDatabases) -> None:
        self._databases = databases

    def page(self, reach: Reach, limit: int, after: str) -> tuple[list[tuple[Record, str]], str | None]:
        """Some records, database by database."""
        found = self._databases.page(self._names(reach), limit, after)
        return [(one.record, one.name[1]) for one in found.found], found.after

    def find(self, reach: Reach, digits: str) -> list[tuple[Record, str]]:
        """Those whose ids begin with these digits, in the first hundred databases."""
        found = self._databases.begin_with(self._names(reach)[:DATABASES_MAX], digits)
        return [(one.record, one.name[1]) for one in found]

    def _names(self, reach: Reach) -> list[Any]:
        if reach.tenant is None or reach.environment is None:
            return []
        return list(self._databases.databases(reach.environment, reach.tenant))


class ServiceDashboard(NamedTuple):
    """The dashboard, and its pages that call the API which they are part of."""

    dashboard: Dashboard
    databases: SqlPages | None

    def add_to(self, app: Starlette) -> None:
        """Add its addresses to the service's own."""
        if self.databases is not None:
            self.databases.api = app
        app.router.routes.extend(self.dashboard.routes())


def make_service_dashboard(
    url: str,
    store: Store,
    log: DecisionLog,
    authenticator: Authenticator,
    ledger: AsyncLedger,
    databases: RecordsInDatabases | None,
    *,
    only_reads: Callable[[str], bool] | None,
    databases_max: int,
    show_values: bool,
) -> ServiceDashboard:
    """The dashboard over what a service has open. `only_reads`: None, if there is no SQL."""
    sql = None if only_reads is None else SqlPages(only_reads)
    pages = [
        *PAGES,
        *(() if sql is None else sql.pages()),
        *LedgerPages(ledger).pages(),
        *AccountPages(authenticator.access, databases_max=databases_max).pages(),
    ]
    made = Dashboard(
        DashboardData(
            url,
            store,
            log,
            tenant_of=tenant_of,
            elsewhere=None if sql is None or databases is None else KeyedSqlRecords(databases),
        ),
        TokenDoorkeeper(authenticator),
        base=BASE,
        store_name="service",
        pages=pages,
        options=DashboardOptions(show_values=show_values),
    )
    return ServiceDashboard(made, sql)
