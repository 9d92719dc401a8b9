"""
Prepaid balances: whole micro-units, reserved before anything runs. Rules as steps over SQL.

    open --commit-------> committed      it ran: the money is gone
     |
     +------give back---> given_back     nothing ran: the money is back
     |
     +------time--------> lapsed         the holder died: the money is back
                            |
                            +--commit--> committed      it ran after all: taken again, below zero if need be

The balance is what can still be reserved: a reservation is taken off it at once. A tenant's row is held while its money
moves, so that two calls never spend the same unit. A reference makes a charge repeatable: a retry finds the reservation
of the first attempt, open or committed, and pays nothing more.
"""

from __future__ import annotations

from typing import NamedTuple

from onceward._core.display_text import python_kind
from onceward._core.errors import BalanceExhausted, ConfigurationError, IllegalMove, KeyReused
from onceward.stores.tables.sql_steps import Sql, SqlSteps, one_or_none

AMOUNT_MAX = 10**15
"""A thousand million units: beyond it, a price or a top-up is a mistake. Sums stay far below 2^63."""
LAPSE_SECONDS = 300.0
"""Above the lease that a slow call is given, so that no reservation lapses under a holder that is alive."""
KEPT_US = 24 * 3_600 * 1_000_000
"""How long an ended reservation is remembered: as long as a result replays, so that a retry is not charged again."""
SWEEP_BATCH = 500

_TENANT = "SELECT balance, erasing_at FROM onceward_tenants WHERE name = :tenant {lock}"
_FIND = "SELECT id, amount, state FROM onceward_reservations WHERE tenant = :tenant AND reference = :reference"
_STATE = "SELECT amount, state FROM onceward_reservations WHERE id = :id"
_LAPSED = """UPDATE onceward_reservations SET state = 'lapsed', ended_at = :now
    WHERE tenant = :tenant AND state = 'open' AND lapses_at <= :now RETURNING amount"""
_EXTEND = "UPDATE onceward_reservations SET lapses_at = :now + :lapse WHERE id = :id AND state = 'open' RETURNING id"
_OPEN = """INSERT INTO onceward_reservations (id, tenant, reference, amount, state, lapses_at)
    VALUES (:id, :tenant, :reference, :amount, 'open', :now + :lapse)"""
_OPEN_AGAIN = """UPDATE onceward_reservations SET amount = :amount, state = 'open', lapses_at = :now + :lapse,
    ended_at = NULL WHERE id = :id"""
_END = """UPDATE onceward_reservations SET state = :state, ended_at = :now
    WHERE id = :id AND state = :before RETURNING amount"""
_MOVE = "UPDATE onceward_tenants SET balance = balance + :amount WHERE name = :tenant RETURNING balance"
_TOP_UP = """INSERT INTO onceward_topups (tenant, reference, amount, created_at)
    VALUES (:tenant, :reference, :amount, :now) ON CONFLICT (tenant, reference) DO NOTHING RETURNING amount"""
_TOPPED = "SELECT amount FROM onceward_topups WHERE tenant = :tenant AND reference = :reference"
_BEGIN_PREPAID = "UPDATE onceward_tenants SET balance = 0 WHERE name = :tenant AND balance IS NULL"
_WITH_LAPSED = """SELECT DISTINCT tenant FROM onceward_reservations
    WHERE state = 'open' AND lapses_at <= :now LIMIT :limit"""
_FORGET = """DELETE FROM onceward_reservations WHERE id IN (
    SELECT id FROM onceward_reservations WHERE ended_at <= :now - :kept ORDER BY ended_at LIMIT :limit) RETURNING id"""


class Reservation(NamedTuple):
    """What was reserved for one call."""

    id: str | None
    """None: nothing was, because the tenant does not pay in advance or the price is nothing."""
    tenant: str
    amount: int
    committed: bool = False
    """An earlier attempt of the same reference has paid already."""


def check_amount(amount: int, what: str, *, zero: bool = False) -> int:
    """Give an amount of micro-units back if it can be one."""
    if type(amount) is int and (0 if zero else 1) <= amount <= AMOUNT_MAX:
        return amount
    raise ConfigurationError(
        f"{what} is a whole number of micro-units from {0 if zero else 1} to {AMOUNT_MAX} (never a float), not "
        f"{python_kind(amount)} {str(amount)[:40]}"
    )


def charge(tenant: str, price: int, id: str, reference: str, lapse: int) -> SqlSteps[Reservation]:
    """Reserve a price, or refuse with `BalanceExhausted`; nothing has run then."""
    row = one_or_none((yield Sql(_TENANT, {"tenant": tenant})))
    if row is None or row[1] is not None:
        raise ConfigurationError("there is no such tenant to charge: it was never created, or it is erased")
    balance: int | None = row[0]
    if balance is None:
        return Reservation(None, tenant, 0)
    found = one_or_none((yield Sql(_FIND, {"tenant": tenant, "reference": reference})))
    if found is not None and found[2] == "committed":
        return Reservation(found[0], tenant, found[1], committed=True)
    if found is not None and found[2] == "open":
        yield Sql(_EXTEND, {"id": found[0], "lapse": lapse})
        return Reservation(found[0], tenant, found[1])
    if balance < price:
        balance += yield from _give_back_lapsed(tenant)
    if balance < price:
        raise BalanceExhausted(
            f"the prepaid balance has {format_units(balance)} left and this costs {format_units(price)}; nothing ran. "
            "Top up "
            "(onceward tenant topup), then send the same key again",
            balance=balance,
            price=price,
        )
    yield Sql(_MOVE, {"tenant": tenant, "amount": -price})
    values = {"id": id if found is None else found[0], "amount": price, "lapse": lapse}
    if found is None:
        yield Sql(_OPEN, {**values, "tenant": tenant, "reference": reference})
    else:
        yield Sql(_OPEN_AGAIN, values)
    return Reservation(values["id"], tenant, price)  # type: ignore[arg-type]


def commit(reservation: Reservation) -> SqlSteps[None]:
    """It ran: the money is spent. Again does no harm; a reservation that had lapsed is taken again."""
    id = reservation.id
    if (yield Sql(_END, {"id": id, "state": "committed", "before": "open"})):
        return
    yield Sql(_TENANT, {"tenant": reservation.tenant})
    for before in ("open", "lapsed"):
        taken = one_or_none((yield Sql(_END, {"id": id, "state": "committed", "before": before})))
        if taken is not None:
            if before == "lapsed":
                yield Sql(_MOVE, {"tenant": reservation.tenant, "amount": -taken[0]})
            return
    found = one_or_none((yield Sql(_STATE, {"id": id})))
    if found is not None and found[1] == "given_back":
        raise IllegalMove("this reservation was given back because nothing ran, so it cannot be committed")


def give_back(reservation: Reservation) -> SqlSteps[None]:
    """Nothing ran: the money is free again. Again does no harm, nor does it after the reservation lapsed."""
    yield Sql(_TENANT, {"tenant": reservation.tenant})
    taken = one_or_none((yield Sql(_END, {"id": reservation.id, "state": "given_back", "before": "open"})))
    if taken is not None:
        yield Sql(_MOVE, {"tenant": reservation.tenant, "amount": taken[0]})
        return
    found = one_or_none((yield Sql(_STATE, {"id": reservation.id})))
    if found is not None and found[1] == "committed":
        raise IllegalMove("this reservation was committed because it ran, so it cannot be given back; top up instead")


def top_up(tenant: str, amount: int, reference: str, *, begin_prepaid: bool) -> SqlSteps[int | None]:
    """Add to a balance, once for each reference; the balance then. None if there is no such tenant."""
    row = one_or_none((yield Sql(_TENANT, {"tenant": tenant})))
    if row is None or row[1] is not None:
        return None
    if row[0] is None and not begin_prepaid:
        raise IllegalMove(
            "this tenant does not pay in advance, so there is no balance to top up, and a balance would limit it; say "
            "so if it is to (--prepaid)"
        )
    if row[0] is None:
        yield Sql(_BEGIN_PREPAID, {"tenant": tenant})
    values = {"tenant": tenant, "reference": reference, "amount": amount}
    if (yield Sql(_TOP_UP, values)):
        [(balance,)] = yield Sql(_MOVE, values)
        return int(balance)
    [(first,)] = yield Sql(_TOPPED, values)
    if first != amount:
        raise KeyReused("this top-up was made before with another amount; a different top-up needs a key of its own")
    return int(row[0] or 0)


def tenants_with_lapsed() -> SqlSteps[list[str]]:
    """Whose reservations have lapsed."""
    return [name for (name,) in (yield Sql(_WITH_LAPSED, {"limit": SWEEP_BATCH}))]


def sweep_tenant(tenant: str) -> SqlSteps[int]:
    """Give back what lapsed; how much."""
    yield Sql(_TENANT, {"tenant": tenant})
    return (yield from _give_back_lapsed(tenant))


def forget() -> SqlSteps[int]:
    """Forget ended reservations, a batch of them; how many."""
    return len((yield Sql(_FORGET, {"kept": KEPT_US, "limit": SWEEP_BATCH})))


def format_units(micro: int) -> str:
    """Micro-units as people write money: 2500000 -> 2.50."""
    sign, whole, rest = "-" if micro < 0 else "", *divmod(abs(micro), 1_000_000)
    decimals = f"{rest:06}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole}.{decimals}"


def _give_back_lapsed(tenant: str) -> SqlSteps[int]:
    """With the tenant's row held."""
    freed: int = sum(amount for (amount,) in (yield Sql(_LAPSED, {"tenant": tenant})))
    if freed:
        yield Sql(_MOVE, {"tenant": tenant, "amount": freed})
    return freed
