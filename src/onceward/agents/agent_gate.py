"""
`AgentGate`: every tool call of an agent happens once, and the model reads the same answer however often it is made.

    gate = AgentGate("sqlite:///agent.db", scope="live:acme", tools={
        "charge": Tool("keyed", key="charge:{order_id}"),
        "search": Tool("read-only"),
    })

One object for `def` and `async def`: a blocking and an awaiting gate on the same store, each opened when first used.
Adapters for frameworks call `call` and `acall`; a loop of your own takes `run`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from copy import copy
from functools import cached_property, partial
from inspect import isawaitable
from types import TracebackType
from typing import Any, Self, Unpack

from onceward._core.errors import ConfigurationError
from onceward._core.events import Listener
from onceward._core.sealing import Seal
from onceward._core.terms import Options
from onceward.agents import delivery, delivery_async
from onceward.agents.agent_run import AgentRun
from onceward.agents.call_notes import RunNotes
from onceward.agents.framework import PLAIN, Framework
from onceward.agents.spend import Spend, SpendView, check_prices
from onceward.agents.spend_book import SpendBook
from onceward.agents.spend_book_async import AsyncSpendBook
from onceward.agents.tool_call import ToolCall
from onceward.agents.tool_runner import HeldCall, ToolRunner
from onceward.agents.tool_runner_async import AsyncHeldCall, AsyncToolRunner
from onceward.agents.tools import BLIND, Tool, ToolTable
from onceward.gate import AsyncGate, Gate
from onceward.journal import AsyncJournal, Journal
from onceward.runtime.environment import REAL, Environment
from onceward.stores import tables_url

MEMORY = "memory://"


class AgentGate:
    """
    Tool calls go through once. `tools` says what each tool is; a tool of which nothing is said is blind.

    `store` is a URL, and `scope` says the scope of these calls, as for a `Gate`. Any option of an operation (`lease`,
    `wait`, `retain`, ...) may be given as the default for all tools.

    With `journal`, every attempt is noted beside the records of a SQLite or PostgreSQL store, under the name of this
    `worker`; `onceward journal show RUN` prints a run. It costs one more write before each tool runs. `spend` is a cap
    on what calls cost. `seal` and `sealed_only` are those of a `Gate`.
    """

    def __init__(
        self,
        store: str,
        *,
        scope: str,
        tools: Mapping[str, Tool] | None = None,
        default: Tool = BLIND,
        journal: bool = False,
        worker: str = "agent",
        spend: Spend | None = None,
        listeners: Iterable[Listener] = (),
        environment: Environment | None = None,
        seal: Seal | None = None,
        sealed_only: bool = False,
        **options: Unpack[Options],
    ) -> None:
        if not isinstance(store, str):
            raise ConfigurationError(
                "an AgentGate takes its store as a URL, because it opens it for both blocking and async tools"
            )
        if "guarantee" in options:
            raise ConfigurationError("declare each tool in tools={...}, and use default= for the others")
        self._environment = environment or REAL
        # A store in memory has a name here, because both colours must see the same one.
        self._url = f"{MEMORY}agent-{self._environment.random(8).hex()}" if store == MEMORY else store
        self._scope, self._options = scope, options
        self._listeners = tuple(listeners)
        self._tools = ToolTable(tools or {}, default)
        self._spend = _checked_spend(spend, {**(tools or {}), "default": default})
        self._worker = worker
        self._notes = self._run_notes() if journal else None
        self._lock = threading.Lock()
        self._shielded: set[asyncio.Task[Any]] = set()
        self._owner: AgentGate | None = None
        self._seal, self._sealed_only = seal, sealed_only
        # Scope and options are checked now, and the store when it is needed.
        Gate(MEMORY, scope=scope, seal=seal, sealed_only=sealed_only, **options)

    @cached_property
    def _blocking_calls(self) -> ToolRunner:
        if self._owner is not None:
            return ToolRunner(self._owner.blocking.scoped(self._scope))
        gate = Gate(
            self._url,
            scope=self._scope,
            listeners=self._listeners,
            environment=self._environment,
            seal=self._seal,
            sealed_only=self._sealed_only,
            **self._options,
        )
        book = None if self._spend is None else SpendBook(gate, self._spend)
        return ToolRunner(gate, None if self._notes is None else Journal(self._url, **self._keeper), self._notes, book)

    @cached_property
    def _awaiting_calls(self) -> AsyncToolRunner:
        if self._owner is not None:
            return AsyncToolRunner(self._owner.awaiting.scoped(self._scope))
        gate = AsyncGate(
            self._url,
            scope=self._scope,
            listeners=self._listeners,
            environment=self._environment,
            seal=self._seal,
            sealed_only=self._sealed_only,
            **self._options,
        )
        book = None if self._spend is None else AsyncSpendBook(gate, self._spend)
        journal = None if self._notes is None else AsyncJournal(self._url, **self._keeper)
        return AsyncToolRunner(gate, journal, self._notes, book)

    def _run_notes(self) -> RunNotes:
        if tables_url(self._url) is None:
            raise ConfigurationError(
                "journal=True needs a store that can keep a journal beside its records, SQLite or PostgreSQL "
                "(sqlite:///agent.db or postgresql://...), and this one cannot; use such a store, or leave journal= out"
            )
        Journal(self._url, **self._keeper)  # It says what is wrong with the name of the worker; nothing is opened.
        return RunNotes(self._environment, self._scope, self._worker)

    @property
    def _keeper(self) -> Any:
        return {"scope": self._scope, "worker": self._worker, "environment": self._environment}

    @property
    def scope(self) -> str:
        """Whose calls these are."""
        return self._scope

    def scoped(self, scope: str) -> AgentGate:
        """
        This gate for another scope: the same store, tools and options. For a server with many tenants.

        Take the scope from who is authenticated. Close the gate it came from: closing this one closes nothing.
        """
        Gate(MEMORY, scope=scope)  # Checked now.
        twin = copy(self)
        twin.__dict__.pop("_blocking_calls", None)
        twin.__dict__.pop("_awaiting_calls", None)
        twin._owner, twin._scope, twin._lock = self._owner or self, scope, threading.Lock()
        return twin

    @property
    def blocking(self) -> Gate:
        """The blocking gate: for looking at records, and for deciding those in doubt."""
        with self._lock:
            return self._blocking_calls.gate

    @property
    def awaiting(self) -> AsyncGate:
        """The awaiting gate."""
        with self._lock:
            return self._awaiting_calls.gate

    def tool(self, name: str, declared: Tool | None = None) -> Tool:
        """What the tool of this name is. `declared` is what its adapter knows: a decorator's word, or annotations."""
        return self._tools.find(name, declared)

    def run(self, name: str) -> AgentRun:
        """A run whose framework keeps no history: numbers its equal calls."""
        return AgentRun(self, name)

    def spent(self, run: str | None = None) -> SpendView:
        """What was spent, what is reserved and what is left: of this run, or under the cap that all runs share."""
        with self._lock:
            runner = self._blocking_calls
        if runner.book is None:
            raise ConfigurationError(_NO_SPEND)
        return runner.book.view(run)

    async def aspent(self, run: str | None = None) -> SpendView:
        """What was spent, what is reserved and what is left; as `spent`."""
        if self._awaiting_calls.book is None:
            raise ConfigurationError(_NO_SPEND)
        return await self._awaiting_calls.book.view(run)

    # --- for adapters ---

    def call(
        self,
        call: ToolCall,
        fn: Callable[[], Any],
        *,
        framework: Framework = PLAIN,
        declared: Tool | None = None,
        tell_errors: bool = False,
        unfinished: Callable[[], None] | None = None,
    ) -> Any:
        """
        Make a tool call once: the framework's own result, or `ForModel`.

        `ForModel` has words for the model: the call was not made now, or the framework reported a failure. What the
        tool raises is raised; with `tell_errors`, as where the framework would make a text of it, it is told as well.
        `unfinished` is called if the result is not final (`NotFinal`), for whoever numbers calls.
        """
        tool = self._tools.find(call.tool, declared)
        if not tool.gated:
            return fn()
        with self._lock:
            runner = self._blocking_calls
        return runner.call_tool(call, fn, tool, framework, tell_errors=tell_errors, unfinished=unfinished)

    async def acall(
        self,
        call: ToolCall,
        fn: Callable[[], Any],
        *,
        framework: Framework = PLAIN,
        declared: Tool | None = None,
        tool: Tool | None = None,
        tell_errors: bool = False,
        unfinished: Callable[[], None] | None = None,
        shield: bool = True,
    ) -> Any:
        """
        Make a tool call once, awaiting it: as `call`. `fn` may return something to await, or a result.

        With `shield`, a caller who is cancelled leaves the call running to its end, so that its outcome is known; the
        next equal call then finds it. `aclose` waits for such calls. `tool` is for an adapter that has asked `tool()`
        already, and made its options fit its framework's time-outs.
        """
        tool = tool or self._tools.find(call.tool, declared)
        if not tool.gated:
            return await self.aungated(fn)
        awaits = partial(self.aungated, fn)
        going = self._awaiting_calls.call_tool(
            call, awaits, tool, framework, tell_errors=tell_errors, unfinished=unfinished
        )
        return await (self._shield(going) if shield else going)

    async def aungated(self, fn: Callable[[], Any]) -> Any:
        """What a function of either colour returns, ungated."""
        returned = fn()
        return await returned if isawaitable(returned) else returned

    async def _shield(self, going: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.ensure_future(going)
        self._shielded.add(task)
        task.add_done_callback(self._let_go)
        return await asyncio.shield(task)

    def _let_go(self, task: asyncio.Task[Any]) -> None:
        self._shielded.discard(task)
        if not task.cancelled():
            task.exception()  # Seen, so that nothing is printed if its caller has left.

    def open_call(
        self, call: ToolCall, *, framework: Framework = PLAIN, declared: Tool | None = None
    ) -> HeldCall | Any | None:
        """
        Claim a call that the framework makes itself; None if the tool is not gated.

        What is not a `HeldCall` is its result, or `ForModel`. Whoever holds must `end` or `fail`.
        """
        tool = self._tools.find(call.tool, declared)
        if not tool.gated:
            return None
        with self._lock:
            runner = self._blocking_calls
        return runner.hold(call, tool, framework)

    async def aopen_call(
        self, call: ToolCall, *, framework: Framework = PLAIN, declared: Tool | None = None
    ) -> AsyncHeldCall | Any | None:
        """Claim a call that the framework makes itself; as `open_call`."""
        tool = self._tools.find(call.tool, declared)
        return await self._awaiting_calls.hold(call, tool, framework) if tool.gated else None

    def delivered_before(self, run: str, tool: str, arguments: Any) -> int:
        """How many equal calls of this run were delivered, in whatever process."""
        return delivery.delivered_before(self.blocking, run, tool, arguments)

    async def adelivered_before(self, run: str, tool: str, arguments: Any) -> int:
        """How many equal calls of this run were delivered, in whatever process."""
        return await delivery_async.delivered_before(self.awaiting, run, tool, arguments)

    def mark_delivered(self, call: ToolCall) -> None:
        """Note that a call's answer has reached whoever keeps the history."""
        delivery.mark_delivered(self.blocking, call)

    async def amark_delivered(self, call: ToolCall) -> None:
        """Note that a call's answer has reached whoever keeps the history."""
        await delivery_async.mark_delivered(self.awaiting, call)

    # --- the end ---

    def close(self) -> None:
        """Close what the blocking calls have opened."""
        if "_blocking_calls" in self.__dict__:
            self._blocking_calls.close()

    async def aclose(self) -> None:
        """Wait for calls whose callers have left, and close everything."""
        while self._shielded:
            await asyncio.wait(self._shielded)
        if "_awaiting_calls" in self.__dict__:
            await self._awaiting_calls.close()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()


_NO_SPEND = "this gate has no cap on what calls cost: AgentGate(spend=Spend('usd', limit='20.00'), ...)"


def _checked_spend(spend: Spend | None, tools: Mapping[str, Tool]) -> Spend | None:
    if spend is not None and not isinstance(spend, Spend):
        raise ConfigurationError("spend must be a Spend, such as Spend('usd', limit='20.00')")
    check_prices(tools)
    return spend
