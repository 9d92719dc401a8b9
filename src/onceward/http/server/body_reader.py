"""
Reads a request's whole body: into a `BodyBuffer`, and into the request's fingerprint.

    read_body       from the stream of a server that blocks
    receive_body    from the messages of an ASGI server

Content-Length is compared with what arrives. A body that broke off, or whose length cannot be known, is refused before
anything runs: its fingerprint would be that of another request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from io import BytesIO
from types import CoroutineType
from typing import IO, Any

from onceward._core.errors import RequestInvalid, UploadTimeout
from onceward.http.server.body_buffer import CHUNK_BYTES, BodyBuffer
from onceward.http.server.eager_awaitable import EagerAwaitable
from onceward.http.server.request_admission import AdmittedRequest
from onceward.http.server.thread_offload import HEAVY_BYTES, offload


def read_body(
    admitted: AdmittedRequest, body: BodyBuffer, stream: Any, length: int | None, now: Callable[[], float]
) -> None:
    """Read `length` bytes, or to the end of the stream if that is None."""
    body.expect(length)
    # A slow upload is noticed between two reads; `read1` returns what there is.
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    seconds = admitted.profile.upload_seconds_max
    until = now() + seconds
    while length is None or body.size < length:
        try:
            piece = read(CHUNK_BYTES if length is None else min(CHUNK_BYTES, length - body.size))
        except OSError as error:
            raise RequestInvalid("the body could not be read to its end; nothing was run") from error
        if not piece:
            break
        _take(piece, admitted, body)
        if now() > until:
            raise _too_slow(seconds)
    if length is not None and body.size < length:
        raise RequestInvalid(
            f"the body ended after {body.size} of the {length} bytes announced by Content-Length; nothing was run"
        )


class ClientDisconnected(Exception):
    """The client left before its request had arrived. Nothing was run."""


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


def receive_body(admitted: AdmittedRequest, body: BodyBuffer, receive: Receive) -> Awaitable[None] | bytes:
    """
    Receive the whole body from an ASGI server. If it was there in one short piece, as most bodies are, this is it: it
    needs no timer. Otherwise what is returned receives it, within the time that an upload may take.
    """
    if admitted.content_length is not None:
        body.expect(admitted.content_length)
    work = receive()
    if type(work) is CoroutineType:
        try:
            pending = work.send(None)
        except StopIteration as end:  # Most are done at once, and nothing has to be made for them.
            message: Message = end.value
        else:
            return _receive_rest(admitted, body, receive, EagerAwaitable.after(work, pending))
    else:
        first = EagerAwaitable(work)
        if not first.is_done:
            return _receive_rest(admitted, body, receive, first)
        message = first.value
    if message["type"] == "http.request" and not message.get("more_body", False):
        piece = message.get("body", b"")
        size = len(piece)
        if size <= HEAVY_BYTES and type(piece) is bytes:
            if size > admitted.profile.body_bytes_max:
                body.expect(size)
            return piece
    return _receive_rest(admitted, body, receive, message)


async def _receive_rest(
    admitted: AdmittedRequest, body: BodyBuffer, receive: Receive, first: EagerAwaitable[Message] | Message
) -> None:
    """Receive the body: its first message, or what gives that, and what follows."""
    seconds, more = admitted.profile.upload_seconds_max, True
    try:
        async with asyncio.timeout(seconds):
            message = await first if isinstance(first, EagerAwaitable) else first
            while more:
                piece, more = _chunk_of(message), message.get("more_body", False)
                if body.on_disk or len(piece) > HEAVY_BYTES:
                    await offload(partial(_take, piece, admitted, body))
                else:
                    _take(piece, admitted, body)
                if more:
                    message = await receive()
    except TimeoutError:
        raise _too_slow(seconds) from None


def _chunk_of(message: MutableMapping[str, Any]) -> bytes:
    """The piece of the body in a message; `ClientDisconnected` if the client has left."""
    if message["type"] != "http.request":
        raise ClientDisconnected
    piece: bytes = message.get("body", b"")
    return piece


def _take(piece: bytes, admitted: AdmittedRequest, body: BodyBuffer) -> None:
    """Add a piece to the fingerprint and to the buffer: hashed and, if the body is long, written to a file."""
    admitted.fingerprint.feed(piece)
    body.write(piece)


def _too_slow(seconds: float) -> UploadTimeout:
    return UploadTimeout(f"the body did not arrive within {seconds:g} seconds; nothing was run")


def body_length(environ: MutableMapping[str, Any]) -> int | None:
    """How many bytes a WSGI server's input has; None: read until it ends."""
    declared = str(environ.get("CONTENT_LENGTH") or "")
    if environ.get("HTTP_TRANSFER_ENCODING"):
        if not environ.get("wsgi.input_terminated"):
            raise RequestInvalid("this server needs the length of a body: send Content-Length")
        return None
    if not declared:
        return None if environ.get("wsgi.input_terminated") else 0
    if not (declared.isascii() and declared.isdigit()):
        raise RequestInvalid("Content-Length is not a number")
    return int(declared)


def restore_input(environ: MutableMapping[str, Any], body: BodyBuffer) -> IO[bytes]:
    """Make the handler's `wsgi.input` read from the buffer."""
    whole = body.whole()
    stream = BytesIO(whole) if isinstance(whole, bytes) else whole
    environ["wsgi.input"] = stream
    environ["wsgi.input_terminated"] = True
    environ["CONTENT_LENGTH"] = str(body.size)
    environ.pop("HTTP_TRANSFER_ENCODING", None)
    return stream
