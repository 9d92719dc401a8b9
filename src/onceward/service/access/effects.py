"""
What a flow of `access` may ask for besides a transaction, and the names of its failpoints.
"""

from __future__ import annotations

from typing import NamedTuple

from onceward.stores.tables.sql_steps import declare_failpoints


class CountUsage(NamedTuple):
    """Count what is held; the result is (scope, records, bytes), for every scope of the store and what is elsewhere."""

    tenants: tuple[str, ...]
    """Those who have a quota: of the others nothing needs to be known."""


class AskRecords(NamedTuple):
    """Ask the records of operations whether they ran; the result is a mapping from those that did to how long ago."""

    operations: tuple[str, ...]


BOUNDARIES = {
    "access.token": "a token is written, rotated or revoked",
    "access.tenant": "a tenant is written",
    "access.charge": "a price is reserved",
    "access.commit": "a reservation is committed",
    "access.give_back": "a reservation is given back",
    "access.top_up": "a balance is topped up",
    "access.sweep": "lapsed reservations are ended",
    "access.touch": "the use of a token is noted",
    "access.count": "the count of records is written",
    "access.erase": "a batch of a tenant is erased",
}
declare_failpoints(BOUNDARIES)
