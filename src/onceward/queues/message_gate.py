"""
`MessageGate`: the work of every message is done once, however often its queue delivers it.

    gate = MessageGate("postgresql:///shop", scope="live:acme", messages={
        "shop.charge": MessageKind("keyed", key="charge:{order_id}"),
        "shop.report": MessageKind("read-only"),
    })

One object for `def` and `async def`, opened in each process when first used: after a worker has forked. Adapters call
`consume` and `aconsume`; a consumer of your own may do so, too.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from onceward._core.durations import SECOND
from onceward._core.errors import ConfigurationError
from onceward._core.events import Listener
from onceward._core.sealing import Seal
from onceward._core.terms import Options, Terms, apply_options
from onceward.gate import AsyncGate, Gate
from onceward.gate.dead_letter_box import DeadLetterBox
from onceward.queues.delivery_end import PLAIN, DeliveryEnd, MessageQueue
from onceward.queues.message import BLIND, MessageKind, QueueMessage, check_attempts
from onceward.queues.message_runner import MessageRunner
from onceward.queues.message_runner_async import AsyncMessageRunner
from onceward.runtime.environment import REAL, Environment

MEMORY = "memory://"

ATTEMPTS = 25
"""More than the queues' own rules allow by default, so that those hold; it ends what they do not count (crashes)."""

WAIT_SECONDS = 2.0
"""For another worker that has the same message: a worker has other messages to do, and this one comes again."""


class MessageGate:
    """
    Messages go through once. `messages` says what each kind is, by name; one of which nothing is said is blind.

    `store` is a URL, and `scope` says whose messages these are, as for a `Gate`. What is given up becomes a dead letter
    in the same store, with its arguments only if `payload` says so ("plain", or `Sealed(key)`). Any option of an
    operation (`lease`, `retain`, ...) may be given as the default for all. `seal` and `sealed_only` are those of a
    `Gate`.
    """

    def __init__(
        self,
        store: str,
        *,
        scope: str,
        messages: Mapping[str, MessageKind] | None = None,
        default: MessageKind = BLIND,
        attempts: int = ATTEMPTS,
        payload: Literal["plain"] | Seal | None = None,
        listeners: Iterable[Listener] = (),
        environment: Environment | None = None,
        seal: Seal | None = None,
        sealed_only: bool = False,
        **options: Unpack[Options],
    ) -> None:
        if not isinstance(store, str):
            raise ConfigurationError("a MessageGate takes its store as a URL, because each worker process opens it")
        if "guarantee" in options:
            raise ConfigurationError("declare each message in messages={...}, and use default= for the others")
        for name, said in (messages or {}).items():
            if not isinstance(said, MessageKind):
                raise ConfigurationError(f"messages[{name!r}] must be a MessageKind, such as MessageKind('blind')")
        options.setdefault("wait", WAIT_SECONDS)
        self._environment = environment or REAL
        # A store in memory has a name here, because both colours must see the same one.
        self._url = f"{MEMORY}queue-{self._environment.random(8).hex()}" if store == MEMORY else store
        self._scope, self._options, self._payload = scope, options, payload
        self._listeners = tuple(listeners)
        self._kinds, self._default = dict(messages or {}), default
        self._attempts = check_attempts(attempts)
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._blocking: MessageRunner | None = None
        self._awaiting: AsyncMessageRunner | None = None
        self._seal, self._sealed_only = seal, sealed_only
        # Now; the store when it is needed.
        checked = Gate(MEMORY, scope=scope, seal=seal, sealed_only=sealed_only, **options)
        checked.dead_letters(payload=payload)
        self._terms = checked.agreed()

    # --- what there is ---

    def kind(self, name: str, declared: MessageKind | None = None) -> MessageKind:
        """What the message of this name is. `declared` is what its adapter knows, said where the work is written."""
        return self._kinds.get(name) or declared or self._default

    @property
    def blocking(self) -> Gate:
        """The blocking gate: for looking at records, and for deciding those in doubt."""
        return self._opened_blocking().gate

    @property
    def awaiting(self) -> AsyncGate:
        """The awaiting gate."""
        return self._opened_awaiting().gate

    @property
    def dead(self) -> DeadLetterBox:
        """The messages that were given up: `dead.list()`, `dead.requeue(...)` once a handler is registered."""
        return self._opened_blocking().dead

    def terms(self, kind: MessageKind) -> Terms:
        """The terms of a kind, for an adapter that holds them against its queue's time-outs."""
        lasting = {name: value for name, value in kind.options.items() if name in ("lease", "lease_max")}
        return apply_options(self._terms, lasting)

    def check_time_outs(
        self,
        *,
        redelivered_after: tuple[str, float] | None = None,
        ends_after: tuple[str, float] | None = None,
        kind: MessageKind | None = None,
    ) -> None:
        """
        Refuse a lease that does not fit the queue: (the name of its setting, seconds).

        A message that is delivered again after a crash must find the lease over, or it is put off once more. Work that
        may go on for longer than `lease_max` would lose its claim, and end in doubt.
        """
        terms = self._terms if kind is None else self.terms(kind)
        if redelivered_after is not None and terms.lease > redelivered_after[1] * SECOND:
            name, seconds = redelivered_after
            raise ConfigurationError(
                f"the lease is {terms.lease / SECOND:g} s, and a message is delivered again after {seconds:g} s "
                f"({name}): lower lease, or raise {name}. Otherwise a redelivery finds the lease of a dead worker "
                f"still running"
            )
        if ends_after is not None and terms.lease_max < ends_after[1] * SECOND:
            name, seconds = ends_after
            raise ConfigurationError(
                f"work may take {seconds:g} s ({name}), and a claim holds for {terms.lease_max / SECOND:g} s in "
                f"all: raise lease_max, or lower {name}. Otherwise long work ends in doubt"
            )

    # --- for adapters ---

    def consume(
        self,
        message: QueueMessage,
        fn: Callable[[], Any],
        *,
        queue: MessageQueue = PLAIN,
        declared: MessageKind | None = None,
        last: Callable[[BaseException], bool] | None = None,
    ) -> DeliveryEnd:
        """
        Do the work of a message once; what its queue is to do with it.

        `last` says of an error whether the queue would make no further attempt after it: then a dead letter is kept.
        What is raised is for nobody to decide here (an interrupt, a shutdown): the next delivery finds the record.
        """
        kind = self.kind(message.name, declared)
        if not kind.gated:
            return DeliveryEnd("done", fn())
        return self._opened_blocking().consume(message, fn, kind, queue, last)

    async def aconsume(
        self,
        message: QueueMessage,
        fn: Callable[[], Awaitable[Any]],
        *,
        queue: MessageQueue = PLAIN,
        declared: MessageKind | None = None,
        last: Callable[[BaseException], bool] | None = None,
    ) -> DeliveryEnd:
        """Do the work of a message once, awaiting it: as `consume`."""
        kind = self.kind(message.name, declared)
        if not kind.gated:
            return DeliveryEnd("done", await fn())
        return await self._opened_awaiting().consume(message, fn, kind, queue, last)

    def pause(self, seconds: float) -> None:
        """Wait before a message is put back, where the queue itself cannot."""
        self._environment.sleep(seconds)

    # --- opening, and the end ---

    def _opened_blocking(self) -> MessageRunner:
        with self._lock:
            self._notice_fork()
            if self._blocking is None:
                gate = Gate(
                    self._url, scope=self._scope, listeners=self._listeners, environment=self._environment,
                    seal=self._seal, sealed_only=self._sealed_only, **self._options,
                )  # fmt: skip
                self._blocking = MessageRunner(gate, gate.dead_letters(payload=self._payload), self._attempts)
            return self._blocking

    def _opened_awaiting(self) -> AsyncMessageRunner:
        with self._lock:
            self._notice_fork()
            if self._awaiting is None:
                gate = AsyncGate(
                    self._url, scope=self._scope, listeners=self._listeners, environment=self._environment,
                    seal=self._seal, sealed_only=self._sealed_only, **self._options,
                )  # fmt: skip
                self._awaiting = AsyncMessageRunner(gate, gate.dead_letters(payload=self._payload), self._attempts)
            return self._awaiting

    def _notice_fork(self) -> None:
        """What another process has opened stays that one's."""
        if self._process != os.getpid():
            self._process, self._blocking, self._awaiting = os.getpid(), None, None

    def close(self) -> None:
        """Close what the blocking calls of this process have opened."""
        with self._lock:
            self._notice_fork()
            runner, self._blocking = self._blocking, None
        if runner is not None:
            runner.gate.close()

    async def aclose(self) -> None:
        """Close everything that this process has opened."""
        with self._lock:
            self._notice_fork()
            runner, self._awaiting = self._awaiting, None
        if runner is not None:
            await runner.gate.close()
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
