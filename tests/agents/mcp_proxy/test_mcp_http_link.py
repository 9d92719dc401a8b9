"""What a server on HTTP answers, and what that means for a call: refused, in doubt, or done. Nothing is sent twice."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from proxy_kit import NOTHING, PATIENCE, ListeningClient, awaiting, call, line

from onceward.agents import AgentGate
from onceward.agents.mcp_proxy.held_calls import CallJudge
from onceward.agents.mcp_proxy.http_link import HttpLink
from onceward.agents.mcp_proxy.proxy import McpProxy
from onceward.runtime.environment import Environment

Handler = Callable[["Request", Any], None]
RESULT = {"content": [{"type": "text", "text": "done"}]}


class Request(BaseHTTPRequestHandler):
    """One request; the test's own function answers it."""

    protocol_version = "HTTP/1.1"
    answer: Handler
    seen: list[tuple[str, dict[str, str], Any]]

    def do_POST(self) -> None:
        """Note it, and answer."""
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(raw) if raw else None
        self.seen.append((self.command, {name.lower(): value for name, value in self.headers.items()}, body))
        type(self).answer(self, body)

    do_GET = do_POST  # noqa: N815 - the library's names
    do_DELETE = do_POST  # noqa: N815

    def send(self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> None:
        """Answer with a whole response."""
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def stream(self, *events: str) -> None:
        """Answer with events, and break off."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events:
            self.wfile.write(event.encode())
        self.wfile.flush()
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Quick(Environment):
    """Pauses take no time."""

    def sleep(self, seconds: float) -> None:
        """Go on at once."""


class Scene:
    """A client, a proxy, and a server on HTTP."""

    def __init__(self, client: ListeningClient, proxy: McpProxy, seen: list[Any], gate: AgentGate) -> None:
        self.client, self.proxy, self.seen, self.gate = client, proxy, seen, gate

    async def says(self, *lines: bytes, answers: int) -> dict[Any, Any]:
        """Write lines, and wait until so many answers came in all."""
        for one in lines:
            await self.proxy.from_client(one)
        async with asyncio.timeout(PATIENCE):
            while len(self.client.results()) < answers:
                await asyncio.sleep(0.01)
        await self.proxy.finish(PATIENCE)
        return self.client.results()

    def posts(self, method: str = "tools/call") -> int:
        """How often the server was asked for this."""
        return sum(1 for _, _, body in self.seen if isinstance(body, dict) and body.get("method") == method)


@pytest.fixture
def http() -> Iterator[Callable[[Handler], tuple[str, list[Any]]]]:
    """Start a server with an answer of the test's own; its address, and what it has seen."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Handler) -> tuple[str, list[Any]]:
        seen: list[Any] = []
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Request,), {"answer": answer, "seen": seen}))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/mcp?x=1", seen

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@asynccontextmanager
async def scene(url: str, seen: list[Any], **headers: str) -> AsyncIterator[Scene]:
    """Talk to that server through a proxy."""
    async with AgentGate("memory://", scope="test:http") as gate:
        client, notes = ListeningClient(), list[str]()
        link = HttpLink(url, headers, environment=Quick())
        judge = CallJudge(gate, gate.run("order-42"), NOTHING, trusts=False)
        proxy = McpProxy(judge, NOTHING, client=client, server=link, note=notes.append)
        running = asyncio.create_task(link.run(proxy))
        yield Scene(client, proxy, seen, gate)
        link.close()
        await running
        await link.end()
        proxy.server_gone()
        await proxy.finish(PATIENCE)


def _event(message: bytes, id: str = "") -> str:
    return (f"id: {id}\n" if id else "") + f"data: {message.decode().strip()}\n\n"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b""),
        (404, b"not here"),
        (429, b"{}"),
        (307, b""),
        (503, line(id=None, error={"code": 1, "message": "no"})),
    ],
)
@awaiting
async def test_a_refusal_is_an_error_and_leaves_no_doubt(status: int, body: bytes, http: Any) -> None:
    """
    The server has said that it did not do it: the client reads an error with its own id, and the next call runs.
    """
    async with scene(*http(lambda request, _: request.send(status, body))) as here:
        found = await here.says(call(1), answers=1)
        found = await here.says(call("b"), answers=2)

    assert [list(one) for one in found.values()] == [["code", "message"]] * 2
    assert list(found) == [1, "b"]
    assert here.posts() == 2


@pytest.mark.fault("a-broken-connection-has-done-nothing")
@pytest.mark.parametrize("how", ["502", "closed", "empty", "half", "no event"])
@awaiting
async def test_what_breaks_after_it_was_sent_is_in_doubt_and_not_sent_again(how: str, http: Any) -> None:
    """
    Nobody knows whether the server did it: words for the model, and the next equal call is not sent.
    """

    def answer(request: Request, body: Any) -> None:
        if how == "502":
            request.send(502, b"<html>")
        elif how == "closed":
            request.close_connection = True
        elif how == "empty":
            request.send(202)
        elif how == "half":
            request.send_response(200)
            request.send_header("Content-Type", "application/json")
            request.send_header("Content-Length", "1000")
            request.end_headers()
            request.wfile.write(b'{"id":')
            request.close_connection = True
        else:
            request.stream(": nothing\n\n")

    async with scene(*http(answer)) as here:
        found = await here.says(call(1), answers=1)
        found = await here.says(call(2), answers=2)

    assert "but may have happened" in str(found[1])
    assert "may already have happened" in str(found[2])
    assert here.posts() == 1


@awaiting
async def test_a_server_that_cannot_be_reached_has_done_nothing(http: Any) -> None:
    """
    No connection, no effect: an error, and no record that somebody would have to decide.
    """
    async with scene("http://127.0.0.1:1/", []) as here:
        found = await here.says(call(1), line(id=2, method="ping"), answers=2)
        doubtful = await here.gate.awaiting.records.in_doubt()

    assert "cannot be reached" in found[1]["message"] and "was not run" in found[1]["message"]
    assert found[2]["code"] == -32000
    assert doubtful == ()


@awaiting
async def test_a_stream_that_breaks_is_read_on_and_the_call_is_not_repeated(http: Any) -> None:
    """
    The server gave its events ids: what is missing is asked for with a GET, from the last id.
    """

    def answer(request: Request, body: Any) -> None:
        if request.command == "POST":
            request.stream("retry: 5\n", _event(line(method="notifications/progress"), "7"))
        elif request.command == "GET" and request.headers["Last-Event-ID"] == "7":
            request.stream(_event(line(method="notifications/progress"), "8"))
        else:
            request.stream(_event(line(id=1, result=RESULT), "9"))

    async with scene(*http(answer)) as here:
        found = await here.says(call(1), answers=1)

    assert found[1] == RESULT
    assert [request[1].get("last-event-id") for request in here.seen] == [None, "7", "8"]
    assert here.posts() == 1
    assert len(here.client.lines) == 3


@awaiting
async def test_a_session_has_its_headers_and_its_end(http: Any) -> None:
    """
    The session's id and the version go with every request after the first; a stream of the server's own messages is
    opened; at the end the session is deleted. A header of the user's own is always there.
    """
    listens = threading.Event()

    def answer(request: Request, body: Any) -> None:
        if request.command == "GET":
            request.stream(_event(line(method="notifications/message"), "1"))
            listens.set()
        elif request.command == "DELETE":
            request.send(200)
        elif body["method"] == "initialize":
            result = json.dumps({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": "2025-06-18"}}, indent=1)
            request.send(200, result.encode(), Mcp_Session_Id="s-1")
        elif "id" in body:
            request.send(200, line(id=body["id"], result=RESULT))
        else:
            request.send(202)

    async with scene(*http(answer), Authorization="Bearer x") as here:
        await here.says(line(id=0, method="initialize"), answers=1)
        await here.says(line(method="notifications/initialized"), call(1), answers=2)
        await asyncio.to_thread(listens.wait, PATIENCE)

    assert b"\n" not in here.client.lines[0].strip()
    first, *rest = [request for request in here.seen if request[0] != "GET"]
    assert "mcp-session-id" not in first[1]
    assert {(one["mcp-session-id"], one["mcp-protocol-version"]) for _, one, _ in rest} == {("s-1", "2025-06-18")}
    assert {one["authorization"] for _, one, _ in here.seen} == {"Bearer x"}
    assert [request[0] for request in here.seen if request[0] != "GET"] == ["POST", "POST", "POST", "DELETE"]


@awaiting
async def test_a_request_of_the_newest_protocol_says_in_headers_what_it_is(http: Any) -> None:
    """
    Servers since July 2026 compare them with the body; a name that no header can carry is in base64.
    """
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    async with scene(*http(lambda request, body: request.send(200, line(id=body["id"], result=RESULT)))) as here:
        await here.says(call(1, _meta=meta), call(2, "zahlung für", _meta=meta), answers=2)

    found = {body["id"]: head for _, head, body in here.seen}
    assert (found[1]["mcp-protocol-version"], found[1]["mcp-method"]) == ("2026-07-28", "tools/call")
    assert (found[1]["mcp-name"], found[2]["mcp-name"]) == ("charge", "=?base64?emFobHVuZyBmw7xy?=")
