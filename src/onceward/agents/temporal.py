"""
Temporal: every activity of a worker has its effect once, however often the server has it attempted.

    gate = AgentGate("postgresql://...", scope="live:acme", tools={"look_up": Tool("read-only")})
    worker = Worker(client, ..., interceptors=[OncewardInterceptor(gate)])

Temporal names an activity by its workflow, the workflow's run and the activity's id, and these stay what they were over
retries and over the death of a worker: they are the key. A business key (`Tool(key="charge:{order_id}")`) wins over
them. An attempt that finds the first one's result returns it, as the same payload. One that finds doubt fails, and is
not retried: `ApplicationError`, its type the name of our error ("InDoubt"). One that finds another attempt at work
waits for it, and lets the server know with heartbeats; if that takes too long, it is retried when there will be
something to find. Leases are at most a third of the activity's shortest time-out, so that no attempt is spent on
waiting for a dead worker.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any, Literal

from onceward._core.errors import ConfigurationError, OncewardError, RetryAdvice
from onceward._core.key_derivation import input_hash
from onceward._core.keys import length_prefixed
from onceward._core.terms import Options
from onceward.agents._requirements import require
from onceward.agents.agent_gate import AgentGate
from onceward.agents.framework import Framework, NotKept
from onceward.agents.model_text import ForModel
from onceward.agents.tool_call import ToolCall
from onceward.agents.tools import Tool, declared_tool

require("temporalio", "1.20", "temporal")

from temporalio import activity  # noqa: E402
from temporalio.api.common.v1 import Payload  # noqa: E402
from temporalio.common import RawValue  # noqa: E402
from temporalio.converter import PayloadCodec  # noqa: E402
from temporalio.exceptions import ApplicationError  # noqa: E402
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor  # noqa: E402

__all__ = ["AuthError", "OncewardInterceptor", "ValidationError"]

_DOMAIN = b"onceward/temporal-activity/1"
LEASE_SHARE = 3
"""A lease is at most this part of the shortest time-out: a dead worker's ends while the next attempt still has time."""
LEASE_SECONDS_MIN = 1.0
WAIT_SHARE = 2
"""An attempt waits for another one for at most this part of its own time, so that it fails in words of its own."""
BEAT_SHARE = 4
LOOK_SECONDS = 1.0
"""While an attempt waits, it looks so often whether it was cancelled."""
FITTED_MAX = 1_000


class ValidationError(ApplicationError):
    """
    What was asked for is not valid, and nothing was done: the key is free again.

    Temporal records this name, so a policy with `non_retryable_error_types=["ValidationError"]` stops here.
    """

    def __init__(self, message: str, *details: Any, non_retryable: bool = False) -> None:
        super().__init__(message, *details, type=ValidationError.__name__, non_retryable=non_retryable)


class AuthError(ApplicationError):
    """
    Whoever asked may not do this, and nothing was done: the key is free again.

    Temporal records this name, so a policy with `non_retryable_error_types=["AuthError"]` stops here.
    """

    def __init__(self, message: str, *details: Any, non_retryable: bool = False) -> None:
        super().__init__(message, *details, type=AuthError.__name__, non_retryable=non_retryable)


class OncewardInterceptor(Interceptor):
    """
    Puts every activity of a worker behind the gate: `Worker(interceptors=[OncewardInterceptor(gate)])`.

    `per="workflow"` leaves the run out of the key, so that a workflow that is reset, or retried as a whole, finds what
    its earlier runs did. It is wrong for a workflow that continues as new, runs on a schedule, or whose id is used
    again: its second run then gets the first one's answers wherever activity id and arguments are equal. `codec` is the
    data converter's `payload_codec`, if stored results are to be encrypted as Temporal's are.

    Give the worker's other interceptors the places before it: it returns results as payloads (`RawValue`).
    """

    def __init__(
        self, gate: AgentGate, *, per: Literal["run", "workflow"] = "run", codec: PayloadCodec | None = None
    ) -> None:
        if not isinstance(gate, AgentGate):
            raise ConfigurationError("OncewardInterceptor takes an AgentGate: AgentGate(url, scope=..., tools={...})")
        if per not in ("run", "workflow"):
            raise ConfigurationError("per is 'run' or 'workflow': which of them an activity's key belongs to")
        self.gate, self.per, self.codec = gate, per, codec
        self._fitted: dict[tuple[int, float | None, float | None], tuple[Tool, Tool]] = {}

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Called by the worker, for each attempt."""
        return _GatedActivity(super().intercept_activity(next), self)

    def fitted(self, tool: Tool, info: activity.Info) -> Tool:
        """The tool, with a lease and a wait that fit the time-outs of this activity."""
        longest = _seconds(info.start_to_close_timeout or info.schedule_to_close_timeout)
        silence = _seconds(info.heartbeat_timeout)
        known = self._fitted.get((id(tool), longest, silence))
        if known is not None:
            return known[1]
        fitted = replace(tool, options=self._options(tool, longest, silence))
        if len(self._fitted) < FITTED_MAX:
            self._fitted[id(tool), longest, silence] = tool, fitted  # With the tool, so that its id stays its own.
        return fitted

    def _options(self, tool: Tool, longest: float | None, silence: float | None) -> Options:
        terms = self.gate.awaiting.agreed(**tool.terms())
        lease, wait = terms.lease / 1e6, terms.wait / 1e6
        limits = [limit for limit in (longest, silence) if limit is not None]
        if limits:
            lease = min(lease, max(LEASE_SECONDS_MIN, min(limits) / LEASE_SHARE))
        if wait:
            wait = max(wait, 1.25 * lease)  # Longer than a dead worker's lease: this attempt finds out.
        if longest is not None:
            wait = min(wait, longest / WAIT_SHARE)
        return Options(**{**tool.options, "lease": lease, "wait": wait})  # type: ignore[typeddict-item]


class _GatedActivity(ActivityInboundInterceptor):
    """One attempt at an activity."""

    def __init__(self, next: ActivityInboundInterceptor, outer: OncewardInterceptor) -> None:
        super().__init__(next)
        self._outer = outer
        self._raised: BaseException | None = None

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        """Called by the worker: run the activity, or return what it came to."""
        info, gate = activity.info(), self._outer.gate
        tool = gate.tool(info.activity_type, declared_tool(input.fn))
        if not tool.gated:
            return await self.next.execute_activity(input)
        waiting = _Waiting(info, stop=input.executor is not None)
        try:
            result = await gate.acall(
                self._call(info, tool, input),
                lambda: self._run(input, tool, waiting),
                framework=_TEMPORAL,
                tool=self._outer.fitted(tool, info),
                shield=False,  # A cancelled activity is told so: it may want to undo something.
            )
        except OncewardError as error:
            if error is self._raised:
                raise
            raise _refusal(str(error), error) from error
        finally:
            waiting.end()
        if isinstance(result, ForModel):
            raise _refusal(result.text, result.error) from result.error
        return await self._given_back(result.data) if isinstance(result, _Stored) else result

    def _call(self, info: activity.Info, tool: Tool, input: ExecuteActivityInput) -> ToolCall:
        """
        The attempt as a call: its key is Temporal's own name for the activity.

        Arguments only where they are needed. Otherwise a worker with a newer version of their class, which writes them
        in another way, would not know the call again.
        """
        run = _run_names(info, per=self._outer.per)
        identity = [*run, "local" if info.is_local else "", info.activity_id, info.activity_type]
        arguments: Any = None
        if self._outer.per == "workflow" or tool.key or tool.probe or tool.price is not None:
            arguments = _arguments(input)
        if self._outer.per == "workflow":
            identity.append(input_hash(arguments))
        hasher = sha256(_DOMAIN)
        for part in identity:
            hasher.update(length_prefixed(part))
        return ToolCall("/".join(run), info.activity_type, arguments, id=info.activity_id, key=hasher.hexdigest())

    async def _run(self, input: ExecuteActivityInput, tool: Tool, waiting: _Waiting) -> Any:
        """The activity itself: what is stored of it."""
        waiting.end()
        try:
            result = await self.next.execute_activity(input)
        except _COMPLETE_ASYNC as handed_over:
            if tool.kind != "blind":
                self._raised = handed_over
                raise  # It can be asked for, or done again.
            return {_HANDED_OVER: True}
        except BaseException as error:
            self._raised = error
            raise
        if tool.kind == "atomic":
            return result
        try:
            [payload] = activity.payload_converter().to_payloads([result])
            if self._outer.codec is not None:
                [payload] = await self._outer.codec.encode([payload])
        except Exception:
            return NotKept(result)  # The worker will say what is wrong with it, and nobody runs it again.
        return _to_plain(payload)

    async def _given_back(self, stored: Any) -> Any:
        """The result for the worker: the stored payload, byte by byte."""
        if _HANDED_OVER in stored:
            activity.raise_complete_async()
        payload = _from_plain(stored)
        if self._outer.codec is not None:
            [payload] = await self._outer.codec.decode([payload])
        return RawValue(payload)


def _run_names(info: activity.Info, *, per: str) -> list[str]:
    """
    The run that an activity belongs to: its workflow's; or its own, if no workflow has started it.

    Versions of Temporal that know activities without a workflow say `namespace`, and older ones `workflow_namespace`.
    """
    namespace = getattr(info, "namespace", None) or info.workflow_namespace or ""
    if info.workflow_id:
        run = [namespace, info.workflow_id, info.workflow_run_id or ""]
    else:
        run = [namespace, info.activity_id, getattr(info, "activity_run_id", None) or ""]
    return run if per == "run" else run[:2]


class _Waiting:
    """
    While another attempt is waited for: tells the server that this one lives, and hears if it was cancelled.

    The details of heartbeats stay as the last attempt left them.
    """

    def __init__(self, info: activity.Info, *, stop: bool) -> None:
        self._details = info.heartbeat_details if info.heartbeat_timeout else None
        self._stop = asyncio.current_task() if stop else None  # An awaiting activity is cancelled by its worker.
        self._loop = asyncio.get_running_loop()
        pauses = [LOOK_SECONDS] if stop else []
        pauses += [info.heartbeat_timeout.total_seconds() / BEAT_SHARE] if info.heartbeat_timeout else []
        self._pause = min(pauses, default=None)
        self._timer: asyncio.TimerHandle | None = None
        self._set()

    def _set(self) -> None:
        if self._pause is not None:
            self._timer = self._loop.call_later(self._pause, self._beat)

    def _beat(self) -> None:
        if self._stop is not None and activity.is_cancelled():
            self._stop.cancel()
            return
        self._set()
        if self._details is not None:
            activity.heartbeat(*self._details)

    def end(self) -> None:
        """The activity runs now, or it is over."""
        if self._timer is not None:
            self._timer.cancel()


def _refusal(text: str, error: BaseException) -> ApplicationError:
    """What Temporal is told: retried only where the same call will find something, and then after that time."""
    later = isinstance(error, OncewardError) and error.retry is RetryAdvice.SAME_KEY
    seconds = error.retry_after_seconds if isinstance(error, OncewardError) and later else None
    details = {"code": error.code, "record": error.digest} if isinstance(error, OncewardError) else {}
    return ApplicationError(
        text,
        details,
        type=type(error).__name__,
        non_retryable=not later,
        next_retry_delay=None if seconds is None else timedelta(seconds=seconds),
    )


# --- arguments and results as plain data ---


def _arguments(input: ExecuteActivityInput) -> Any:
    """By the names of the parameters; the fields of a single argument that has fields, as Temporal advises to write."""
    bound = inspect.signature(input.fn).bind(*input.args)
    bound.apply_defaults()
    converter = activity.payload_converter()
    plain = {name: _plain_argument(converter.to_payloads([value])[0]) for name, value in bound.arguments.items()}
    only = next(iter(plain.values())) if len(plain) == 1 else None
    return only if isinstance(only, dict) else plain


def _plain_argument(payload: Payload) -> Any:
    encoding = payload.metadata.get("encoding", b"")
    if encoding == b"binary/null":
        return None
    return json.loads(payload.data) if encoding.startswith(b"json/") else _to_plain(payload)


def _to_plain(payload: Payload) -> dict[str, Any]:
    """A payload as plain data: for people to read where it is text, otherwise its bytes."""
    try:
        text = {
            "metadata": {name: value.decode("ascii") for name, value in payload.metadata.items()},
            "data": payload.data.decode("utf-8"),
        }
        if _from_plain(text) == payload:
            return text
    except UnicodeDecodeError:
        pass
    return {"payload": b64encode(payload.SerializeToString(deterministic=True)).decode("ascii")}


def _from_plain(plain: dict[str, Any]) -> Payload:
    if "payload" in plain:
        return Payload.FromString(b64decode(plain["payload"]))
    return Payload(
        metadata={name: value.encode("ascii") for name, value in plain["metadata"].items()},
        data=plain["data"].encode("utf-8"),
    )


class _Stored:
    """What was stored of a result: not yet the result, because a codec has to be awaited."""

    __slots__ = ("data",)

    def __init__(self, data: Any) -> None:
        self.data = data


def _dump(result: Any) -> Any:
    return result


def _load(data: Any, call: ToolCall) -> _Stored:
    return _Stored(data)


def _type_of_handing_over() -> type[BaseException]:
    """What `raise_complete_async` raises: somebody else will complete the activity."""
    try:
        activity.raise_complete_async()
    except BaseException as raised:
        kind = type(raised)
    return kind


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


_HANDED_OVER = "handed_over"
_COMPLETE_ASYNC = _type_of_handing_over()
_TEMPORAL = Framework("temporal", dump=_dump, load=_load, control_flow=(ValidationError, AuthError))
