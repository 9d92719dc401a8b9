"""
`NewDelta`, a delta to be booked, and `Reference`, a shape for its name. Checked here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

from onceward._core.canonical import canonical
from onceward._core.errors import ConfigurationError, KeyMissing, RequestInvalid
from onceward._core.key_recipes import recipe
from onceward._core.keys import environment_key, mint_from
from onceward.protocol.amounts import format_amount, parse_amount
from onceward.protocol.limits import METADATA_BYTES_MAX, REASON_CHARACTERS_MAX, is_customer
from onceward.runtime.environment import REAL

Amount: TypeAlias = Decimal | int | str

_PARTS = recipe("{vendor}:{operation}:{bucket}:{identifier}")


@dataclass(frozen=True, slots=True)
class Reference:
    """
    References of the shape `vendor:operation:bucket:identifier`, such as `acme:call:2026-11:7f3a...`.

    `new()` makes one with a fresh identifier: store it before the first send, or leave both to an emitter. `of(id)`
    makes one from an identifier that you have. A colon in a part is escaped, so that no two of them run together.
    """

    vendor: str
    operation: str
    bucket: str

    def __post_init__(self) -> None:
        self.of("x")  # Refused now, and not at the first event.

    def of(self, identifier: object) -> str:
        """The reference with this identifier: the same whenever that is."""
        parts = {"vendor": self.vendor, "operation": self.operation, "bucket": self.bucket}
        return _PARTS.key({**parts, "identifier": identifier})

    def new(self) -> str:
        """A reference that nobody else has. A crash before it is stored loses it."""
        return self.of(mint_from(REAL.random(16)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDelta:
    """A delta to be booked. `delta` is a Decimal, an int or text such as "12.50"; never a float."""

    customer: str
    delta: Amount
    reason: str
    reference_id: str | None = None
    """Your own name for it, made of what it is about: booked once, however often it is sent."""
    metadata: Mapping[str, Any] | None = field(default=None, repr=False)
    corrects: str | None = None
    """The id of the delta that this one corrects. That one stays as it is."""
    period: str | None = None
    """The month that it belongs to (`2026-11`); without it, the current one."""

    def document(self, environment: str) -> dict[str, Any]:
        """The JSON document that is sent: always the same. Refused if it cannot be booked."""
        if not is_customer(self.customer):
            raise _refused("customer is not valid: pass 1 to 128 of A-Z, a-z, 0-9, '_', '.', ':' and '-'")
        if not isinstance(self.reason, str) or not 1 <= len(self.reason) <= REASON_CHARACTERS_MAX:
            raise _refused(f"reason is not valid: pass text of 1 to {REASON_CHARACTERS_MAX} characters")
        if self.reference_id is not None:
            environment_key(environment, self.reference_id)
        members = {
            "customerId": self.customer,
            "delta": _amount_text(self.delta),
            "reason": self.reason,
            "referenceId": self.reference_id,
            "metadata": None if self.metadata is None else _checked_metadata(self.metadata),
            "corrects": self.corrects,
            "period": self.period,
        }
        return {name: value for name, value in members.items() if value is not None}


def check_named(delta: NewDelta, key: str | None) -> NewDelta:
    """Return a delta that has a reference, or is sent under a key; without either, a retry would book it twice."""
    if delta.reference_id is None and key is None:
        raise KeyMissing(
            "the delta has no reference and no key, and a retry would book it twice. Pass reference_id=..., made from "
            "the event itself (see Reference), or use an emitter, which makes one; nothing was sent"
        )
    return delta


def _amount_text(delta: Any) -> str:
    if isinstance(delta, float):
        raise _refused(
            "delta is a float, which is not exact. Pass Decimal('0.1'), the text '0.1', or whole units as an int"
        )
    return format_amount(parse_amount(delta))


def _checked_metadata(metadata: Any) -> dict[str, Any]:
    if not isinstance(metadata, Mapping):
        raise ConfigurationError("metadata must be a mapping from names to plain data")
    size = len(canonical(dict(metadata)))
    if size > METADATA_BYTES_MAX:
        raise _refused(f"metadata has {size:,} bytes; the limit is {METADATA_BYTES_MAX:,}")
    return dict(metadata)


def _refused(why: str) -> RequestInvalid:
    return RequestInvalid(f"{why}; nothing was sent")
