"""
`Spend`: how much the tool calls of a run, or of all runs together, may cost.

    gate = AgentGate("sqlite:///agent.db", scope="live:acme", spend=Spend("usd", limit="20.00"), tools={
        "render": Tool("blind", price="0.40"),
        "search": Tool("repeatable", price=lambda arguments: "0.01" if arguments["quick"] else "0.05"),
    })

A price is reserved before the call and settled after it, in the gate's own store, so that sub-agents in any number of
processes never pass the cap together. At the cap the next call is refused, with words for the model; what ran stays.
A tool that learns its real price says so: `actual_price("0.31")`. The rules are in `_core/spend_state.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from onceward._core.durations import microseconds
from onceward._core.errors import ConfigurationError, KeyInvalid, RequestInvalid, SpendExhausted
from onceward._core.keys import check_key, key_digest, record_id
from onceward._core.operation import Operation
from onceward._core.shared_state import SharedRecord
from onceward._core.spend_state import OPEN_MAX, SPEND, Cap, NoRoom, PriceReservation, SpendState
from onceward._core.terms import Seconds
from onceward.agents.tool_call import ToolCall, check_run
from onceward.agents.tools import Price, Tool
from onceward.protocol.amounts import format_amount, parse_amount

KEEP_SECONDS = 30 * 86_400.0

_log = logging.getLogger("onceward.agents")


@dataclass(frozen=True, slots=True)
class Spend:
    """
    A cap on what tool calls cost, in any unit: money, tokens, credits.

    `per` is "run" (each run has the cap for itself), "scope" (all runs of the gate's scope share it), or any other name
    (all who give the same name share it). `limit` and prices are text, int or Decimal: exact, with up to nine places.
    `keep` is how long it is remembered after the last call; a run that goes on after that begins anew.
    """

    unit: str
    limit: Decimal | int | str
    per: str = "run"
    keep: Seconds = KEEP_SECONDS

    def __post_init__(self) -> None:
        for name, text in (("unit", self.unit), ("per", self.per)):
            try:
                check_key(text)
            except KeyInvalid as error:
                raise ConfigurationError(f"Spend's {name} is a short name such as 'usd': {error}") from None
        amount_of(self.limit, "the limit of Spend")
        microseconds(self.keep, "keep")

    def cap(self, scope: str, run: str | None) -> Cap:
        """The cap that a call of this run is under."""
        shared = ("run", check_run(run)) if self.per == "run" else ("shared", self.per)
        id = record_id(SPEND, scope, self.unit, *shared)
        return Cap(
            SharedRecord(id, SPEND, scope, f"{self.unit}:{shared[0]}:{_shown(shared[1])}"),
            amount_of(self.limit, "the limit of Spend"),
            microseconds(self.keep, "keep"),
        )

    def refusal(self, why: NoRoom, amount: int) -> SpendExhausted:
        """The error for a call whose price was not reserved."""
        view = self.view(why.state)
        price = format_amount(amount)
        if why.too_many:
            text = (
                f"{OPEN_MAX} calls under this cap are under way or in doubt, which is the limit; decide those "
                "in doubt with `onceward records list --state in_doubt`"
            )
        else:
            text = (
                f"{format_amount(_billionths(view.left))} {self.unit} are left of {view.limit}, and this call costs "
                f"{price}. Raise the limit to continue"
            )
        return SpendExhausted(text, left=str(view.left), price=price)

    def view(self, state: SpendState) -> SpendView:
        """What stands there, for people."""
        limit = amount_of(self.limit, "the limit of Spend")
        left = max(0, limit - state.spent - state.reserved)
        return SpendView(self.unit, *map(_exact, (limit, state.spent, state.reserved, left)))


class SpendView(NamedTuple):
    """What was spent under a cap."""

    unit: str
    limit: Decimal
    spent: Decimal
    """By calls that are over."""
    reserved: Decimal
    """For calls that are under way, or in doubt."""
    left: Decimal
    """What the next calls may cost. Nothing, if calls turned out dearer than what was reserved."""


class PriceTag:
    """The price of one call while it is made."""

    __slots__ = ("_told", "cap", "operation", "reservation")

    def __init__(self, cap: Cap, operation: Operation, amount: int) -> None:
        self.cap, self.operation = cap, operation
        self.reservation = PriceReservation(operation.id, operation.fence, amount)
        self._told: int | None = None

    def tell(self, amount: int) -> None:
        """The tool says what it really cost."""
        self._told = amount

    @property
    def actual(self) -> int:
        """What it cost: what the tool said, or what was reserved."""
        return self.reservation.amount if self._told is None else self._told


current_price: ContextVar[PriceTag | None] = ContextVar("onceward_price", default=None)
"""Set around a tool that has a price."""


def actual_price(amount: Decimal | int | str) -> None:
    """
    Say, inside a tool, what this call really cost: it is settled in the place of the price that was reserved.

    Outside of a call that has a price it does nothing, so that a tool can be used without a gate. What is no amount is
    logged and changes nothing: the tool has had its effect, and that matters more than its price.
    """
    tag = current_price.get()
    if tag is None:
        return
    try:
        tag.tell(amount_of(amount, "the actual price"))
    except ConfigurationError as error:
        _log.error("onceward: %s; the reserved price is charged", error)


def tag_of(spend: Spend, scope: str, call: ToolCall, tool: Tool, operation: Operation) -> PriceTag:
    """The price of a call; `ConfigurationError` if that is no amount."""
    price: Price | None = tool.price
    if callable(price):
        price = price(call.arguments)
    return PriceTag(spend.cap(scope, call.run), operation, amount_of(price, f"the price of {call.tool}"))


def amount_of(value: object, what: str) -> int:
    """An amount as whole billionths: not negative, and exact."""
    try:
        if (isinstance(value, int | Decimal) and value == 0) or (isinstance(value, str) and _is_zero(value)):
            return 0
        amount = parse_amount(value)
    except RequestInvalid:
        amount = -1
    if amount < 0 or isinstance(value, bool):
        raise ConfigurationError(
            f"{what} must be an amount such as '12.50', as text, int or Decimal: not negative, at most nine decimal "
            f"places, and no float; not {str(value)[:40]!r}"
        )
    return amount


def _is_zero(text: str) -> bool:
    return text.strip("0") in ("", ".") and any(one == "0" for one in text)


def _exact(amount: int) -> Decimal:
    return Decimal(format_amount(amount))


def _billionths(amount: Decimal) -> int:
    return int(amount.scaleb(9))


def _shown(name: str) -> str:
    """A run's name as the record shows it: as it is if it can be a key, otherwise its digest."""
    try:
        return check_key(name)
    except KeyInvalid:
        return key_digest(name)


def check_prices(tools: Mapping[str, Tool]) -> None:
    """Refuse, where a gate is made, prices that cannot work."""
    for name, tool in tools.items():
        if tool.price is not None and not callable(tool.price):
            amount_of(tool.price, f"the price of {name}")
