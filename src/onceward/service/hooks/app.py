"""
`POST /hooks/{source}`: where senders deliver their events.

There is no token: the signature over the raw body is the credential. Whoever's signature is not right is counted by
address, as whoever has no valid token is. A body is read only for a source that there is, and only as far as its
address and its source may have bytes under way. An address with too many wrong signatures may send short bodies only:
those cost next to nothing, so that a right signature on one of them is never slowed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from onceward._core.errors import (
    BodyTooLarge,
    ConfigurationError,
    EventInvalid,
    OncewardError,
    QuotaExceeded,
    RateLimitError,
    SealKeyMissing,
    SignatureInvalid,
    SourceUnknown,
    SourceUnready,
    StoreContended,
    StoreFull,
    StoreUnavailable,
)
from onceward.messaging.inbox import AsyncInbox, ReceivedEvent
from onceward.messaging.inbox.event_receiver import BODY_BYTES_MAX, accepted_response
from onceward.messaging.inbox.event_table import EVENT_BYTES
from onceward.service.access import Accounts, Allowance, Totals, tenant_of
from onceward.service.web.bodies import BodyIntake, declared_length, refuse_debtor
from onceward.service.web.calls import Authenticator
from onceward.service.web.endpoints import EXCEPTION_HANDLERS, ApiEndpoint
from onceward.service.web.problems import error_response, log, starlette_response
from onceward.service.web.service_contract import AppContract

GROUP = "Hooks"
PATH = "/hooks/{source}"
RECEIVES: tuple[type[OncewardError], ...] = (
    *(SignatureInvalid, SourceUnknown, SourceUnready, EventInvalid, BodyTooLarge, RateLimitError),
    *(StoreUnavailable, StoreContended, StoreFull, SealKeyMissing),
)
SHORT_BYTES = 65_536
"""A body that is read from any address: most events are far shorter, and the server has read as much already."""
READ_SECONDS_PER_BYTE = 6e-9
"""Of processor time: verifying and reading five megabytes takes 30 ms. The address that they come from pays."""
SOURCE_BYTES_MAX = 32 << 20
"""Of longer bodies under way to one source: whoever knows its name can send to it. One address has half of them."""


class EventReceived(msgspec.Struct, omit_defaults=True):
    """The event is here, durably, and will be processed once."""

    received: bool
    duplicate: bool = False
    """It was here before."""


class HooksApp:
    """The endpoint over one inbox."""

    def __init__(self, inbox: AsyncInbox, authenticator: Authenticator) -> None:
        self._inbox = inbox
        self._authenticator = authenticator
        self._sources: dict[str, Accounts] = {}

    def endpoints(self) -> list[ApiEndpoint]:
        """The table."""
        return [
            ApiEndpoint("POST", PATH, cast("Any", self.received), "Receive a signed event from a source.",
                     EventReceived, signed=True, refusals=RECEIVES),
        ]  # fmt: skip

    def contract(self) -> AppContract:
        """What is published about it. Its keys are the senders': an event's own id, as its source says."""
        return AppContract(GROUP, self.endpoints(), limits={"bodyBytesMax": BODY_BYTES_MAX})

    def app(self) -> Starlette:
        """The application, to be mounted anywhere."""
        return Starlette(routes=[Route(PATH, self.received, methods=["POST"])], exception_handlers=EXCEPTION_HANDLERS)

    async def received(self, request: Request) -> Response:
        """One delivery. No caller is admitted here: the bytes themselves say who sent them."""
        source = request.path_params["source"]
        try:
            scope = await self._scope_of(request, source)
            payer = self._authenticator.accounts.of_address(self._authenticator.address(request))
            refuse_debtor(payer)
            with self._intake(request, source) as intake:
                body = await intake.read(request)
                payer.spend_cpu(len(body) * READ_SECONDS_PER_BYTE)  # Whether it is an event or not.
                received = await self._receive(request, source, scope, body)
            return starlette_response(accepted_response(received))
        except OncewardError as error:
            return error_response(error)
        except ClientDisconnect:
            return Response(status_code=499)

    async def _scope_of(self, request: Request, source: str) -> str:
        """Whose source it is. What needs no body to be refused is refused here."""
        try:
            scope = await self._inbox.source_scope(source)
        except SourceUnknown as error:
            raise self._authenticator.counted(request, error) from None
        if not _is_short(request):
            self._authenticator.refuse_flood(request)
        return scope

    def _intake(self, request: Request, source: str) -> BodyIntake:
        address = self._authenticator.address(request)
        accounts = [self._authenticator.accounts.of_address(address)]
        if not _is_short(request):
            accounts.append(self._pool_of(source).of_address(address))
        return BodyIntake(*accounts, most=BODY_BYTES_MAX)

    def _pool_of(self, source: str) -> Accounts:
        """What the senders to one source may have under way; there are as many as there are sources."""
        if source not in self._sources:
            most = SOURCE_BYTES_MAX
            self._sources[source] = Accounts(
                self._authenticator.accounts.monotonic, Allowance(body_bytes=most), Totals(body_bytes=most)
            )
        return self._sources[source]

    async def _receive(self, request: Request, source: str, scope: str, body: bytes) -> ReceivedEvent:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
        receive = partial(self._inbox.receive, source, headers, body)
        try:
            return await self._within_quota(source, scope, len(body), receive)
        except (SignatureInvalid, SourceUnknown) as error:
            raise self._authenticator.counted(request, error) from None

    async def _within_quota(
        self, source: str, scope: str, size: int, receive: Callable[[], Awaitable[ReceivedEvent]]
    ) -> ReceivedEvent:
        """Receive within what the tenant of the source may hold; a sender that is refused comes again."""
        access, made = self._authenticator.access, 0
        tenant = tenant_of(scope)
        try:
            room = None if tenant is None else await access.admit(tenant, bytes=size + EVENT_BYTES)
        except ConfigurationError:
            room = None  # Its scope is nobody's who is known here, so nobody has a quota.
        except QuotaExceeded as full:
            # Whose quota it is, and how large, is none of the sender's business.
            log.warning("%s: an event was refused for now, and its sender should send it again: %s", source, full)
            raise RateLimitError(
                "there is no room for more events from this source now; nothing was stored. Send it again later",
                retry_after_seconds=full.retry_after_seconds,
            ) from None
        try:
            received = await receive()
            made = int(not received.duplicate)
            return received
        finally:
            if room is not None:
                access.settle_room(room, records=room.records * made, bytes=(room.bytes or 0) * made)


def _is_short(request: Request) -> bool:
    size = declared_length(request)
    return size is not None and size <= SHORT_BYTES
