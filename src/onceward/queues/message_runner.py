# Made from message_runner_async.py by `make halves`: change that file, not this one.
"""
Works on messages of one colour, through its gate: what a message is and what becomes of it is decided elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from onceward._core.errors import OncewardError
from onceward._core.operation import Operation
from onceward._core.terms import Terms
from onceward.gate.dead_letter_box import DeadLetterBox
from onceward.gate.gate import Gate
from onceward.queues.delivery_end import DELAY_SECONDS, DeliveryEnd, MessageAttempt, MessageQueue
from onceward.queues.message import MessageKind, QueueMessage, given, identity_of

_log = logging.getLogger("onceward.queues")


class MessageRunner:
    """Messages through one gate."""

    def __init__(self, gate: Gate, dead: DeadLetterBox, attempts: int) -> None:
        self.gate, self.dead = gate, dead
        self._attempts = attempts
        self._terms: dict[tuple[int, str], tuple[MessageKind, Terms]] = {}

    def consume(
        self,
        message: QueueMessage,
        fn: Callable[[], Any],
        kind: MessageKind,
        queue: MessageQueue,
        last: Callable[[BaseException], bool] | None,
    ) -> DeliveryEnd:
        """Do the work of a message once; what its queue is to do with it."""
        terms = self._terms_of(kind, queue)
        attempt = MessageAttempt(message, kind, queue, attempts=self._attempts, classifier=terms.classifier, last=last)

        def run(operation: Operation) -> Any:
            attempt.begin(operation)
            try:
                return fn()
            except GeneratorExit:
                raise
            except BaseException as error:
                reason = attempt.raised(error)
                if reason is error:
                    raise
                raise reason from reason.__cause__

        key = None
        probe = None if kind.probe is None else given(kind.probe, message)
        try:
            key, request = identity_of(message, kind)
            outcome = self.gate.call_on(terms, key, run, request=request, name=message.name, probe=probe)
        except GeneratorExit:
            raise
        except BaseException as error:
            end = attempt.came_to(error)
        else:
            return attempt.done(outcome)
        return self._kept(attempt, end, key, fn) if end.end == "dead" else end

    def _kept(self, attempt: MessageAttempt, end: DeliveryEnd, key: str | None, fn: Any) -> DeliveryEnd:
        """Keep the dead letter. If that cannot be done, the message must come again: it is not acknowledged."""
        stop, call = attempt.letter(end, key, fn, self.gate.environment.wall_us())
        try:
            letter = self.dead.put(stop, call)
        except OncewardError as error:
            _log.error(
                "onceward: the dead letter of %s could not be stored, so it goes back to the queue: %s",
                call.name,
                error,
            )
            return DeliveryEnd("later", error=error, delay=DELAY_SECONDS)
        _log.error("onceward: %s was given up (%s): dead letter %s", call.name, stop.reason.value, letter.digest)
        return end._replace(letter=letter)

    def _terms_of(self, kind: MessageKind, queue: MessageQueue) -> Terms:
        """What the gate is told about this kind, in this queue. Remembered: most messages repeat the same few."""
        known = self._terms.get((id(kind), queue.name))
        if known is not None:
            return known[1]
        terms = self.gate.agreed(**queue.terms(kind))
        if len(self._terms) < 1_000:
            self._terms[id(kind), queue.name] = kind, terms  # With the kind, so that its id stays its own.
        return terms
