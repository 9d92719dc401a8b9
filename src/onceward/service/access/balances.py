"""
Prepaid balances: whole micro-units, reserved before anything runs. Rules as steps over SQL.

    open --commit-------> committed      it ran: what it used is gone, the rest is back
     |
     +------give back---> given_back     nothing ran: the money is back
     |
     +------time--------> committed      the holder died, and the operation's record says that it ran
     |
     +------time--------> lapsed         the holder died, and nothing says that it ran: the money is back
                            |
                            +--commit--> committed      it ran after all: taken again, below zero if need be

The balance is what can still be reserved: a reservation is taken off it at once. A tenant's row is held while its money
moves, so that two calls never spend the same unit.

Every attempt has a reservation of its own, also where two share a key: nobody gives back, or spends, what another one
reserved. Which of them ran, its own outcome says: who ran commits, who got a replay or was refused gives back. So a
replay costs nothing for as long as the result replays. Only where the holder died is the operation's record asked
(`operation` names it); the record cannot say which attempt it was, so one of an operation's attempts pays, and no more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from onceward._core.display_text import python_kind
from onceward._core.errors import BalanceExhausted, ConfigurationError, IllegalMove, KeyReused
from onceward.stores.tables.sql_steps import Sql, SqlSteps, one_or_none

AMOUNT_MAX = 10**15
"""A thousand million units: beyond it, a price or a top-up is a mistake. Sums stay far below 2^63."""
LAPSE_SECONDS = 300.0
"""Above the lease that a slow call is given, so that no reservation lapses under a holder that is alive."""
KEPT_US = 24 * 3_600 * 1_000_000
"""
How long an ended reservation is remembered: for whoever looks into an invoice, and far longer than one can be open
beside it. Nothing else depends on it: that a replay is one, the record says.
"""
SWEEP_BATCH = 500

_TENANT = "SELECT balance, erasing_at FROM onceward_tenants WHERE name = :tenant {lock}"
_STATE = "SELECT amount, state FROM onceward_reservations WHERE id = :id"
_OPEN = """INSERT INTO onceward_reservations (id, tenant, reference, operation, amount, state, opened_at, lapses_at)
    VALUES (:id, :tenant, :id, :operation, :amount, 'open', :now, :now + :lapse)"""
_END = """UPDATE onceward_reservations SET state = :state, ended_at = :now
    WHERE id = :id AND state = :before RETURNING amount"""
_USED = "UPDATE onceward_reservations SET amount = :amount WHERE id = :id"
_MOVE = "UPDATE onceward_tenants SET balance = balance + :amount WHERE name = :tenant RETURNING balance"
_TOP_UP = """INSERT INTO onceward_topups (tenant, reference, amount, created_at)
    VALUES (:tenant, :reference, :amount, :now) ON CONFLICT (tenant, reference) DO NOTHING RETURNING amount"""
_TOPPED = "SELECT amount FROM onceward_topups WHERE tenant = :tenant AND reference = :reference"
_BEGIN_PREPAID = "UPDATE onceward_tenants SET balance = 0 WHERE name = :tenant AND balance IS NULL"
_LAPSED = """SELECT id, tenant, operation, :now - opened_at FROM onceward_reservations
    WHERE state = 'open' AND lapses_at <= :now ORDER BY lapses_at LIMIT :limit"""
_LAPSED_OF = """SELECT id, tenant, operation, :now - opened_at FROM onceward_reservations
    WHERE tenant = :tenant AND state = 'open' AND lapses_at <= :now ORDER BY lapses_at LIMIT :limit"""
_STILL = """SELECT opened_at, operation FROM onceward_reservations
    WHERE id = :id AND state = 'open' AND lapses_at <= :now"""
_PAID_SINCE = """SELECT id FROM onceward_reservations WHERE tenant = :tenant AND operation = :operation
    AND state = 'committed' AND ended_at >= :opened LIMIT 1"""
_HELD = "SELECT coalesce(sum(amount), 0) FROM onceward_reservations WHERE tenant = :tenant AND state = 'open'"
_FORGET = """DELETE FROM onceward_reservations WHERE id IN (
    SELECT id FROM onceward_reservations WHERE ended_at <= :now - :kept ORDER BY ended_at LIMIT :limit) RETURNING id"""


class Reservation(NamedTuple):
    """What was reserved for one attempt."""

    id: str | None
    """None: nothing was, because the tenant does not pay in advance or the price is nothing."""
    tenant: str
    amount: int
    balance: int | None = None
    """What was left when this had been taken off."""


class LapsedReservation(NamedTuple):
    """One whose holder has not been heard of in time."""

    id: str
    tenant: str
    operation: str | None
    """Names the record that can say whether it ran; None: nobody can."""
    age: int | None
    """Since it was opened, in microseconds; None: of a row of schema 1."""


def check_amount(amount: int, what: str, *, zero: bool = False) -> int:
    """Give an amount of micro-units back if it can be one."""
    if type(amount) is int and (0 if zero else 1) <= amount <= AMOUNT_MAX:
        return amount
    raise ConfigurationError(
        f"{what} is a whole number of micro-units from {0 if zero else 1} to {AMOUNT_MAX} (never a float), not "
        f"{python_kind(amount)} {str(amount)[:40]}"
    )


def charge(tenant: str, price: int, id: str, operation: str | None, lapse: int) -> SqlSteps[Reservation]:
    """Reserve a price, or refuse with `BalanceExhausted`; nothing has run then."""
    row = one_or_none((yield Sql(_TENANT, {"tenant": tenant})))
    if row is None or row[1] is not None:
        raise ConfigurationError("there is no such tenant to charge: it was never created, or it is erased")
    balance: int | None = row[0]
    if balance is None:
        return Reservation(None, tenant, 0)
    if balance < price:
        [(held,)] = yield Sql(_HELD, {"tenant": tenant})
        raise _exhausted(balance, price, int(held))
    [(left,)] = yield Sql(_MOVE, {"tenant": tenant, "amount": -price})
    yield Sql(_OPEN, {"id": id, "tenant": tenant, "operation": operation, "amount": price, "lapse": lapse})
    return Reservation(id, tenant, price, int(left))


def commit(reservation: Reservation, used: int) -> SqlSteps[int | None]:
    """
    It ran, and used so much: that is spent, and the rest is free again. The balance then, if it moved.

    Again does no harm; a reservation that had lapsed is taken again.
    """
    id, tenant = reservation.id, reservation.tenant
    if used == reservation.amount and (yield Sql(_END, {"id": id, "state": "committed", "before": "open"})):
        return None
    yield Sql(_TENANT, {"tenant": tenant})
    for before in ("open", "lapsed"):
        if (yield Sql(_END, {"id": id, "state": "committed", "before": before})):
            yield Sql(_USED, {"id": id, "amount": used})
            taken = reservation.amount if before == "open" else 0
            [(balance,)] = yield Sql(_MOVE, {"tenant": tenant, "amount": taken - used})
            return int(balance)
    found = one_or_none((yield Sql(_STATE, {"id": id})))
    if found is not None and found[1] == "given_back":
        raise IllegalMove("this reservation was cancelled because nothing ran, so it cannot be committed")
    return None


def give_back(reservation: Reservation) -> SqlSteps[int | None]:
    """Nothing ran: the money is free again. Again does no harm, nor does it after the reservation lapsed."""
    yield Sql(_TENANT, {"tenant": reservation.tenant})
    taken = one_or_none((yield Sql(_END, {"id": reservation.id, "state": "given_back", "before": "open"})))
    if taken is not None:
        [(balance,)] = yield Sql(_MOVE, {"tenant": reservation.tenant, "amount": taken[0]})
        return int(balance)
    found = one_or_none((yield Sql(_STATE, {"id": reservation.id})))
    if found is not None and found[1] == "committed":
        raise IllegalMove("this reservation was committed because it ran, so it cannot be cancelled; top up instead")
    return None


def top_up(tenant: str, amount: int, reference: str, *, begin_prepaid: bool) -> SqlSteps[int | None]:
    """Add to a balance, once for each reference; the balance then. None if there is no such tenant."""
    row = one_or_none((yield Sql(_TENANT, {"tenant": tenant})))
    if row is None or row[1] is not None:
        return None
    if row[0] is None and not begin_prepaid:
        raise IllegalMove(
            "this tenant does not pay in advance, so there is no balance to top up, and a balance would limit it; "
            "to make it pay in advance, add --prepaid"
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


def find_lapsed(tenant: str | None) -> SqlSteps[list[LapsedReservation]]:
    """Reservations whose holders have not been heard of in time, of one tenant or of all; a batch of them."""
    statement = _LAPSED if tenant is None else _LAPSED_OF
    return [LapsedReservation(*row) for row in (yield Sql(statement, {"tenant": tenant, "limit": SWEEP_BATCH}))]


def end_lapsed(
    tenant: str, ids: Collection[str], ran: Collection[str], within_us: int = 0
) -> SqlSteps[tuple[int, int]]:
    """
    End reservations that lapsed, those that ran by spending them; what was given back, and what was spent.

    An operation whose other attempt has paid meanwhile does not pay twice: its record says only that it ran, and when
    to within so many microseconds.
    """
    yield Sql(_TENANT, {"tenant": tenant})
    given_back = spent = 0
    for id in ids:
        row = one_or_none((yield Sql(_STILL, {"id": id})))
        if row is None:
            continue  # Its holder was heard of after all.
        ours = False
        if id in ran:  # So it is known when it was opened, which rows of earlier versions do not have.
            since = {"tenant": tenant, "operation": row[1], "opened": row[0] - within_us}
            ours = not (yield Sql(_PAID_SINCE, since))
        ended = one_or_none((yield Sql(_END, {"id": id, "state": "committed" if ours else "lapsed", "before": "open"})))
        amount = 0 if ended is None else int(ended[0])
        spent += amount if ours else 0
        given_back += 0 if ours else amount
    if given_back:
        yield Sql(_MOVE, {"tenant": tenant, "amount": given_back})
    return given_back, spent


def forget() -> SqlSteps[int]:
    """Forget ended reservations, a batch of them; how many."""
    return len((yield Sql(_FORGET, {"kept": KEPT_US, "limit": SWEEP_BATCH})))


def format_units(micro: int) -> str:
    """Micro-units as people write money: 2500000 -> 2.50."""
    sign, whole, rest = "-" if micro < 0 else "", *divmod(abs(micro), 1_000_000)
    decimals = f"{rest:06}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole}.{decimals}"


def _exhausted(balance: int, price: int, held: int) -> BalanceExhausted:
    waiting = (
        f", and {format_units(held)} more is reserved by running requests; what they do not use is returned"
        if held
        else ""
    )
    return BalanceExhausted(
        f"the prepaid balance has {format_units(balance)} left{waiting}, and this costs {format_units(price)}; nothing "
        "ran. Top up (onceward tenant topup), then send it again with the same key",
        balance=balance,
        price=price,
    )
