"""
The login of `onceward dashboard`: a code that works once, printed where the command was started.

Whoever can read that terminal is whoever may decide there anyway. When a code was used, the next one is printed, so
that a second browser, or the same one tomorrow, can come in.
"""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest

from starlette.requests import Request

from onceward._core.errors import TokenInvalid
from onceward.audit import DASHBOARD
from onceward.dashboard.sessions import DashboardRole, Principal
from onceward.runtime.environment import REAL, Environment

CODE_BYTES = 24


class LocalDoorkeeper:
    """Lets in whoever has the code of the moment."""

    label = "Login code"
    help = "It is printed where onceward dashboard was started. Each code works once."

    def __init__(
        self,
        account: str,
        role: DashboardRole,
        announce: Callable[[str], object],
        environment: Environment = REAL,
    ) -> None:
        self._principal = Principal(account, DASHBOARD, role)
        self._announce = announce
        self._environment = environment
        self._code = ""

    def renew(self) -> None:
        """Make a new code, and announce it."""
        self._code = self._environment.random(CODE_BYTES).hex()
        self._announce(self._code)

    async def enter(self, request: Request, given: str) -> Principal:
        """Whoever gave the code; it is used up."""
        if not self._code or not compare_digest(self._code.encode(), given.encode()):
            raise TokenInvalid(
                "this code is not valid: each code works once. The latest one is printed where onceward dashboard was "
                "started"
            )
        self.renew()
        return self._principal

    async def again(self, request: Request, principal: Principal) -> Principal:
        """Nothing changes while the command runs."""
        return principal
