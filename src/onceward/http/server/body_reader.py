"""
Taking a request's body in: into a spool, and into the request's fingerprint.

    take_body       from the stream of a server that blocks
    receive_body    from the messages of an ASGI server

What the client says of its length is held against what arrives. A body that broke off, or whose length nobody can
know, is refused before anything runs: it would stand for another request than the one that was meant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from io import BytesIO
from typing import IO, Any

from onceward._core.errors import RequestInvalid, UploadTimeout
from onceward.http.server.body_buffer import CHUNK_BYTES, BodyBuffer
from onceward.http.server.eager_awaitable import EagerAwaitable
from onceward.http.server.request_admission import AdmittedRequest


def read_body(
    admitted: AdmittedRequest, spool: BodyBuffer, stream: Any, length: int | None, now: Callable[[], float]
) -> None:
    """Read `length` bytes, or to the end of the stream if that is None."""
    spool.expect(length)
    # Whoever sends slowly is noticed between two reads; `read1` comes back with what there is.
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    seconds = admitted.profile.upload_seconds_max
    until = now() + seconds
    while length is None or spool.size < length:
        try:
            piece = read(CHUNK_BYTES if length is None else min(CHUNK_BYTES, length - spool.size))
        except OSError as error:
            raise RequestInvalid("the body could not be read to its end; nothing was run") from error
        if not piece:
            break
        admitted.fingerprint.feed(piece)
        spool.write(piece)
        if now() > until:
            raise _too_slow(seconds)
    if length is not None and spool.size < length:
        raise RequestInvalid(
            f"the body broke off after {spool.size} of the {length} bytes that Content-Length says; nothing was run"
        )
    spool.rewind()


class ClientDisconnected(Exception):
    """The client was gone before its request had arrived. Nothing was run."""


async def receive_body(
    admitted: AdmittedRequest, spool: BodyBuffer, receive: Callable[[], Awaitable[MutableMapping[str, Any]]]
) -> None:
    """Take the whole body in: what the key stands for is not known before."""
    spool.expect(admitted.incoming.content_length)
    first = EagerAwaitable(receive())
    if first.is_done and not first.answer.get("more_body", False):
        spool.write(_chunk_of(first.answer, admitted))  # All of it is there, as most bodies are: no timer for that.
        spool.rewind()
        return
    seconds = admitted.profile.upload_seconds_max
    try:
        async with asyncio.timeout(seconds):
            message, more = await first, True
            while more:
                piece, more = _chunk_of(message, admitted), message.get("more_body", False)
                if spool.on_disk:
                    await asyncio.to_thread(spool.write, piece)
                else:
                    spool.write(piece)
                if more:
                    message = await receive()
    except TimeoutError:
        raise _too_slow(seconds) from None
    spool.rewind()


def _chunk_of(message: MutableMapping[str, Any], admitted: AdmittedRequest) -> bytes:
    """
    The piece of the body in a message, counted into the request's fingerprint; `ClientDisconnected` if it is none.
    """
    if message["type"] != "http.request":
        raise ClientDisconnected
    piece: bytes = message.get("body", b"")
    admitted.fingerprint.feed(piece)
    return piece


def _too_slow(seconds: float) -> UploadTimeout:
    return UploadTimeout(f"the body did not arrive within {seconds:g} seconds; nothing was run")


def body_length(environ: MutableMapping[str, Any]) -> int | None:
    """How many bytes a WSGI server's input has; None: it ends by itself."""
    declared = str(environ.get("CONTENT_LENGTH") or "")
    if environ.get("HTTP_TRANSFER_ENCODING"):
        if not environ.get("wsgi.input_terminated"):
            raise RequestInvalid("this server takes no body without a length: send Content-Length")
        return None
    if not declared:
        return None if environ.get("wsgi.input_terminated") else 0
    if not (declared.isascii() and declared.isdigit()):
        raise RequestInvalid("Content-Length is no number")
    return int(declared)


def restore_input(environ: MutableMapping[str, Any], spool: BodyBuffer) -> IO[bytes]:
    """Let the handler read from the spool what the server's input had."""
    body = spool.whole()
    stream = BytesIO(body) if isinstance(body, bytes) else body
    environ["wsgi.input"] = stream
    environ["wsgi.input_terminated"] = True
    environ["CONTENT_LENGTH"] = str(spool.size)
    environ.pop("HTTP_TRANSFER_ENCODING", None)
    return stream
