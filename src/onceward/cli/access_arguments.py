"""
What the commands about tokens and tenants share: how they open, their arguments, their documents.

A token's secret passes through once, from `create` or `rotate` to stdout. It is in no error, no log, and no document
but that one.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from onceward._core.errors import OncewardError
from onceward._core.operation import to_datetime
from onceward.cli.store_argument import existing_store_url
from onceward.service.access import Access, Tenant, TokenView
from onceward.service.access.balances import AMOUNT_MAX
from onceward.service.access.flows import check_token_id
from onceward.service.access.scopes import check_tenant
from onceward.service.access.tenants import check_quota

T = TypeVar("T")
U = TypeVar("U")

_AMOUNT = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,6}))?", re.ASCII)


@contextmanager
def open_access(args: argparse.Namespace, *, create: bool = False) -> Iterator[Access]:
    """The tenants and tokens of the store that was named, open for the length of a `with` block."""
    with Access.open(existing_store_url(args), create=create) as access:
        yield access


def tenant_name(text: str) -> str:
    """An argument that names a tenant."""
    return _checked(check_tenant, text)


def token_id(text: str) -> str:
    """An argument that names a token."""
    return _checked(check_token_id, text)


def amount(text: str) -> int:
    """An argument that is money: units, with up to six decimals; exact, in micro-units."""
    found = _AMOUNT.fullmatch(text)
    micro = int(found[1]) * 1_000_000 + int((found[2] or "").ljust(6, "0")) if found else 0
    if not 0 < micro <= AMOUNT_MAX:
        raise argparse.ArgumentTypeError("give an amount above zero, such as 25 or 25.50, with at most six decimals")
    return micro


def quota(text: str) -> int | None:
    """An argument that is a limit, or `none`."""
    if text == "none":
        return None
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 16 else -1
    return _checked(_as_quota, number)


def token_document(view: TokenView) -> dict[str, Any]:
    """A token, for programs; its secret and its digest are not part of it."""
    return {
        "id": view.id,
        "family": view.family,
        "tenant": view.tenant,
        "environment": view.environment,
        "role": view.role,
        "databases": None if view.databases is None else list(view.databases),
        "state": view.state,
        "createdAt": format_instant(view.created_at),
        "lastUsedAt": format_instant(view.last_used_at),
        "expiresAt": format_instant(view.expires_at),
        "revokedAt": format_instant(view.revoked_at),
        "successor": view.successor,
    }


def tenant_document(tenant: Tenant) -> dict[str, Any]:
    """A tenant, for programs. Money is micro-units: whole numbers."""
    limited = tenant.quota_records is not None or tenant.quota_bytes is not None
    return {
        "name": tenant.name,
        "createdAt": format_instant(tenant.created_at),
        "prepaid": tenant.balance is not None,
        "balanceMicro": tenant.balance,
        "reservedMicro": tenant.reserved,
        "quotaRecords": tenant.quota_records,
        "quotaBytes": tenant.quota_bytes,
        "quotaDatabases": tenant.quota_databases,
        "usedRecords": tenant.used_records if limited else None,
        "usedBytes": tenant.used_bytes if limited else None,
        "countedAt": format_instant(tenant.counted_at) if limited else None,
        "tokens": tenant.tokens,
        "erasingSince": format_instant(tenant.erasing_at),
    }


def format_instant(micros: int | None) -> str | None:
    """An instant, for people and programs."""
    return None if micros is None else to_datetime(micros).isoformat(timespec="seconds")


def _as_quota(number: int) -> int | None:
    return check_quota(number, "this kind")


def _checked(check: Callable[[T], U], value: T) -> U:
    try:
        return check(value)
    except OncewardError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
