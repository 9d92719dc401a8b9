"""
Everything that `Access` can do, as flows that it and `AsyncAccess` run. Arguments are checked here first.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from onceward._core.durations import microseconds
from onceward._core.errors import BalanceExhausted, ConfigurationError
from onceward._core.keys import check_key
from onceward.protocol.token_format import ID_PATTERN
from onceward.runtime.environment import Environment
from onceward.service.access import balances, quotas, tenant_erasure, tenants, token_table, token_verifier
from onceward.service.access.balances import Reservation, check_amount
from onceward.service.access.effects import AskRecords
from onceward.service.access.flood_control import FloodControl
from onceward.service.access.issued_token import issue_token
from onceward.service.access.peppers import Peppers
from onceward.service.access.quotas import Room
from onceward.service.access.scopes import check_environment, check_tenant
from onceward.service.access.tenant_erasure import TenantTombstone
from onceward.service.access.tenants import QUOTA_MAX, Quota, Tenant, check_quotas
from onceward.service.access.token_table import NewToken, Role, TokenSpec, TokenView, check_databases
from onceward.service.access.token_verifier import Caller, TokenVerifier
from onceward.stores.tables.sql_steps import Flow, read_tables, transact

log = logging.getLogger("onceward.service")

LIST_MAX = 1_000
OVERLAP_SECONDS = 3_600.0
"""How long a rotated token lives on, by default: an hour, to roll out its successor."""
UNSETTLED_MAX = 10_000
"""Charges that wait for the next sweep, because the database could not be asked. Beyond it the oldest lapse."""
RAN_JUST_NOW_SECONDS = 60.0
"""So long a living holder may take from its operation's end to the end of its charge."""
ASKED_AGAIN_US = 86_400_000_000
"""For how long nobody's records are asked about again and again; then the money is given back."""
FORGET_EVERY = 200
"""Charges between two batches (of 500) of old reservations: the table stays bounded though nobody sweeps."""


class SweepResult(NamedTuple):
    """What one sweep did."""

    given_back: int
    """Micro-units of lapsed reservations of what did not run, as far as anybody knows."""
    forgotten: int
    """Ended reservations that nobody needs any more."""
    spent: int = 0
    """Micro-units of reservations whose holder died and whose operation ran."""


class AccessFlows:
    """The flows of one process."""

    def __init__(self, peppers: Peppers, environment: Environment, scope_by: str) -> None:
        self.verifier = TokenVerifier(peppers, environment, scope_by)
        self.meter = quotas.QuotaMeter(environment)
        self._peppers = peppers
        self._random = environment.random
        self._monotonic = environment.monotonic
        self._charges = 0
        self._unsettled: deque[tuple[Reservation, int]] = deque(maxlen=UNSETTLED_MAX)

    def authenticate(self, text: str) -> Flow[Caller]:
        """Whose token it is."""
        return token_verifier.authenticate(self.verifier, text)

    def enter(self, flood: FloodControl, authorization: list[str], address: str) -> Flow[Caller]:
        """The caller of a request, from its `Authorization` header."""
        return token_verifier.authenticate_or_limit(self.verifier, flood, authorization, address)

    def check(self) -> Flow[None]:
        """Refuse to serve if there are tokens whose pepper this process does not have."""
        yield from read_tables(partial(token_table.check_peppers, self._peppers))

    # Tokens.

    def create_token(
        self,
        tenant: str,
        environment: str,
        role: Role | str,
        databases: list[str] | tuple[str, ...] | None,
        expires: float | timedelta | None,
    ) -> Flow[NewToken | None]:
        """Make a token."""
        if role not in tuple(Role):
            raise ConfigurationError(f"a role must be one of {', '.join(Role)}")
        life = None if expires is None else microseconds(expires, "expires")
        spec = TokenSpec(
            check_tenant(tenant), check_environment(environment), Role(role), check_databases(databases), life
        )
        issued = issue_token(environment, self._random)
        return (yield from transact("access.token", partial(token_table.create, spec, issued, self._peppers)))

    def token(self, id: str) -> Flow[TokenView | None]:
        """One token."""
        return (yield from read_tables(partial(token_table.show, check_token_id(id))))

    def tokens(self, tenant: str | None, after: str, limit: int) -> Flow[list[TokenView]]:
        """A page of tokens."""
        name = None if tenant is None else check_tenant(tenant)
        return (yield from read_tables(partial(token_table.list_tokens, name, after, _page(limit))))

    def rotate_token(self, id: str, overlap: float | timedelta) -> Flow[NewToken | None]:
        """Make a token's successor."""
        micros = microseconds(overlap, "overlap", zero=True)
        old = yield from read_tables(partial(token_table.show, check_token_id(id)))
        if old is None:
            return None
        issued = issue_token(old.environment, self._random)
        steps = partial(token_table.rotate, id, issued, self._peppers, micros)
        made = yield from transact("access.token", steps)
        self.verifier.forget(id)
        return made

    def revoke_token(self, id: str) -> Flow[TokenView | None]:
        """End a token."""
        ended = yield from transact("access.token", partial(token_table.revoke, check_token_id(id)))
        self.verifier.forget(id)
        return ended

    # Tenants.

    def create_tenant(self, name: str, prepaid: bool, quota: Quota) -> Flow[bool]:
        """Make a tenant."""
        steps = partial(tenants.create, check_tenant(name), prepaid=prepaid, quota=check_quotas(quota))
        return (yield from transact("access.tenant", steps))

    def tenant(self, name: str) -> Flow[Tenant | None]:
        """One tenant."""
        return (yield from read_tables(partial(tenants.show, check_tenant(name))))

    def tenants(self, after: str, limit: int) -> Flow[list[Tenant]]:
        """A page of tenants."""
        return (yield from read_tables(partial(tenants.list_tenants, after, _page(limit))))

    def set_quota(self, name: str, quota: Quota) -> Flow[bool]:
        """Set what a tenant may hold."""
        steps = partial(tenants.set_quota, check_tenant(name), check_quotas(quota))
        done = yield from transact("access.tenant", steps)
        self.meter.forget(name)
        return done

    def tombstone(self, name: str) -> Flow[TenantTombstone | None]:
        """When a tenant was erased."""
        return (yield from read_tables(partial(tenant_erasure.find_tombstone, self._peppers, check_tenant(name))))

    def admit(self, tenant: str, records: int, bytes: int) -> Flow[Room]:
        """Let new records through."""
        _check_wanted(records, bytes)
        return quotas.reserve(self.meter, check_tenant(tenant), records, bytes)

    def reserve(self, tenant: str, records: int, all_of_it: bool) -> Flow[Room]:
        """Set room aside for something that may grow."""
        _check_wanted(records, 0)
        return quotas.reserve(self.meter, check_tenant(tenant), records, None, all_of_it=all_of_it)

    def quota(self, tenant: str) -> Flow[quotas.QuotaUsage]:
        """What a tenant may hold."""
        return quotas.quota_of(self.meter, check_tenant(tenant))

    def count(self) -> Flow[bool]:
        """Count the records of all tenants."""
        return quotas.count_usage(self.meter)

    # Balances.

    def charge(self, tenant: str, price: int, operation: str | None, lapse: float | timedelta) -> Flow[Reservation]:
        """Reserve a price."""
        check_amount(price, "a price", zero=True)
        micros = microseconds(lapse, "lapse")
        named = None if operation is None else check_key(operation)
        if price == 0:
            return Reservation(None, check_tenant(tenant), 0)
        steps = partial(balances.charge, check_tenant(tenant), price, self._random(12).hex(), named, micros)
        try:
            reservation = yield from transact("access.charge", steps)
        except BalanceExhausted:
            # What dead holders have reserved may be enough. It is looked after now, and not at the next sweep.
            if not (yield from self._end_lapsed(tenant)).given_back:
                raise
            reservation = yield from transact("access.charge", steps)
        self._charges += 1
        if self._charges % FORGET_EVERY == 0:
            yield from transact("access.sweep", balances.forget)
        return reservation

    def commit(self, reservation: Reservation, used: int | None) -> Flow[int | None]:
        """Spend what is reserved, or a part of it."""
        if used is not None and not 0 < used <= reservation.amount:
            raise ConfigurationError(
                f"{reservation.amount} micro-units are reserved, so 1 to {reservation.amount} can be used"
            )
        if reservation.id is None:
            return None
        steps = partial(balances.commit, reservation, reservation.amount if used is None else used)
        return (yield from transact("access.commit", steps))

    def give_back(self, reservation: Reservation) -> Flow[int | None]:
        """Free what is reserved."""
        if reservation.id is None:
            return None
        return (yield from transact("access.give_back", partial(balances.give_back, reservation)))

    def settle(self, reservation: Reservation, used: int) -> Flow[int | None]:
        """Commit what was used, or give all of it back; the balance then. Bookkeeping: it never fails its caller."""
        used = min(max(used, 0), reservation.amount)
        try:
            moved = yield from (self.commit(reservation, used) if used else self.give_back(reservation))
        except Exception as error:
            log.warning("a charge could not be settled and will be tried again later: %s", type(error).__name__)
            self._unsettled.append((reservation, used))
            return reservation.balance
        return reservation.balance if moved is None else moved

    def top_up(self, tenant: str, amount: int, reference: str, begin_prepaid: bool) -> Flow[int | None]:
        """Add to a balance."""
        check_amount(amount, "a top-up")
        named = check_key(reference)
        steps = partial(balances.top_up, check_tenant(tenant), amount, named, begin_prepaid=begin_prepaid)
        return (yield from transact("access.top_up", steps))

    def sweep(self) -> Flow[SweepResult]:
        """Settle what could not be settled, end what lapsed, and forget what ended long ago."""
        yield from self.settle_kept()
        swept = yield from self._end_lapsed(None)
        return swept._replace(forgotten=(yield from transact("access.sweep", balances.forget)))

    def settle_kept(self) -> Flow[None]:
        """Settle what could not be settled when it was time; what still cannot be is kept."""
        for _ in range(len(self._unsettled)):
            with suppress(IndexError):  # Another thread may be at it, too.
                yield from self.settle(*self._unsettled.popleft())

    def _end_lapsed(self, tenant: str | None) -> Flow[SweepResult]:
        """End reservations that lapsed: the records of their operations are asked first, as far as there are any."""
        began = self._monotonic()
        found = yield from read_tables(partial(balances.find_lapsed, tenant))
        named = tuple(one.operation for one in found if one.operation is not None and one.age is not None)
        ages: Mapping[str, float] = (yield AskRecords(named)) if named else {}
        # How old a reservation is was told earlier than how long ago its operation ran: by less than this.
        between = round((self._monotonic() - began) * 1_000_000)
        due: dict[str, list[str]] = {}
        ran: set[str] = set()
        for one in found:
            ago = ages.get(one.operation or "")
            if ago is not None and one.age is not None and ago * 1_000_000 - between < one.age:
                if ago >= RAN_JUST_NOW_SECONDS:
                    ran.add(one.id)
                elif one.age < ASKED_AGAIN_US:
                    continue  # Another attempt may have done it, and be about to pay; or nobody can tell now.
            due.setdefault(one.tenant, []).append(one.id)
        given_back = spent = 0
        for name, ids in sorted(due.items()):
            back, gone = yield from transact("access.sweep", partial(balances.end_lapsed, name, ids, ran, between))
            given_back, spent = given_back + back, spent + gone
        return SweepResult(given_back, 0, spent)


def _check_wanted(records: int, bytes: int) -> None:
    if not all(type(value) is int and 0 <= value <= QUOTA_MAX for value in (records, bytes)):
        raise ConfigurationError(f"records and bytes must be whole numbers from 0 to {QUOTA_MAX}")


def check_token_id(id: str) -> str:
    """Give a token's id back if it can be one. A whole token in its place is refused, and not repeated."""
    if isinstance(id, str) and ID_PATTERN.fullmatch(id):
        return id
    raise ConfigurationError(
        "this is not the id of a token. Give the 12 characters after ow_live_ or ow_test_, and never the whole token: "
        "it is secret"
    )


def _page(limit: int) -> int:
    if type(limit) is int and 1 <= limit <= LIST_MAX:
        return limit
    raise ConfigurationError(f"a page has 1 to {LIST_MAX} entries")
