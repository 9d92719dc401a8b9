"""
Dramatiq: every actor works once per message, also when the worker is killed and the message requeued.

    gate = MessageGate("postgresql:///shop", scope="live:acme")
    broker.add_middleware(OnceMiddleware(gate))            # before the actors are declared

    @dramatiq.actor(onceward=MessageKind("keyed", key="charge:{order_id}"))
    def charge(order_id): ...

The key is the message's id, which stays the same over retries, or what `onceward=` says, or the message's option
`onceward_key` (`charge.send_with_options(args=..., onceward_key=...)`). An actor that is called as a function is not
gated.
"""

from __future__ import annotations

import threading
from typing import Any

from onceward.agents._requirements import require

require("dramatiq", "2.0", "dramatiq")

from dramatiq.errors import Retry  # noqa: E402 - once it is known to be there
from dramatiq.middleware import Middleware, MiddlewareError, TimeLimit  # noqa: E402
from dramatiq.middleware import Retries as _Retries  # noqa: E402

from onceward._core.errors import ConfigurationError  # noqa: E402
from onceward.queues.delivery_end import DeliveryEnd, MessageQueue  # noqa: E402
from onceward.queues.message import MessageKind, QueueMessage, arguments_by_name  # noqa: E402
from onceward.queues.message_gate import MessageGate  # noqa: E402

__all__ = ["ActorRefused", "GivenUpMessage", "OnceMiddleware"]

DRAMATIQ = MessageQueue("dramatiq", retries=(Retry,))
KEY_OPTION = "onceward_key"


class ActorRefused(MiddlewareError, ConfigurationError):  # type: ignore[misc]
    """
    This actor cannot be put behind the gate as it is declared. Change what the message names.

    Dramatiq logs other errors of a middleware and goes on, and the actor would run without a gate.

    A loop must not repeat it: the declaration stays wrong until somebody changes it.
    """


class GivenUpMessage(RuntimeError):
    """This message is not to be tried again: there is a dead letter of it. The cause says why."""


class OnceMiddleware(Middleware):  # type: ignore[misc]
    """Puts every actor that is declared after it behind the gate."""

    def __init__(self, gate: MessageGate) -> None:
        self._gate = gate
        self._current = threading.local()

    @property
    def actor_options(self) -> set[str]:
        """What an actor may say."""
        return {"onceward"}

    def before_declare_actor(self, broker: Any, actor: Any) -> None:
        """Wrap its function, and see to it that what is given up is not retried."""
        try:
            self._wrap(broker, actor)
        except Exception as error:
            raise ActorRefused(f"actor {actor.actor_name}: {error}") from error

    def _wrap(self, broker: Any, actor: Any) -> None:
        fn, declared = actor.fn, actor.options.get("onceward")
        kind = self._gate.kind(actor.actor_name, declared)
        if not kind.gated:
            return
        self._check(broker, actor, kind)
        throws = actor.options.get("throws") or ()
        actor.options["throws"] = (*(throws if isinstance(throws, tuple) else (throws,)), GivenUpMessage)

        def once(*args: Any, **kwargs: Any) -> Any:
            delivered = getattr(self._current, "message", None)
            if delivered is None:
                return fn(*args, **kwargs)
            self._current.message = None  # An actor that it calls as a function is none.
            named = arguments_by_name(fn, args, kwargs)
            message = QueueMessage(
                actor.actor_name, delivered.message_id, named, args, kwargs, delivered.options.get(KEY_OPTION)
            )
            end = self._gate.consume(
                message,
                lambda: fn(*args, **kwargs),
                queue=DRAMATIQ,
                declared=declared,
                last=lambda error: _is_last(error, broker, actor, delivered),
            )
            return _ended(end, delivered)

        actor.fn = once

    def before_process_message(self, broker: Any, message: Any) -> None:
        """A message has come: what the actor does from now on is for it."""
        self._current.message = message

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        """It is over."""
        self._current.message = None

    def after_skip_message(self, broker: Any, message: Any) -> None:
        """It was not worked on."""
        self._current.message = None

    def _check(self, broker: Any, actor: Any, kind: MessageKind) -> None:
        beats = getattr(broker, "heartbeat_timeout", None)  # RabbitMQ notices a lost connection by itself.
        default = next((one.time_limit for one in broker.middleware if isinstance(one, TimeLimit)), None)
        limit = actor.options.get("time_limit", default)
        self._gate.check_time_outs(
            redelivered_after=None if beats is None else ("heartbeat_timeout", beats / 1000),
            ends_after=None if limit is None or limit == float("inf") else ("time_limit", limit / 1000),
            kind=kind,
        )


def _ended(end: DeliveryEnd, delivered: Any) -> Any:
    if end.end == "dead":
        raise GivenUpMessage(f"{delivered.actor_name} was given up: it is kept as a dead letter") from end.error
    if end.end == "later":
        # To wait for another worker is no retry of the actor's: it is not counted.
        delivered.options["retries"] = delivered.options.get("retries", 0) - 1
        raise Retry(str(end.error), delay=int(end.delay * 1000)) from end.error
    if end.error is not None:
        raise end.error
    return end.value


def _is_last(error: BaseException, broker: Any, actor: Any, delivered: Any) -> bool:
    """Whether Dramatiq would not try again after this error, by the rules of its own `Retries`."""
    rules = next((one for one in broker.middleware if isinstance(one, _Retries)), None)
    if rules is None:
        return True
    throws = tuple(kind for kind in actor.options["throws"] if kind is not GivenUpMessage)
    if isinstance(error, throws):
        return True
    made = delivered.options.get("retries", 0)
    when = actor.options.get("retry_when", rules.retry_when)
    if when is not None:
        return not when(made, error)
    most = delivered.options.get("max_retries", actor.options.get("max_retries", rules.max_retries))
    return most is not None and made >= most
