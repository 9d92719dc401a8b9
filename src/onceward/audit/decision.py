"""
What a decision is: who decided what, about which subject, from where and why; and what of it goes with a tenant.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

from onceward._core.errors import RequestInvalid

CLI = "cli"
"""Decided by a command."""
API = "api"
"""Decided by a program, through an API."""
DASHBOARD = "dashboard"
"""Decided on a page of the dashboard."""
SERVICE = "service"
"""Decided by the service itself."""
WAYS = (CLI, API, DASHBOARD, SERVICE)
"""Where a decision came from; `service`: a service that made its own first tenant and token."""

DONE = "done"
FAILED = "failed"
UNKNOWN = "unknown"

ERASE = "tenant.erase"
"""The action that erases a tenant, whose texts go with it."""

INTENT = "intent"
OUTCOME = "outcome"

ACTOR = "actor"
SUBJECT = "subject"
REASON = "reason"
DETAILS = "details"

REASON_CHARACTERS_MAX = 500
ACTOR_CHARACTERS_MAX = 200
SUBJECT_CHARACTERS_MAX = 300


class Operator(NamedTuple):
    """Who decides: for people, a name and the account; for a program, the id of its token. Never a secret."""

    actor: str
    via: str
    reason: str | None = None

    def checked(self) -> Operator:
        """Itself, if it can be written down."""
        if self.via not in WAYS:
            raise RequestInvalid(f"a decision comes from one of {', '.join(WAYS)}, not {self.via[:40]!r}")
        check_line("an actor", self.actor, ACTOR_CHARACTERS_MAX)
        if self.reason is not None:
            check_line("a reason", self.reason, REASON_CHARACTERS_MAX)
        return self


class Decision(NamedTuple):
    """What is about to be decided. Nothing in it is a secret or a tenant's content: results are digests."""

    action: str
    """Such as `record.release`."""
    subject: str
    """An id or a digest."""
    operator: Operator
    tenant: str | None = None
    """Whom it is about. What is written down about a tenant is erased with it."""
    environment: str | None = None
    """`live` or `test`; None: of both, such as a quota."""
    before: Mapping[str, Any] | None = None


def check_line(what: str, text: str, most: int) -> str:
    """A text that is one visible line."""
    if not 0 < len(text.strip()) <= len(text) <= most:
        raise RequestInvalid(f"{what} has 1 to {most} characters; this has {len(text)}")
    if any(unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") for one in text):
        raise RequestInvalid(f"{what} is one line of text: leave line breaks and control characters out")
    return text


def goes_with_tenant(kind: str, action: str, via: str, part: str) -> bool:
    """
    Whether a part of an entry about a tenant is erased with the tenant.

    Who decided stays, unless it was a token of the tenant's own. Of the erasure itself the reason stays, too, and its
    outcome, which counts and names nobody.
    """
    if part == ACTOR:
        return via == API
    if action == ERASE:
        return kind == INTENT and part != REASON
    return True
