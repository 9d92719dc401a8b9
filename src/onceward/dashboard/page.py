"""
What a page is: where it stands, who may open it, and a function from what was asked to what is shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from starlette.requests import Request

from onceward._core.dead_letters import DeadLetter
from onceward._core.errors import RequestInvalid
from onceward.dashboard.data import DashboardData
from onceward.dashboard.html import Content
from onceward.dashboard.layout import Chrome
from onceward.dashboard.sessions import DashboardRole, DashboardSession, Principal, Reach
from onceward.gate.operator_actions import ID_DIGITS
from onceward.gate.record_view import RecordView

_HEX = frozenset("0123456789abcdef")


class PageMissing(Exception):
    """There is no such page, or no such thing to show on it."""


@dataclass(frozen=True)
class DashboardOptions:
    """What a dashboard may do besides showing what is there."""

    show_values: bool = False
    """Whether stored requests and results are shown to admins; otherwise they are masked for everybody."""
    requeue: Callable[[DeadLetter, bool], object] | None = None
    """Does an operation again that was given up; None: nobody here can, and the page shows the command for it."""
    probe: Callable[[RecordView], object] | None = None
    """Looks up whether an operation in doubt happened: given a `RecordView`, it returns Found, NOT_FOUND or None."""


@dataclass(frozen=True)
class PageRequest:
    """What a page is asked."""

    data: DashboardData
    chrome: Chrome
    session: DashboardSession
    options: DashboardOptions
    names: Mapping[str, str]
    """Of the path."""
    query: Mapping[str, str]
    form: Mapping[str, str]
    """What was sent; empty unless it is an action."""
    http: Request

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return self.session.principal

    @property
    def reach(self) -> Reach:
        """What they may see."""
        return self.session.principal.reach

    @property
    def shows_values(self) -> bool:
        """Whether stored values are shown to whoever asks."""
        return self.options.show_values and self.principal.role >= DashboardRole.ADMIN

    def id(self, name: str = "id") -> bytes:
        """A record's whole id in the path."""
        text = self.names[name]
        if len(text) != ID_DIGITS or not set(text) <= _HEX:
            raise PageMissing
        return bytes.fromhex(text)

    def reason(self) -> str | None:
        """Why something is decided; refused if it is missing and must not be."""
        given = self.form.get("reason", "").strip()
        if not given and self.data.log.is_chained and self.data.log.reasons_required():
            raise RequestInvalid("a reason is required here: write down why, and decide again")
        return given or None

    def instant(self, name: str) -> int | None:
        """A moment in the query, as a browser's field for date and time gives it, in UTC."""
        text = self.query.get(name, "")
        if not text:
            return None
        try:
            return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000_000)
        except (ValueError, OverflowError):
            raise RequestInvalid(f"{text[:40]!r} is not a date and time such as 2026-03-01T09:00") from None


class Shown(NamedTuple):
    """A page to be shown."""

    title: str
    body: Content
    live: bool = False
    """Whether it is refreshed while it is open."""


class Done(NamedTuple):
    """An action was carried out: the browser goes on to a page, which says so."""

    path: str
    said: str


@dataclass(frozen=True)
class Page:
    """One page or action."""

    name: str
    """The page of the menu that it belongs to."""
    path: str
    run: Callable[[PageRequest], Shown | Done] | None = None
    """It blocks, and runs in a thread."""
    run_async: Callable[[PageRequest], Awaitable[Shown | Done]] | None = None
    """In place of it: for a page that awaits."""
    title: str = ""
    """In the menu; empty: it is not there."""
    role: DashboardRole = DashboardRole.VIEW
    action: bool = False
    """Whether it changes something: sent as a form, with the token of its session."""
    operators_only: bool = False
    """Whether it shows what belongs to no tenant, so that no tenant sees it."""
