"""
Converts Django's requests to `IncomingRequest`, and `Reply` to Django's responses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from io import BytesIO
from typing import Any
from urllib.parse import quote

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse, StreamingHttpResponse

from onceward._core.errors import ConfigurationError
from onceward._core.reply import Reply
from onceward.http.asgi import OPERATION as IN_SCOPE
from onceward.http.server.body_buffer import BodyBuffer
from onceward.http.server.body_reader import body_length, read_body, restore_input
from onceward.http.server.handler_run import HandlerResponse
from onceward.http.server.request_admission import AdmittedRequest, IncomingRequest
from onceward.http.server.response_recorder import ResponseRecorder
from onceward.http.server.responses import headers_and_body
from onceward.http.server.wsgi_environ import headers_from_environ, raw_path
from onceward.http.wsgi import OPERATION as IN_ENVIRON

SCOPE_LABEL = 'settings.ONCEWARD["SCOPE"]'
"""What log lines call the scope function."""


def request_from_django(request: Any, single: frozenset[bytes]) -> IncomingRequest:
    """The request. `single` are the headers that may occur once."""
    path = request.path.encode("utf-8", "surrogateescape")
    if isinstance(request, ASGIRequest):
        query = bytes(request.scope.get("query_string") or b"")
        headers = [(bytes(name).lower(), bytes(value)) for name, value in request.scope["headers"]]
        sent = bytes(request.scope.get("raw_path") or quote(path).encode("ascii")).partition(b"?")[0]
        return IncomingRequest(request.method.upper(), request.path, sent, query, headers, request)
    query = str(request.META.get("QUERY_STRING", "")).encode("latin-1", "replace")
    headers = headers_from_environ(request.META, single)
    return IncomingRequest(request.method.upper(), request.path, raw_path(request.META, path), query, headers, request)


def enclosing_operation(request: Any) -> object:
    """The operation that an outer middleware of ours (Django, ASGI or WSGI) already runs for this request, if any."""
    if hasattr(request, "operation"):
        return request.operation
    if isinstance(request, ASGIRequest):
        return (request.scope.get("state") or {}).get(IN_SCOPE)
    return request.META.get(IN_ENVIRON)


# --- the body ---


def buffer_body(request: Any, admitted: AdmittedRequest, body: BodyBuffer, now: Callable[[], float]) -> None:
    """Read the whole body into the buffer, and let the view read it from there."""
    if hasattr(request, "_body"):  # Somebody has read `request.body`, and Django keeps it.
        body.expect(len(request._body))
        admitted.fingerprint.feed(request._body)
        return
    if request._read_started:
        raise ConfigurationError(
            "another middleware read the body of this request before IdempotencyMiddleware could, so nothing was run: "
            "move "
            "onceward.http.django.IdempotencyMiddleware above the middleware that uses request.POST or request.read()"
        )
    if isinstance(request, ASGIRequest):
        read_body(admitted, body, request._stream, None, now)
        whole = body.whole()
        request._stream = BytesIO(whole) if isinstance(whole, bytes) else whole
        request.META["CONTENT_LENGTH"] = str(body.size)
    else:
        read_body(admitted, body, request.META["wsgi.input"], body_length(request.META), now)
        request._stream = restore_input(request.META, body)


# --- responses ---


def begin_recording(recorder: ResponseRecorder, response: Any) -> None:
    """Give the recorder the status and the headers of a response. Cookies are not among them."""
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.items()]
    recorder.begin(response.status_code, headers)


def django_response(reply: Reply) -> HttpResponse:
    """A reply as Django's response."""
    headers, body = headers_and_body(reply)
    response = HttpResponse(body, status=reply.status)
    del response["Content-Type"]
    for name, value in headers:
        response[name] = f"{response[name]}, {value}" if name in response else value
    return response


def own_response(response: Any, given: HandlerResponse) -> Any:
    """A view's own response, once it is stored. A stream that was held back is sent as one whole response."""
    if response.streaming:
        response = _with_head_of(response, HttpResponse(given.body, status=response.status_code))
    elif given.without:
        response.content = given.body
    for name in given.without:
        del response[name]
    return _with_headers(response, given.more)


def streaming_response(
    response: Any,
    pieces: Iterable[bytes] | Any,
    notice: Iterable[tuple[str, str]],
    kind: type[StreamingHttpResponse] = StreamingHttpResponse,
) -> StreamingHttpResponse:
    """A new response with the same head and other pieces: the view's own would close its stream too early."""
    made: StreamingHttpResponse = _with_head_of(response, kind(pieces, status=response.status_code))
    _with_headers(made, notice)
    return made


def _with_headers(response: Any, more: Iterable[tuple[str, str]]) -> Any:
    for name, value in more:
        response[name] = value
    return response


def _with_head_of(response: Any, other: Any) -> Any:
    other.headers, other.cookies = response.headers, response.cookies
    other.reason_phrase = response.reason_phrase
    return other


def close_response(response: Any) -> None:
    """Close what a response holds, without telling Django that the request has ended."""
    for close in response._resource_closers:
        with suppress(Exception):
            close()
