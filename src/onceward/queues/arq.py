"""
arq: every job's coroutine runs once, also when its worker is killed and the job picked up by another.

    gate = MessageGate("postgresql:///shop", scope="live:acme")

    class WorkerSettings:
        functions = once_functions(gate, [charge, func(report, timeout=60)], job_timeout=300)
        job_timeout = 300

The key is the job's id (`enqueue_job(..., _job_id=...)` chooses it), or what `gate`'s `messages` say for the function's
name. arq runs a job again after a crash once its time-out and ten seconds are over, and as often as `max_tries` says.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import wraps
from typing import Any

from onceward.agents._requirements import require

require("arq", "0.26.1", "arq")

from arq.constants import retry_key_prefix  # noqa: E402 - once it is known to be there
from arq.worker import Function, Retry, RetryJob, func  # noqa: E402

from onceward.queues.delivery_end import DeliveryEnd, MessageQueue  # noqa: E402
from onceward.queues.message import QueueMessage, arguments_by_name  # noqa: E402
from onceward.queues.message_gate import MessageGate  # noqa: E402

__all__ = ["once_functions"]

ARQ = MessageQueue("arq", retries=(Retry, RetryJob))
GRACE_SECONDS = 10.0
"""How long after its time-out arq holds a job that nobody has ended."""


def once_functions(gate: MessageGate, functions: Iterable[Any], *, job_timeout: float = 300) -> list[Function]:
    """
    The functions of a worker, each behind the gate: for `WorkerSettings.functions`.

    `job_timeout` is the worker's own (arq's default is 300 s), for functions that have none.
    """
    return [_once(gate, func(one), job_timeout) for one in functions]


def _once(gate: MessageGate, function: Function, job_timeout: float) -> Function:
    kind = gate.kind(function.name)
    if not kind.gated:
        return function
    limit = float(job_timeout if function.timeout_s is None else function.timeout_s)
    gate.check_time_outs(
        redelivered_after=("job_timeout and 10 s", limit + GRACE_SECONDS), ends_after=("job_timeout", limit), kind=kind
    )
    work = function.coroutine

    @wraps(work)
    async def once(ctx: dict[Any, Any], *args: Any, **kwargs: Any) -> Any:
        named = arguments_by_name(work, (ctx, *args), kwargs)
        named.pop(next(iter(named)), None)  # The context: it is the worker's, and no part of the message.
        message = QueueMessage(function.name, ctx["job_id"], named, args, kwargs)
        end = await gate.aconsume(message, lambda: work(ctx, *args, **kwargs), queue=ARQ, last=_is_last)
        return await _ended(end, ctx)

    function.coroutine = once
    return function


async def _ended(end: DeliveryEnd, ctx: dict[Any, Any]) -> Any:
    if end.end == "later":
        # To wait for another worker is no try of the job's: it is not counted.
        await ctx["redis"].decr(retry_key_prefix + ctx["job_id"])
        raise Retry(defer=end.delay) from end.error
    if end.end == "dead" and isinstance(end.error, Retry | RetryJob):
        raise RuntimeError(f"job {ctx['job_id']} was given up: it is kept as a dead letter") from end.error
    if end.error is not None:
        raise end.error
    return end.value


def _is_last(error: BaseException) -> bool:
    """arq tries again what asks for it, and nothing else."""
    return not isinstance(error, Retry | RetryJob)
