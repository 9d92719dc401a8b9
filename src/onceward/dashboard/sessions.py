"""
Who looks at the dashboard, what they may do, and proof that a form came from a page of ours.

Sessions are kept here, in the memory of the process, under the digest of a random name that only the browser's cookie
has. A restart ends them. Each form carries a token of its session; and the browser must say that the form was sent from
our own origin.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import sha256
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from onceward.runtime.environment import REAL, Environment

COOKIE = "onceward_dashboard"
SECRET_BYTES = 32
SESSION_SECONDS = 8 * 3_600.0
"""A working day; then one logs in again."""
IDLE_SECONDS = 3_600.0
"""Without a request. An open page asks every few seconds, unless it is paused or in the background."""
SESSIONS_MAX = 1_000
"""In one process. The one that was used least recently gives way."""


class DashboardRole(IntEnum):
    """What a person may do here; each role includes those before it."""

    VIEW = 1
    """Look. Stored values are masked."""
    DECIDE = 2
    """Decide what is in doubt, and requeue or discard what was given up."""
    ADMIN = 3
    """Also see stored values, if the dashboard was started with them shown."""

    @property
    def word(self) -> str:
        """In lower case, as people type it."""
        return self.name.lower()


def everything(scope: str) -> bool:
    """Of whoever may see every scope."""
    return True


@dataclass(frozen=True)
class Reach:
    """Whose records somebody may see: all of a store, or those of one tenant."""

    scope: str | None = None
    """The scope that a list is read from; None: every scope."""
    sees: Callable[[str], bool] = field(default=everything, repr=False)
    """Whether records of a scope may be shown. Asked of everything that was read."""
    tenant: str | None = None
    environment: str | None = None


@dataclass(frozen=True)
class Principal:
    """A person who has logged in."""

    name: str
    """For the decision log and the page's corner: an account, or the id of a token. Never a secret."""
    via: str
    """Where decisions come from, as the decision log calls it."""
    role: DashboardRole
    reach: Reach = Reach()
    credential: str | None = field(default=None, repr=False)
    """What was given to log in, to be checked again at each request; in the memory of this process only."""
    pages: frozenset[str] | None = None
    """The pages that it may open; None: all of its dashboard."""

    def may_open(self, page: str) -> bool:
        """Whether a page is for it."""
        return self.pages is None or page in self.pages


@dataclass
class DashboardSession:
    """One login."""

    principal: Principal
    csrf: str = field(repr=False)
    ends_at: float
    seen_at: float
    said: str | None = None
    """What the next page tells: that something was done."""

    def take_said(self) -> str | None:
        """What is to be told, once."""
        said, self.said = self.said, None
        return said


class Sessions:
    """The sessions of one process. Safe in one event loop."""

    def __init__(self, environment: Environment = REAL, *, cookie_path: str = "/") -> None:
        self._environment = environment
        self._path = cookie_path
        # Cookies are kept by host, whatever the port: another dashboard on this machine has another name.
        self.cookie = f"{COOKIE}_{environment.random(4).hex()}"
        self._open: OrderedDict[str, DashboardSession] = OrderedDict()

    def begin(self, response: Response, principal: Principal, *, secure: bool) -> DashboardSession:
        """Begin a session under a new name, and give the browser its cookie."""
        name, now = self._secret(), self._environment.monotonic()
        session = DashboardSession(principal, self._secret(), now + SESSION_SECONDS, now)
        self._open[_digest(name)] = session
        while len(self._open) > SESSIONS_MAX:
            self._open.popitem(last=False)
        response.set_cookie(
            self.cookie,
            name,
            max_age=int(SESSION_SECONDS),
            path=self._path,
            secure=secure,
            httponly=True,
            samesite="strict",
        )
        return session

    def find(self, request: Request) -> DashboardSession | None:
        """The session of a request; None if there is none, or it is over."""
        digest = _digest(_cookie_of(request, self.cookie))
        session = self._open.get(digest)
        if session is None:
            return None
        now = self._environment.monotonic()
        if now >= session.ends_at or now >= session.seen_at + IDLE_SECONDS:
            del self._open[digest]
            return None
        session.seen_at = now
        self._open.move_to_end(digest)
        return session

    def end(self, request: Request, response: Response) -> None:
        """End the session of a request, here and in the browser."""
        self._open.pop(_digest(_cookie_of(request, self.cookie)), None)
        response.delete_cookie(self.cookie, path=self._path, httponly=True, samesite="strict")

    def _secret(self) -> str:
        return self._environment.random(SECRET_BYTES).hex()


def is_same_origin(request: Request) -> bool:
    """
    Whether the browser says that a form was sent from a page of ours.

    Every browser says so in one of two headers, which no page can set. What sends neither is not a browser that
    somebody is logged in with, and is refused.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin", "")
    return bool(origin) and urlsplit(origin).netloc == request.headers.get("host")


def is_form_of(session: DashboardSession, given: str | None) -> bool:
    """Whether a form carries its session's token."""
    return given is not None and compare_digest(session.csrf.encode(), given.encode())


def _digest(name: str) -> str:
    return sha256(name.encode("utf-8", "surrogateescape")).hexdigest()


def _cookie_of(request: Request, cookie: str) -> str:
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(cookie)
    except CookieError:
        return ""
    return "" if found is None else found.value
