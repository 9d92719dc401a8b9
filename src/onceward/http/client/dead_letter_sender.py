"""
Sends a dead letter's request again, with nothing but the standard library: for `onceward dead requeue`.

It is sent once, to the address that the operator named and to no other. Redirects are not followed: the credential
goes where a person said, not where a stored row says.
"""

from __future__ import annotations

import urllib.request
from http.client import HTTPMessage
from typing import IO, Any, NamedTuple

from onceward._core.errors import ConfigurationError, InFlight
from onceward._core.sent_request import SentRequest, origin_of
from onceward._core.verdict_tables.http_statuses import PENDING_CODES
from onceward.gate.dead_letter_resender import RequestSender
from onceward.http.client.responses import CODE_BODY_BYTES_MAX, error_code_in

SECONDS = 30.0
"""The timeout of one request, from the connection to the response's first bytes."""


class ResendResult(NamedTuple):
    """The response to a request that was sent again."""

    status: int


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None  # Then urllib raises the redirect itself as an error.


def dead_letter_sender(to: str, token: str | None = None, *, seconds: float = SECONDS) -> RequestSender:
    """A function that sends requests to one address, with a bearer token if given. It raises urllib's errors."""
    origin = origin_of(to)
    if token is not None and not (token.isascii() and token.isprintable()):
        raise ConfigurationError("the token has characters that are not allowed in a header; nothing was sent")
    credentials = {} if token is None else {"Authorization": f"Bearer {token}"}
    opener = urllib.request.build_opener(_NoRedirects)

    def send(sent: SentRequest) -> ResendResult:
        if origin_of(sent.url) != origin:
            raise ConfigurationError(f"this request is for another address than {origin}; nothing was sent")
        headers = {**sent.headers, **credentials}
        request = urllib.request.Request(sent.url, sent.body or None, headers, method=sent.method)  # noqa: S310 - checked by origin_of
        with opener.open(request, timeout=seconds) as response:
            return _result_of(response)

    return send


def _result_of(response: Any) -> ResendResult:
    status: int = response.status
    if status == 202 and error_code_in(status, response.read(CODE_BODY_BYTES_MAX)) in PENDING_CODES:
        raise InFlight("the first request with this key is still running there; requeue it later")
    return ResendResult(status)
