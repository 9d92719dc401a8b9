"""
The ledger's pages of the dashboard: customers; and of one, its balance over time, its checkpoints and its chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from onceward.dashboard.charts import Point, steps
from onceward.dashboard.html import Content, Markup, element
from onceward.dashboard.layout import badge, code, command, empty, instant, link, notice, section, table, words
from onceward.dashboard.page import Page, PageMissing, PageRequest, Shown
from onceward.protocol.amounts import format_amount
from onceward.service.access import scope_of
from onceward.service.ledger.hash_chain import LedgerCheckpoint, LedgerEntry
from onceward.service.ledger.ledger_async import AsyncLedger
from onceward.service.ledger.ledger_audit import audit_customer
from onceward.service.ledger.ledger_views import customers, latest_checkpoints, latest_entries
from onceward.service.ledger.verification import VERIFIED
from onceward.stores.tables import read_tables

CUSTOMERS_SHOWN = 50
ENTRIES_SHOWN = 200
CHECKPOINTS_SHOWN = 60
CHAIN_MAX = 20_000
"""Deltas of a customer whose chain is walked while somebody waits."""


class LedgerPages:
    """The pages over one ledger."""

    def __init__(self, ledger: AsyncLedger) -> None:
        self._ledger = ledger

    def pages(self) -> tuple[Page, ...]:
        """Where they are."""
        return (
            Page("ledger", "/ledger", run_async=self.listing, title="Ledger"),
            Page("ledger", "/ledger/customer", run_async=self.show),
        )

    async def listing(self, ask: PageRequest) -> Shown:
        """Customers in order of name."""
        after = (ask.query.get("scope", ""), ask.query.get("after", ""))
        found = await self._ledger.run(read_tables(partial(customers, _scope(ask), after, CUSTOMERS_SHOWN)))
        if not found:
            nothing = empty("No customer has a balance here.", "The first delta makes one: POST /api/v1/balance/delta.")
            return Shown("Ledger", nothing)
        rows = [
            (
                link(ask.chrome, "/ledger/customer", code(one.customer, 60), scope=one.scope, id=one.customer),
                code(one.scope, 60),
                f"{one.deltas:,}",
                one.closed or "none",
                instant(one.created_at),
            )
            for one in found
        ]
        following = None
        if len(found) == CUSTOMERS_SHOWN:
            last = found[-1]
            page = link(ask.chrome, "/ledger", "Next page", scope=last.scope, after=last.customer)
            following = element("p", page, class_="pager")
        headings = ("Customer", "Scope", "Deltas", "Closed up to", "Since")
        return Shown("Ledger", section("Customers", table(headings, rows, label="Customers"), following))

    async def show(self, ask: PageRequest) -> Shown:
        """One customer."""
        scope, customer = ask.query.get("scope", ""), ask.query.get("id", "")
        if not customer or not ask.reach.sees(scope) or _scope(ask) not in (None, scope):
            raise PageMissing
        entries = await self._ledger.run(read_tables(partial(latest_entries, scope, customer, ENTRIES_SHOWN)))
        closed = await self._ledger.run(read_tables(partial(latest_checkpoints, scope, customer, CHECKPOINTS_SHOWN)))
        if not entries and not closed:
            raise PageMissing
        body = [
            await self._chain(scope, customer, entries),
            section("Balance over time", _balance(entries, closed)),
            section("Checkpoints", _checkpoints(closed)),
            section("Latest deltas", _entries(entries)),
        ]
        return Shown(f"Customer {words(customer, 60)}", body)

    async def _chain(self, scope: str, customer: str, entries: Sequence[LedgerEntry]) -> Markup:
        if entries and entries[0].seq > CHAIN_MAX:
            return notice(
                "plain", "Its chain is long. Walk it on the command line: ", command("onceward ledger verify")
            )
        report = await self._ledger.run(audit_customer(scope, customer))
        if report is None:
            raise PageMissing
        if report.findings:
            faults = [element("li", words(f"{one.row}: {one.fault}", 200)) for one in report.findings[:10]]
            return notice("bad", element("strong", "The chain is broken. "), element("ul", faults))
        counted = {"delta": report.entries, "checkpoint": report.checkpoints}
        rows = " and ".join(f"{count:,} {word}{'' if count == 1 else 's'}" for word, count in counted.items() if count)
        told = f"Unchanged since written: {rows}." if rows else "It has no deltas yet."
        return notice("good", element("strong", "The chain holds. "), told)


def _scope(ask: PageRequest) -> str | None:
    """The scope of the ledger's rows: environment and tenant, whichever token looks."""
    if ask.reach.tenant is None or ask.reach.environment is None:
        return None
    return scope_of(ask.reach.environment, ask.reach.tenant)


def _balance(entries: Sequence[LedgerEntry], closed: Sequence[LedgerCheckpoint]) -> Content:
    """The running balance over the latest deltas: exact where they reach back to the last checkpoint or the first."""
    counted = [one for one in reversed(entries) if one.status == VERIFIED]
    start = next((one for one in closed if not counted or one.period < counted[0].period), None)
    balance = int(start.balance) if start is not None else 0
    later = [one for one in counted if start is None or one.period > start.period]
    points = [
        Point(one.closed_at, int(one.balance) / 1e9) for one in reversed(closed) if start and one.number <= start.number
    ]
    if not points and later:
        points = [Point(later[0].booked_at, 0.0)]
    for one in later:
        balance += one.amount
        points.append(Point(max(one.booked_at, points[-1].at if points else 0), balance / 1e9))
    reaches = start is not None or not entries or entries[-1].seq == 1
    label = f"The balance after each of the latest {len(counted)} verified deltas; now {format_amount(balance)}."
    now = element("p", element("strong", format_amount(balance), class_="figure"), " after the latest delta")
    partly = (
        None
        if reaches
        else element("p", "Relative to the first delta shown: earlier ones are not read.", class_="note")
    )
    if len(points) < 2:
        return [now if reaches else None, partly]
    lowest, highest = (format_amount(round(pick(one.value for one in points) * 1e9)) for pick in (min, max))
    between = element("p", f"Between {lowest} and {highest}.", class_="note")
    picture = steps(points, label=label, first=instant(points[0].at), last=instant(points[-1].at))
    return [now if reaches else None, partly, picture, between]


def _checkpoints(closed: Sequence[LedgerCheckpoint]) -> Content:
    if not closed:
        return empty("No period was closed.", "POST /api/v1/balance/checkpoint closes one: its sum is fixed then.")
    rows = [
        (one.period, format_amount(int(one.balance)), f"{one.deltas:,}", instant(one.closed_at), code(one.hash, 16))
        for one in closed
    ]
    return table(("Period", "Balance", "Deltas", "Closed", "Hash"), rows, label="Checkpoints")


def _entries(entries: Sequence[LedgerEntry]) -> Content:
    rows = [
        (
            one.seq,
            format_amount(one.amount),
            words(one.reason, 80),
            badge(_word(one), one.status),
            instant(one.booked_at),
            code(one.hash, 16),
        )
        for one in entries[:50]
    ]
    return table(("Number", "Delta", "Reason", "Status", "Booked", "Hash"), rows, label="Latest deltas")


def _word(one: LedgerEntry) -> str:
    return {"verified": "done", "queued": "waiting"}.get(one.status, one.status)
