"""
`McpProxy` stands between a client and a server: it passes every line on as it came, and holds back calls with effects.

    await proxy.from_client(line)       # what a client has written
    await proxy.from_server(line)       # what a server has written

A call that is held back is claimed first; then the server sees it; its result is stored; then the client sees it. The
order of everything else is kept. A cancellation of such a call stays here: the call runs to its end, and the client's
retry is given what came of it. A line that could hide a call is refused (`messages.py` says which).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Protocol

from onceward._core.errors import KeyInvalid, KeyMissing, OncewardError
from onceward.agents.mcp_proxy import answers
from onceward.agents.mcp_proxy.answers import Answered, Kept, NotSent, Received, ServerGone
from onceward.agents.mcp_proxy.held_calls import CallJudge, HeldBack, Refused, unknown_names
from onceward.agents.mcp_proxy.lines import LineTooLong
from onceward.agents.mcp_proxy.messages import (
    CALL,
    Id,
    RpcLine,
    RpcMessage,
    Unclear,
    may_hold_a_call,
    read_line,
    some_id,
)
from onceward.agents.mcp_proxy.replies import AnswerPlace, BatchReply, ClientWriter, SingleReply
from onceward.agents.mcp_proxy.tools_file import ServerTools
from onceward.agents.model_text import ForModel
from onceward.agents.tool_call import ToolCall

_log = logging.getLogger("onceward.agents.mcp_proxy")

_CANCELLED, _CHANGED, _LIST = "notifications/cancelled", "notifications/tools/list_changed", "tools/list"


_STAYS = Refused(0, "a cancellation of a call that is held back stays here")


class ServerLink(Protocol):
    """The way to a server."""

    async def send(self, data: bytes, messages: tuple[RpcMessage, ...]) -> None:
        """Send a line that has these messages. Raises `NotSent` if it is certain that none of it arrived."""


class McpProxy:
    """Passes on what a client and a server say to each other, and makes calls with effects once."""

    def __init__(
        self,
        judge: CallJudge,
        tools: ServerTools,
        *,
        client: ClientWriter,
        server: ServerLink,
        note: Callable[[str], None],
        followed: bool = False,
    ) -> None:
        self._judge, self._tools, self._client, self._server, self._note = judge, tools, client, server, note
        self._followed: list[ToolCall] | None = [] if followed else None
        """Calls whose answers were written, and after which the client has not spoken; None if that is no matter."""
        self._waiting: dict[Id, asyncio.Future[RpcMessage]] = {}
        """Held calls that the server has, by id."""
        self._calls: dict[Id, asyncio.Task[None]] = {}
        """Held calls that the client waits for, by id."""
        self._passing: dict[Id, str] = {}
        """Requests that passed and have no answer yet, with their method."""
        self._batched: dict[Id, BatchReply] = {}
        """Requests that passed, and whose answers belong to the one answer of a batch."""
        self._tasks: set[asyncio.Task[None]] = set()

    # --- from the client ---

    async def from_client(self, line: bytes | LineTooLong) -> None:
        """Take a line of the client."""
        self._client_has_spoken()
        if isinstance(line, LineTooLong):
            await self._refuse_line("null", str(line))
            return
        try:
            read = read_line(line)
        except Unclear as why:
            if not line.strip() or not may_hold_a_call(line):
                await self._pass(line, ())
                return
            await self._refuse_line(some_id(line), f"this line is ambiguous ({why})")
            return
        judged = [(message, self._judged(message)) for message in read.messages]
        if all(verdict is None for _, verdict in judged):
            self._note_passing(read.messages)
            await self._pass(line, read.messages)
            return
        await self._split(read, judged)

    def _judged(self, message: RpcMessage) -> HeldBack | Refused | None:
        if message.is_request and self._is_open(message.id):
            return Refused(answers.INVALID_REQUEST, "another request with this id has no answer yet: use another id")
        if message.method == CALL:
            return self._judge.judge(message)
        if message.method == _CANCELLED and self._is_held(_cancelled_id(message)):
            return _STAYS
        return None

    async def _split(self, line: RpcLine, judged: list[tuple[RpcMessage, HeldBack | Refused | None]]) -> None:
        """Pass on what may pass, hold back calls, and answer what is refused."""
        if not line.is_batch:
            ((message, verdict),) = judged
            await self._act(message, verdict, SingleReply(self._client))
            return
        reply = BatchReply(self._client, sum(message.is_request for message, _ in judged))
        rest = tuple(message for message, verdict in judged if verdict is None)
        self._note_passing(rest)
        for message in rest:
            if message.is_request and (id := message.id) is not None:
                self._batched[id] = reply
        for message, verdict in judged:
            if verdict is not None:
                await self._act(message, verdict, reply)
        if rest:
            await self._pass(b"[" + b",".join(one.bytes for one in rest) + b"]\n", rest)

    async def _act(self, message: RpcMessage, verdict: HeldBack | Refused | None, reply: AnswerPlace) -> None:
        if isinstance(verdict, HeldBack):
            self._calls[verdict.id] = self._start(self._call(verdict, reply))
        elif verdict is _STAYS:
            self._let_run_on(_cancelled_id(message))
        elif isinstance(verdict, Refused) and "id" in message.members:
            self._note(f"refused: {verdict.reason}")
            self._start(_given(reply, answers.refusal(message.raw("id"), verdict.code, verdict.reason)))
        elif isinstance(verdict, Refused):
            self._note(f"refused: {verdict.reason}")  # A notification has no answer.

    async def _pass(self, line: bytes, messages: tuple[RpcMessage, ...]) -> None:
        try:
            await self._server.send(line, messages)
        except NotSent as error:
            self.lost((one.id for one in messages if one.is_request and one.id is not None), error)

    async def _refuse_line(self, id: str, why: str) -> None:
        reason = f"{why}: nothing was passed on"
        self._note(f"refused: {reason}")
        await self._client.write(answers.refusal(id, answers.INVALID_REQUEST, reason) + b"\n")

    def _note_passing(self, messages: Iterable[RpcMessage]) -> None:
        for message in messages:
            if message.is_request and (id := message.id) is not None:
                self._passing[id] = message.method or ""

    def _is_open(self, id: Id | None) -> bool:
        return self._is_held(id) or id in self._passing

    def _is_held(self, id: Id | None) -> bool:
        return id in self._calls or id in self._waiting

    def _let_run_on(self, id: Id | None) -> None:
        """The client waits no longer. The call runs to its end, and the next equal one is given its result."""
        task = None if id is None else self._calls.pop(id, None)
        if task is not None:
            task.cancel()

    # --- calls that are held back ---

    async def _call(self, held: HeldBack, reply: AnswerPlace) -> None:
        mine = asyncio.current_task()
        try:
            raw, call = await self._answer_of(held)
        except asyncio.CancelledError:
            await reply.skip()
            return
        finally:
            if self._calls.get(held.id) is mine:
                del self._calls[held.id]
        if await reply.give(raw) and call is not None:
            await self._delivered(call)

    async def _answer_of(self, held: HeldBack) -> tuple[bytes, ToolCall | None]:
        """The answer for the client; and the call, if it is one that counts as delivered once the client has it."""
        received: list[Received] = []

        async def ask() -> Received:
            received.append(await self._ask(held))
            return received[0]

        try:
            found = await self._judge.make(held, ask)
        except Answered as passed:
            return passed.answer.bytes, None
        except NotSent as error:
            return answers.refusal(held.id_text, answers.NOT_SENT, f"{error}: {held.tool} was not run"), None
        except OncewardError as error:
            code = answers.INVALID_PARAMS if isinstance(error, KeyMissing | KeyInvalid) else answers.INTERNAL
            self._note(f"{held.tool}: {error}")
            return answers.refusal(held.id_text, code, str(error)), None
        except Exception:
            _log.exception("onceward: the call of %s failed here", held.tool)
            return answers.refusal(held.id_text, answers.INTERNAL, f"the call of {held.tool} failed in Onceward"), None
        if isinstance(found, ForModel):
            return answers.for_model(held.id_text, found, complete=held.is_modern), None
        if received and isinstance(found, Kept) and found.text == received[0].message.raw("result"):
            return received[0].message.bytes, found.call
        return answers.replay(held.id_text, found), found.call

    async def _ask(self, held: HeldBack) -> Received:
        """Let the server see a call, and wait for its answer."""
        if held.id in self._waiting or held.id in self._passing:
            raise NotSent("another request now has this id")
        future = self._waiting[held.id] = asyncio.get_running_loop().create_future()
        try:
            await self._server.send(held.message.bytes + b"\n", (held.message,))
            return Received(await future, self._tools.errors_leave_doubt(held.tool))
        finally:
            if self._waiting.get(held.id) is future:
                del self._waiting[held.id]

    async def _delivered(self, *calls: ToolCall) -> None:
        if self._followed is not None and len(calls) == 1:
            self._followed.append(calls[0])
            return
        try:
            for call in calls:
                await self._judge.delivered(call)
        except OncewardError as error:  # Then the next equal call is given this answer: safe, and to be known.
            self._note(f"the delivery of an answer could not be recorded: {error}")

    def _client_has_spoken(self) -> None:
        if self._followed:
            calls, self._followed = self._followed, []
            self._start(self._mark(calls))

    async def _mark(self, calls: list[ToolCall]) -> None:
        for call in calls:
            with suppress(OncewardError):
                await self._judge.delivered(call)

    # --- from the server ---

    async def from_server(self, line: bytes) -> None:
        """Take a line of the server."""
        try:
            read = read_line(line)
        except Unclear:
            await self._client.write(line)
            return
        rest = [message for message in read.messages if not self._is_taken(message)]
        if len(rest) == len(read.messages):
            await self._client.write(line)
        elif rest:
            await self._client.write(b"[" + b",".join(one.bytes for one in rest) + b"]\n")

    def _is_taken(self, message: RpcMessage) -> bool:
        """Whether a message of the server stays here for now; what else is to be known of it is noted."""
        if message.method == _CHANGED:
            self._judge.forget()
        if not message.is_answer or (id := self._asked_as(message.id)) is None:
            return False
        waiting = self._waiting.get(id)
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(message)
            return True
        if self._passing.pop(id, None) == _LIST and (unknown := self._judge.learn(message.get("result"))):
            self._note(unknown_names(unknown))
        batch = self._batched.pop(id, None)
        if batch is None:
            return False
        self._start(_given(batch, message.bytes))
        return True

    def _asked_as(self, id: Id | None) -> Id | None:
        """An id as the client gave it: some servers answer 7 with "7"."""
        if id in self._waiting or id in self._passing:
            return id
        if isinstance(id, str) and id.isascii() and id.isdecimal() and len(id) < 20:
            number = int(id)
            return number if number in self._waiting or number in self._passing else None
        return None

    def lost(self, ids: Iterable[Id], error: Exception) -> None:
        """Requests that will never be answered: not sent, or their connection is gone."""
        for id in ids:
            waiting = self._waiting.get(id)
            if waiting is not None:
                if not waiting.done():
                    waiting.set_exception(error)
            elif self._passing.pop(id, None) is not None:
                batch = self._batched.pop(id, None)
                reply = SingleReply(self._client) if batch is None else batch
                self._start(_given(reply, answers.refusal(answers.id_text(id), answers.NOT_SENT, str(error))))

    def server_gone(self) -> None:
        """The server has ended: nobody knows what became of the calls that it had."""
        self.lost(list(self._waiting), ServerGone("the server ended before it answered"))

    # --- the end ---

    async def finish(self, seconds: float) -> None:
        """Wait for what is under way, for so long at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._tasks or self._waiting:
                    under_way: set[asyncio.Future[Any]] = {*self._tasks, *self._waiting.values()}
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("onceward: the proxy failed", exc_info=error)


def _cancelled_id(message: RpcMessage) -> Id | None:
    params = message.get("params")
    id = params.get("requestId") if isinstance(params, dict) else None
    return id if isinstance(id, int | float | str) and not isinstance(id, bool) else None


async def _given(reply: AnswerPlace, raw: bytes) -> None:
    await reply.give(raw)
