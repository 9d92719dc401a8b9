"""
One call of the API (`ApiCall`), and `Authenticator`, which says who makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from onceward._core.errors import OncewardError, RateLimitError
from onceward.http.server.profile import Profile
from onceward.http.server.request_identity import RequestIdentity, identity_of
from onceward.protocol.usage_header import CallUsage
from onceward.runtime.environment import REAL
from onceward.service.access import Accounts, AsyncAccess, Caller, FloodControl, client_address
from onceward.service.access.accounts import Account
from onceward.service.access.addresses import Network
from onceward.service.web.bodies import BodyParser
from onceward.service.web.problems import RequestMalformed
from onceward.service.web.request_head import RequestHead, head_of

OnCallEnded: TypeAlias = Callable[[Response | None, OncewardError | None], None]
"""Called when a call has ended, with the response and the refusal. No response: the client is gone."""


_ONLY_READ = "onceward.only_read"


def only_read(request: Request) -> bool:
    """Whether a call that has ended is known to have changed nothing, whatever its method: `ApiCall.note_read`."""
    return _ONLY_READ in request.scope


class CallObserver(Protocol):
    """Sees calls begin and end. It must not wait, and it must not raise."""

    def begun(self, caller: Caller, request: Request) -> OnCallEnded:
        """A call of somebody who may make it begins; the result is called when it ends."""


class Authenticator:
    """Finds the caller of a request, and its account. Calls without a valid token are limited by address."""

    def __init__(
        self,
        access: AsyncAccess,
        flood: FloodControl,
        trusted: Sequence[Network] = (),
        observer: CallObserver | None = None,
        accounts: Accounts | None = None,
    ) -> None:
        self.access = access
        self.observer = observer
        self.accounts = Accounts(REAL.monotonic) if accounts is None else accounts
        self.parser = BodyParser()
        self._flood = flood
        self._trusted = trusted

    def known_caller(self, head: RequestHead) -> Caller | None:
        """The caller of a request, if its token was judged just now; None: `admit` it. Nothing is waited for."""
        if self._trusted:
            return None  # What proxies wrote is checked before all else.
        sent = head.first(b"authorization") if head.single is not None else None
        return None if sent is None else self.access.known_caller([sent.decode("latin-1")])

    async def admit(self, request: Request) -> Caller:
        """The caller; `TokenInvalid`, or `RateLimitError` for an address that has tried too often."""
        authorization = [value.decode("latin-1") for value in head_of(request.scope).all(b"authorization")]
        address = self.address(request) if self._trusted else ""  # What proxies wrote is checked before all else.
        known = self.access.known_caller(authorization)
        if known is not None:
            return known
        return await self.access.enter(self._flood, authorization, address or self.address(request))

    async def admit_token(self, request: Request, token: str) -> Caller:
        """Same as `admit`, for a token that came in a form."""
        return await self.access.enter(self._flood, [f"Bearer {token}"], self.address(request))

    def counted(self, request: Request, error: OncewardError) -> OncewardError:
        """
        The error for a call whose sender could not be verified by other means than a token: a wrong signature.

        This is the error itself or, once too many such calls came from one address, `RateLimitError`.
        """
        wait = self._flood.retry_after(self.address(request))
        return error if wait is None else _too_many(wait)

    def refuse_flood(self, request: Request) -> None:
        """`RateLimitError` if too many such calls came from this address already. This one is not counted."""
        wait = self._flood.wait_of(self.address(request))
        if wait is not None:
            raise _too_many(wait)

    def account_of(self, caller: Caller) -> Account:
        """What a caller's tenant uses of this process."""
        return self.accounts.of_tenant(caller.tenant)

    def address(self, request: Request) -> str:
        """The caller's address: the connection's own, or the one that trusted proxies vouch for."""
        client = request.scope.get("client")
        peer = client[0] if client is not None else "unknown"
        raw = request.scope["headers"] if self._trusted else ()  # Without a trusted proxy these are ignored.
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]
        return client_address(peer, headers, self._trusted)


def _too_many(wait: int) -> RateLimitError:
    return RateLimitError(
        f"too many calls without a valid signature from this address. Retry in {wait} s", retry_after_seconds=wait
    )


class ApiCall:
    """One call, as an endpoint's function sees it."""

    def __init__(self, request: Request, caller: Caller, account: Account, body: Any, size: int = 0) -> None:
        self.request = request
        self.caller = caller
        self.body = body
        """What was sent, as the endpoint's own type; None if it takes nothing."""
        self.size = size
        """How many bytes that were."""
        self.account = account
        """What the caller's tenant uses of this process."""
        self.usage = CallUsage()
        """What this call cost, and what is left: for its response's header, whatever the response is."""

    def note_read(self) -> None:
        """It has ended, and has only read, although its method allows for more."""
        self.request.scope[_ONLY_READ] = True

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.scope["path_params"][name])

    def query(self, name: str) -> str | None:
        """A parameter of the query; refused if it is there twice."""
        values = self.request.query_params.getlist(name)
        if len(values) > 1:
            raise RequestMalformed(f"the parameter {name} was sent {len(values)} times; send it once")
        return values[0] if values else None

    def limit(self, most: int) -> int:
        """How many entries a page shall have: the parameter `limit`, or as many as there may be."""
        text = self.query("limit") or str(most)
        if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= most:
            raise RequestMalformed(f"limit must be a whole number from 1 to {most}")
        return int(text)

    def identity(self, profile: Profile) -> RequestIdentity | None:
        """The key or the step that this call names."""
        head = head_of(self.request.scope)
        return identity_of(head.fields, profile, head.single)
