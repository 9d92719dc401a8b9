"""
A message and its identity: the key that the sender gave it, the key that its body makes, or its id.

    MessageKind("keyed", key="charge:{order_id}")     two messages for one order are one piece of work
    MessageKind("blind")                              each message is its own; a redelivery is the same one

A queue that delivers at least once delivers the same message again: after a crash, after a lost acknowledgement, after
its visibility time-out. The id says so where the queue keeps it. A message that was *sent* twice has two ids, and only
a key from its body (or one that the sender sends along) makes that one piece of work.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from onceward._core.errors import ConfigurationError, KeyMissing
from onceward._core.key_recipes import recipe
from onceward._core.terms import Options

KindOfMessage: TypeAlias = Literal["read-only", "repeatable", "atomic", "keyed", "probed", "blind"]

READ_ONLY: Final = "read-only"
KEY_HEADER: Final = "onceward-key"
"""The header by which a sender gives a message its key."""

_KINDS = get_args(KindOfMessage)
_BY_ID = recipe("{name}:{id}")


class QueueMessage(NamedTuple):
    """One message, as its worker was given it."""

    name: str
    """What is to be done: the task, the actor, the function; of a plain queue, the consumer's name."""
    id: str | None
    """The queue's own id of it, which stays the same when it is delivered again."""
    arguments: Mapping[str, Any]
    """What the work is given, by name: what a key is made from, and what a key is compared by."""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    """The same as they were sent: what a dead letter keeps, if it keeps any."""
    key: str | None = None
    """A key that the sender gave it."""


@dataclass(frozen=True, slots=True)
class MessageKind:
    """
    What the work for a message is, and what is one piece of it.

    The kinds are those of a gate: repeatable, atomic, keyed, probed, blind; and "read-only", which is never gated.
    `key` is a template over the arguments ("charge:{order_id}") or a function of them. `permanent` are errors that no
    further attempt will mend: the message becomes a dead letter at once. `attempts` are how often it may be begun.
    """

    kind: KindOfMessage = "blind"
    key: str | Callable[..., str] | None = field(default=None, kw_only=True)
    probe: Callable[..., Any] | None = field(default=None, kw_only=True)
    """For `probed`: given the `QueueMessage`, returns Found(result) or NOT_FOUND."""
    permanent: tuple[type[BaseException], ...] = field(default=(), kw_only=True)
    attempts: int | None = field(default=None, kw_only=True)
    options: Options = field(default_factory=Options, kw_only=True)

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ConfigurationError(f"a message is one of {', '.join(_KINDS)}, not {str(self.kind)[:40]!r}")
        if (self.kind == "probed") != (self.probe is not None):
            raise ConfigurationError(
                "MessageKind('probed') and probe=function go together: the probe finds out what happened"
            )
        if "guarantee" in self.options:
            raise ConfigurationError("a message's kind is its guarantee: leave guarantee out of its options")
        if not all(isinstance(one, type) and issubclass(one, BaseException) for one in self.permanent):
            raise ConfigurationError("permanent is a tuple of exception types that a retry cannot fix")
        if self.attempts is not None:
            check_attempts(self.attempts)
        if self.key is not None:
            recipe(self.key)  # It says what is wrong with it.

    @property
    def gated(self) -> bool:
        """Whether it goes through the gate: whether it has effects."""
        return self.kind != READ_ONLY

    def terms(self) -> Options:
        """What the gate is told about it."""
        said = Options(**self.options)
        if self.gated:
            said["guarantee"] = self.kind  # type: ignore[typeddict-item]  # All but the first kind are guarantees.
        if self.kind == "atomic":
            said["settle"] = "inside"  # The work opens its own transaction: nobody can hand it one.
        return said


BLIND: Final = MessageKind("blind")


def check_attempts(attempts: object) -> int:
    """How often a message may be begun, if that can be one."""
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise ConfigurationError("attempts is how often a message may be started: a number, 1 or more")
    return attempts


class Identity(NamedTuple):
    """Which piece of work a message is."""

    key: str
    request: Any
    """What the key stands for, compared with the next message of that key."""


def identity_of(message: QueueMessage, kind: MessageKind) -> Identity:
    """
    The key of a message: by the kind's template, as the sender gave it, or by its id.

    An id names one message, so there is nothing to compare (a Celery task may change its arguments when it asks to be
    retried). A key of any other origin is held to its arguments.
    """
    if kind.key is not None:
        return Identity(_by_template(message, kind.key), dict(message.arguments))
    if message.key is not None:
        return Identity(message.key, dict(message.arguments))
    if not message.id:
        raise KeyMissing(
            f"this message for {message.name} has no id, so a redelivery could not be told from another message; send "
            f"it with an id (RabbitMQ: the property message_id) or the header {KEY_HEADER}, or make the key from its "
            "body: MessageKind(key='charge:{order_id}')"
        )
    return Identity(_BY_ID.key({"name": message.name, "id": message.id}), None)


def _by_template(message: QueueMessage, template: str | Callable[..., str]) -> str:
    made = recipe(template)
    missing = [name for name in made.fields if message.arguments.get(name) is None]
    if missing and isinstance(template, str):
        raise KeyMissing(
            f"the key of {message.name} is made from {', '.join(missing)}, and this message has no such value: nothing "
            "was run. Send it along, or correct the template"
        )
    return made.key(message.arguments)


def given(probe: Callable[..., Any], message: QueueMessage) -> Callable[[Any], Any]:
    """The probe of a gate, which is given the operation, from one that is given the message."""
    return lambda operation: probe(message)


def arguments_by_name(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What a function is given, by name, with its defaults: the same however it was called."""
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
    except (TypeError, ValueError):
        # The call itself will say what is wrong with it.
        return {**{f"argument_{place}": value for place, value in enumerate(args)}, **kwargs}
    bound.apply_defaults()
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = list(value) if kind is inspect.Parameter.VAR_POSITIONAL else value
    return named
