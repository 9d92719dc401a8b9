"""
A server on streamable HTTP, for a client that speaks stdio: each line is a POST, and what comes back are lines.

Every message has a connection of its own: a kept one may be dead already, and then nobody knows whether the server
read what was sent on it. So a failure to connect means that nothing happened; one after that leaves doubt. A request is
never sent twice. What is taken up again is only reading: a broken stream of events from the last id that it had.

In the standard library, in threads. Redirects are not followed, and OAuth is left to whoever makes the header.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import signal
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, TypeVar
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError
from onceward.agents.mcp_proxy import answers
from onceward.agents.mcp_proxy.answers import NotSent, ServerGone
from onceward.agents.mcp_proxy.event_stream import EventStream
from onceward.agents.mcp_proxy.lines import LINE_MAX, LineTooLong
from onceward.agents.mcp_proxy.messages import Id, RpcMessage, Unclear, ids_of, read_line
from onceward.agents.mcp_proxy.proxy import McpProxy
from onceward.runtime.environment import REAL, Environment

T = TypeVar("T")

CONNECT_SECONDS = 30.0
CLOSE_SECONDS = 5.0
"""How long answers are waited for that are under way when the client has left."""
READ_SECONDS = 300.0
"""How long a server may be silent in the midst of an answer. Then the call is in doubt."""
RESUMES_MAX = 5
"""Times in a row that a broken stream of events is taken up again."""
RETRY_SECONDS = 1.0
_RETRY_SECONDS_MAX = 60.0
_CHUNK = 65_536

_PLAIN = re.compile(r"[\x20-\x7e\t]*")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""By method, the parameter that servers since July 2026 want in a header."""
_VERSION = "io.modelcontextprotocol/protocolVersion"

_Failure = (OSError, HTTPException, LineTooLong)


class HttpLink:
    """A server at a URL."""

    def __init__(self, url: str, headers: Mapping[str, str], *, environment: Environment = REAL) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"--url is an address such as https://example.com/mcp, not {url[:80]!r}")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host, self._port = parts.hostname, parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers, self._environment = dict(headers), environment
        self._session: str | None = None
        self._version: str | None = None
        self._queue: asyncio.Queue[tuple[bytes, tuple[RpcMessage, ...]]] = asyncio.Queue()
        self._under_way: set[asyncio.Future[None]] = set()
        self._closed = asyncio.Event()
        self._code = 0
        self._proxy: McpProxy | None = None
        self._loop = asyncio.get_running_loop()

    # --- what a proxy needs ---

    async def send(self, data: bytes, messages: tuple[RpcMessage, ...]) -> None:
        """Send a line, after those before it."""
        if self._closed.is_set():
            raise NotSent("the connection is closed")
        if data.strip():
            self._queue.put_nowait((data, messages))

    async def run(self, proxy: McpProxy) -> None:
        """Send what is to be sent, in order, until it is closed. Requests wait for their answers beside each other."""
        self._proxy = proxy
        closed = asyncio.create_task(self._closed.wait())
        sending = asyncio.create_task(self._send_all())
        await asyncio.wait({closed, sending}, return_when=asyncio.FIRST_COMPLETED)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while self._under_way or not self._queue.empty():
                    await asyncio.wait({*self._under_way, sending}, return_when=asyncio.FIRST_COMPLETED)
        sending.cancel()
        closed.cancel()
        with suppress(asyncio.CancelledError):
            await sending

    def close(self) -> None:
        """There is nothing more to send."""
        self._closed.set()

    async def end(self) -> int:
        """Let the server forget the session; the exit code."""
        if self._session is not None:
            with suppress(*_Failure, NotSent):
                await self._in_thread(self._delete)
        return self._code

    def signal(self, number: signal.Signals) -> None:
        """There is no process to hand it to: we end."""
        self._code = 128 + number
        self.close()

    # --- sending ---

    async def _send_all(self) -> None:
        while True:
            data, messages = await self._queue.get()
            work = self._in_thread(partial(self._post, data, messages))
            self._under_way.add(work)
            work.add_done_callback(self._under_way.discard)
            # The session begins with `initialize`, and notifications must not overtake each other.
            if any(one.method == "initialize" for one in messages):
                await asyncio.wait({work})
            elif not any(one.is_request for one in messages):
                await asyncio.wait({work}, timeout=CONNECT_SECONDS)

    def _in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do it in a thread that nobody waits for at the end."""
        done: asyncio.Future[T] = self._loop.create_future()

        def set_done(result: T | None, error: BaseException | None) -> None:
            if done.cancelled():
                return
            done.set_exception(error) if error is not None else done.set_result(result)  # type: ignore[arg-type]
            done.exception()

        def run() -> None:
            result, error = None, None
            try:
                result = work()
            except Exception as raised:
                error = raised
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(set_done, result, error)

        threading.Thread(target=run, daemon=True).start()
        return done

    def _post(self, data: bytes, messages: tuple[RpcMessage, ...]) -> None:
        """Send a line and hand on what comes back. In a thread."""
        open_ids = set(ids_of(messages))
        try:
            self._exchange(data, messages, open_ids)
        except NotSent as error:
            self._lose(open_ids, error)
        except Exception as error:
            self._lose(open_ids, ServerGone(f"the connection broke before the answer came ({_shown(error)})"))
        else:
            self._lose(open_ids, ServerGone("the server ended its response without an answer"))
        if any(one.method == "notifications/initialized" for one in messages) and self._session is not None:
            threading.Thread(target=self._listen, daemon=True).start()

    def _exchange(self, data: bytes, messages: tuple[RpcMessage, ...], open_ids: set[Id]) -> None:
        connection = self._connected()
        try:
            connection.request("POST", self._path, body=data.strip(), headers=self._request_headers(messages))
            response = connection.getresponse()
            if response.status >= 300:
                self._hand_on_refusal(response, messages, open_ids)
                return
            if any(one.method == "initialize" for one in messages):
                self._session = response.headers.get("Mcp-Session-Id")
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if kind == "text/event-stream":
                self._read_events(response, open_ids)
            elif kind == "application/json" and open_ids:
                self._hand_on(_read_all(response), open_ids)
        finally:
            connection.close()

    def _connected(self) -> HTTPConnection:
        connection = (
            HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS)
            if self._tls is None
            else HTTPSConnection(self._host, self._port, timeout=CONNECT_SECONDS, context=self._tls)
        )
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise NotSent(f"the server at {self._host} cannot be reached ({_shown(error)})") from None
        if connection.sock is not None:
            connection.sock.settimeout(READ_SECONDS)
        return connection

    def _request_headers(self, messages: tuple[RpcMessage, ...] = ()) -> dict[str, str]:
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **self._headers}
        headers["Connection"] = "close"
        if self._session is not None:
            headers["Mcp-Session-Id"] = self._session
        params = messages[0].get("params") if len(messages) == 1 else None
        meta = params.get("_meta") if isinstance(params, dict) else None
        modern = meta.get(_VERSION) if isinstance(meta, dict) else None
        version = modern if isinstance(modern, str) else self._version
        if version is not None and _PLAIN.fullmatch(version):
            headers["MCP-Protocol-Version"] = version
        if isinstance(modern, str) and (method := messages[0].method) is not None and _PLAIN.fullmatch(method):
            headers["Mcp-Method"] = method
            name = params.get(_NAMES.get(method, "")) if isinstance(params, dict) else None
            if isinstance(name, str):
                headers["Mcp-Name"] = _header_value(name)
        return headers

    # --- receiving ---

    def _read_events(self, response: HTTPResponse, open_ids: set[Id]) -> None:
        """Hand on events until every request has its answer; a stream that breaks is taken up where it was."""
        events, resumes = EventStream(), 0
        while True:
            failure: Exception | None = None
            try:
                if self._hand_on_events(response, events, open_ids):
                    resumes = 0
            except (OSError, HTTPException) as error:
                failure = error
            if not open_ids or events.last_id is None or resumes >= RESUMES_MAX:
                if failure is not None and open_ids:
                    raise failure
                return
            resumes += 1
            self._environment.sleep(min(events.retry_seconds or RETRY_SECONDS, _RETRY_SECONDS_MAX))
            last, events = events, EventStream()
            events.last_id, events.retry_seconds = last.last_id, last.retry_seconds
            with suppress(NotSent):
                response = self._get(last.last_id)

    def _hand_on_events(self, response: HTTPResponse, events: EventStream, open_ids: set[Id]) -> bool:
        """Whether there were any."""
        some = False
        while chunk := response.read1(_CHUNK):
            for event in events.feed(chunk):
                some = True
                if event.data:
                    self._hand_on(event.data, open_ids)
            if some and not open_ids:
                break
        return some

    def _get(self, last_id: str | None) -> HTTPResponse:
        connection = self._connected()
        headers = self._request_headers() | {"Accept": "text/event-stream"}
        del headers["Content-Type"]
        if last_id is not None and _PLAIN.fullmatch(last_id):
            headers["Last-Event-ID"] = last_id
        connection.request("GET", self._path, headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            response.close()
            raise HTTPException(f"HTTP {response.status}")
        return response

    def _listen(self) -> None:
        """What a server says by itself, for as long as it likes to; in a thread."""
        events, failures = EventStream(), 0
        listening: set[Id] = {"nobody's"}  # So that no answer ends it.
        while failures < RESUMES_MAX and not self._closed.is_set():
            failures += 1
            with suppress(NotSent, *_Failure), self._get(events.last_id) as response:
                if self._hand_on_events(response, events, listening):
                    failures = 0
            last, events = events, EventStream()
            events.last_id, events.retry_seconds = last.last_id, last.retry_seconds
            self._environment.sleep(min(events.retry_seconds or RETRY_SECONDS, _RETRY_SECONDS_MAX))

    def _hand_on(self, data: bytes, open_ids: set[Id]) -> None:
        """Hand a message on as a line, and note which requests it answers."""
        line = re.sub(rb"[\r\n]+", b" ", data.strip())  # JSON has line ends between its parts only.
        if not line:
            return
        try:
            messages = read_line(line).messages
        except Unclear:
            messages = ()
        for message in messages:
            self._note_version(message)
        self._wait_for(lambda proxy: proxy.from_server(line + b"\n"))
        open_ids.difference_update(one.id for one in messages if one.is_answer and one.id is not None)

    def _note_version(self, message: RpcMessage) -> None:
        result = message.get("result")
        if self._version is None and message.is_answer and isinstance(result, dict):
            found = result.get("protocolVersion")
            self._version = found if isinstance(found, str) else None

    def _hand_on_refusal(self, response: HTTPResponse, messages: tuple[RpcMessage, ...], open_ids: set[Id]) -> None:
        """A status that is no success. Up to 499 the server has refused; after that nobody knows, unless it says."""
        error = _error_in(_read_all(response))
        if error is None and response.status >= 500:
            raise HTTPException(f"HTTP {response.status} {response.reason}")
        if error is None:
            said = f"the server refused it with HTTP {response.status} {response.reason}"
            if response.status == 404 and self._session is not None:
                said += "; its session is over, so restart this server in your client"
            error = json.dumps({"code": answers.NOT_SENT, "message": said})
        for message in messages:
            if message.is_request:
                self._hand_on(f'{{"jsonrpc":"2.0","id":{message.raw("id")},"error":{error}}}'.encode(), open_ids)

    def _lose(self, ids: set[Id], error: Exception) -> None:
        proxy = self._proxy
        if ids and proxy is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(proxy.lost, list(ids), error)

    def _wait_for(self, work: Callable[[McpProxy], Any]) -> None:
        """Have the loop do it, and wait: a client that reads slowly slows the server down."""
        if self._proxy is not None:
            asyncio.run_coroutine_threadsafe(work(self._proxy), self._loop).result()

    def _delete(self) -> None:
        connection = self._connected()
        try:
            connection.request("DELETE", self._path, headers=self._request_headers())
            connection.getresponse().read(_CHUNK)
        finally:
            connection.close()


def _read_all(response: HTTPResponse) -> bytes:
    body = response.read(LINE_MAX + 1)
    if len(body) > LINE_MAX:
        raise LineTooLong(f"a response has more than {LINE_MAX:,} bytes")
    if response.length:  # The library tells of this only where it is asked for everything.
        raise IncompleteRead(body, response.length)
    return body


def _error_in(body: bytes) -> str | None:
    """The JSON-RPC error in the body of a refusal, as JSON."""
    try:
        messages = read_line(re.sub(rb"[\r\n]+", b" ", body)).messages
    except Unclear:
        return None
    return messages[0].raw("error") if len(messages) == 1 and isinstance(messages[0].get("error"), dict) else None


def _header_value(text: str) -> str:
    """A text that is safe in a header: as it is, or in base64, as the protocol has it."""
    if _PLAIN.fullmatch(text) and text == text.strip() and not _ENCODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def _shown(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
