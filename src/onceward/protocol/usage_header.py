"""
`Onceward-Usage`: what a call cost and what is left, in a header of its response.

    Onceward-Usage: cost=1000, balance=8999000, bytes-grown=4096, bytes-left=195904, records-left=17

A header, because a replayed body is the first one byte for byte, and what a call cost is not: a replay costs nothing.
The value is a dictionary of structured fields (RFC 9651); whole numbers only. Money is micro-units.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter

USAGE_HEADER = "onceward-usage"


@dataclass(slots=True, kw_only=True)
class CallUsage:
    """What one call cost, and what is left. None: it does not apply, or was not asked."""

    cost: int | None = None
    """Micro-units that it cost a tenant who pays in advance; 0 for a replay, and for what was refused before it ran."""
    balance: int | None = None
    """Micro-units left, as this call left them."""
    cpu_us: int | None = None
    """Microseconds of a processor that it took."""
    bytes_grown: int | None = None
    """Bytes by which it made a database grow."""
    bytes_left: int | None = None
    """Bytes that the tenant's quota leaves."""
    records_left: int | None = None
    """Records that the tenant's quota leaves."""

    def add_cpu(self, seconds: float) -> None:
        """It took so much more of a processor."""
        self.cpu_us = (self.cpu_us or 0) + round(seconds * 1_000_000)

    def header(self) -> str:
        """The value of the header; empty if there is nothing to say."""
        values = _values(self)
        return ", ".join([f"{name}={value}" for name, value in zip(_NAMES, values, strict=True) if value is not None])


_NAMES = tuple(field.name.replace("_", "-") for field in fields(CallUsage))
_values = attrgetter(*(field.name for field in fields(CallUsage)))


def parse_usage(value: str) -> CallUsage:
    """What a header says; what it does not say, or says in another way, stays None."""
    usage = CallUsage()
    known = {field.name for field in fields(CallUsage)}
    for member in value.split(","):
        name, _, number = member.strip().partition("=")
        digits = number.removeprefix("-")
        if name.replace("-", "_") in known and digits.isascii() and digits.isdigit() and len(digits) <= 18:
            setattr(usage, name.replace("-", "_"), int(number))
    return usage
