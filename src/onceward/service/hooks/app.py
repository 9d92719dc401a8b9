"""
`POST /hooks/{source}`: where senders deliver their events.

There is no token: the signature over the raw body is the credential. Whoever's signature is not right is counted by
address, as whoever has no valid token is; a right one is never slowed.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from onceward._core.errors import (
    BodyTooLarge,
    EventInvalid,
    OncewardError,
    RateLimitError,
    SignatureInvalid,
    SourceUnknown,
    SourceUnready,
    StoreContended,
    StoreFull,
    StoreUnavailable,
)
from onceward.messaging.inbox import AsyncInbox, ReceivedEvent
from onceward.messaging.inbox.event_receiver import BODY_BYTES_MAX, accepted_response
from onceward.service.web.calls import Authenticator
from onceward.service.web.endpoints import EXCEPTION_HANDLERS, ApiEndpoint, read_body
from onceward.service.web.problems import error_response, starlette_response
from onceward.service.web.service_contract import AppContract

GROUP = "Hooks"
PATH = "/hooks/{source}"
RECEIVES: tuple[type[OncewardError], ...] = (
    *(SignatureInvalid, SourceUnknown, SourceUnready, EventInvalid, BodyTooLarge, RateLimitError),
    *(StoreUnavailable, StoreContended, StoreFull),
)


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

    def endpoints(self) -> list[ApiEndpoint]:
        """The table."""
        return [
            ApiEndpoint("POST", PATH, cast("Any", self.received), "Receive an event of a source, signed by its sender.",
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
        try:
            body = await read_body(request, BODY_BYTES_MAX)
            return starlette_response(accepted_response(await self._receive(request, body)))
        except OncewardError as error:
            return error_response(error)
        except ClientDisconnect:
            return Response(status_code=499)

    async def _receive(self, request: Request, body: bytes) -> ReceivedEvent:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
        try:
            return await self._inbox.receive(request.path_params["source"], headers, body)
        except (SignatureInvalid, SourceUnknown) as error:
            raise self._authenticator.counted(request, error) from None
