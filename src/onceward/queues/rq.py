"""
RQ: every job's function runs once, also when its worker is killed and the job retried.

    class ShopJob(OncewardJob):                                # in shop/jobs.py
        gate = MessageGate("postgresql:///shop", scope="live:acme")

    queue = Queue(connection=redis, job_class=ShopJob)
    queue.enqueue(charge, "order-42", retry=Retry(max=3))      # $ rq worker --job-class shop.jobs.ShopJob

RQ runs a job again only if it was enqueued with `retry=Retry(...)`; without, a killed worker's job fails for good. The
key is the job's id, what `gate`'s `messages` say for the function's name, or `meta={"onceward-key": ...}` of the job.
"""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from onceward.agents._requirements import require

require("rq", "2.1", "rq")

from rq.job import Job, Retry  # noqa: E402 - once it is known to be there

from onceward._core.errors import ConfigurationError  # noqa: E402
from onceward.queues.delivery_end import AskedAgain, MessageQueue  # noqa: E402
from onceward.queues.message import KEY_HEADER, QueueMessage, arguments_by_name  # noqa: E402
from onceward.queues.message_gate import MessageGate  # noqa: E402

__all__ = ["OncewardJob"]

RQ = MessageQueue("rq")
NEVER_TOO_OFTEN = 1_000_000_000

_log = logging.getLogger("onceward.queues")


class OncewardJob(Job):  # type: ignore[misc]
    """A job that goes through a gate: subclass it, and say which."""

    gate: ClassVar[MessageGate]
    retries_left: int | None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not isinstance(getattr(cls, "gate", None), MessageGate):
            raise ConfigurationError(f"{cls.__name__} says gate = MessageGate(...): the gate of its jobs")

    def _execute(self) -> Any:
        kind = self.gate.kind(self.func_name)
        if not kind.gated:
            return super()._execute()
        if isinstance(self.timeout, int | float) and self.timeout > 0:  # -1: none
            self.gate.check_time_outs(ends_after=("the job's timeout", float(self.timeout)), kind=kind)
        if not self.number_of_retries and self.retries_left is None:
            _log.warning(
                "onceward: job %s was enqueued without retry=Retry(...): if its worker is killed, RQ does not run it "
                "again, and its record stays in doubt, or free, until someone runs it again",
                self.id,
            )
        args, kwargs = tuple(self.args), dict(self.kwargs)
        key = (self.meta or {}).get(KEY_HEADER)
        message = QueueMessage(self.func_name, self.id, arguments_by_name(self.func, args, kwargs), args, kwargs, key)
        end = self.gate.consume(message, self._work, queue=RQ, last=self._is_last)
        if end.end == "later":
            # RQ has delays only where its scheduler runs, so the pause is made here.
            self.gate.pause(end.delay)
            return Retry(max=NEVER_TOO_OFTEN)
        if isinstance(end.error, AskedAgain):
            return end.error.result
        if end.end == "dead":
            self.retries_left = None  # RQ would try again whatever it is told.
        if end.error is not None:
            raise end.error
        return end.value

    def _work(self) -> Any:
        result = super()._execute()
        if isinstance(result, Retry):
            raise AskedAgain(result)  # It asks to be run again: that is no result.
        return result

    def _is_last(self, error: BaseException) -> bool:
        return not self.retries_left
