"""
Celery: every task runs once per message, also when the worker is killed, the message redelivered or the task retried.

    gate = MessageGate("postgresql:///shop", scope="live:acme")
    app = Celery("shop", task_cls=once_task(gate))
    app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)

    @app.task(onceward=MessageKind("keyed", key="charge:{order_id}"))
    def charge(order_id): ...

The key is the task's id, which stays the same over autoretry and redelivery, or what `onceward=` says, or the header
`onceward-key` of `apply_async(headers=...)`. A task that is called as a function, and not as a task, is not gated.
"""

from __future__ import annotations

from typing import Any

from onceward.agents._requirements import require

require("celery", "5.5", "celery")

from celery import Task  # noqa: E402 - once it is known to be there
from celery.exceptions import Ignore, Reject, Retry  # noqa: E402

from onceward._core.errors import ConfigurationError, OncewardError  # noqa: E402
from onceward.queues.delivery_end import DeliveryEnd, MessageQueue  # noqa: E402
from onceward.queues.message import KEY_HEADER, MessageKind, QueueMessage, arguments_by_name  # noqa: E402
from onceward.queues.message_gate import MessageGate  # noqa: E402

__all__ = ["once_task"]

CELERY = MessageQueue("celery", retries=(Retry,), control_flow=(Ignore, Reject), sends_first=True)

VISIBILITY_SECONDS = 3600.0
"""What Redis has for a visibility time-out if nothing is said."""


def once_task(gate: MessageGate) -> type[Task]:
    """The base class of an app's tasks: `Celery(task_cls=once_task(gate))`."""

    class OncewardTask(Task):  # type: ignore[misc]
        """A task that goes through the gate."""

        abstract = True
        onceward: MessageKind | None = None
        dont_autoretry_for = _terminal()
        """Refusals of gates inside the task: another attempt would be refused, too."""

        @classmethod
        def on_bound(cls, app: Any) -> None:
            """Say what is missing when the worker starts, and not when it is killed."""
            _check(cls, app, gate)
            super().on_bound(app)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            run = super().__call__
            if self.request.called_directly or _is_own(self.name):
                return run(*args, **kwargs)
            message = QueueMessage(
                self.name,
                self.request.id,
                arguments_by_name(self.run, args, kwargs),
                args,
                kwargs,
                _sent_key(self.request),
            )
            end = gate.consume(
                message, lambda: run(*args, **kwargs), queue=CELERY, declared=self.onceward, last=_is_last
            )
            if end.end == "later":
                _put_back(self, end)
            if end.error is not None:
                raise end.error
            return end.value

    return OncewardTask


def _is_last(error: BaseException) -> bool:
    """Celery tries again what asks for it, and nothing else."""
    return not isinstance(error, Retry)


def _put_back(task: Any, end: DeliveryEnd) -> None:
    """Send the message again for later. Not with `task.retry`: to wait for another worker is no retry of the task's."""
    request = task.request
    if request.is_eager:
        return
    again = task.signature_from_request(
        request, request.args, request.kwargs, countdown=end.delay, retries=request.retries
    )
    again.apply_async()
    raise Retry(exc=end.error, when=end.delay, sig=again)


def _sent_key(request: Any) -> str | None:
    key = (request.headers or {}).get(KEY_HEADER) or getattr(request, KEY_HEADER, None)
    return key if isinstance(key, str) else None


def _is_own(name: str | None) -> bool:
    """Celery's own tasks (chords, groups, clean-up) have their own rules."""
    return name is None or name.startswith("celery.")


def _terminal() -> tuple[type[BaseException], ...]:
    found: list[type[BaseException]] = []
    left: list[type[OncewardError]] = [OncewardError]
    while left:
        kinds = left.pop().__subclasses__()
        left.extend(kinds)
        found.extend(kind for kind in kinds if issubclass(kind, RuntimeError))
    return tuple(found)


def _check(task: Any, app: Any, gate: MessageGate) -> None:
    kind = gate.kind(task.name, task.onceward)
    if _is_own(task.name) or not kind.gated or app.conf.task_always_eager:
        return
    if not task.acks_late or not task.reject_on_worker_lost:
        raise ConfigurationError(
            f"the task {task.name} is acknowledged before it runs, so it is lost if its worker is killed: set "
            "task_acks_late=True and task_reject_on_worker_lost=True in the app's configuration (or acks_late and "
            "reject_on_worker_lost on the task)"
        )
    told = (app.conf.broker_transport_options or {}).get("visibility_timeout")
    scheme = str(app.conf.broker_read_url or app.conf.broker_url or "").partition(":")[0]
    visible = told if told is not None else VISIBILITY_SECONDS if scheme in ("redis", "rediss", "sentinel") else None
    limit = task.time_limit or app.conf.task_time_limit
    gate.check_time_outs(
        redelivered_after=None if visible is None else ("visibility_timeout", float(visible)),
        ends_after=None if limit is None else ("task_time_limit", float(limit)),
        kind=kind,
    )
