"""
What both colours of `DeadLetterBox` share: handlers, what is stored, and when a requeue is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, Unpack

from onceward._core.advice import in_doubt
from onceward._core.attempt_history import summarize_attempt
from onceward._core.classifier import DEFAULT
from onceward._core.dead_letters import (
    DEAD,
    DeadLetter,
    DeadLetterDraft,
    clean_name,
    dead_letter_id,
    draft_dead_letter,
    note_failed_requeue,
)
from onceward._core.durations import SECOND, microseconds
from onceward._core.errors import ConfigurationError, IllegalMove, OncewardError, OutcomeUnknown
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.flow import Flow
from onceward._core.keys import mint_from, record_id
from onceward._core.record import Record, is_in_doubt, shown_state
from onceward._core.retry_flow import verdict_on
from onceward._core.sent_request import origin_of, request_line_of
from onceward._core.stops import GivenUp, Stop
from onceward._core.store_protocols import Selection
from onceward._core.terms import Options, Seconds
from onceward.gate.call_factory import KEY, CallFactory, PreparedCall, check_runnable, refuse_accept
from onceward.gate.dead_letter_handlers import (
    CallArguments,
    PayloadMode,
    RequeueHandler,
    check_payload_mode,
    key_of_call,
    make_requeue_handler,
    pack_arguments,
    request_fingerprint,
    unpack_arguments,
)
from onceward.gate.dead_letter_resender import RequestSender, check_resendable, make_resend_handler
from onceward.runtime.failpoints import declare

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger("onceward")


for _at, _what in {"dead": "a dead letter is put", "dead.discard": "a dead letter is discarded"}.items():
    declare(f"{_at}.before", f"just before {_what}")
    declare(f"{_at}.after", f"just after {_what}")


class RequeueJob(NamedTuple):
    """A requeue that has passed every check."""

    letter: DeadLetter
    handler: RequeueHandler
    arguments: CallArguments
    prepared: PreparedCall | None
    """How the gate runs it; None if the handler goes there by itself."""
    ran: list[bool]
    began: float


class DeadLetterBoxBase:
    """The dead letters of a scope: everything but the waiting, for both colours."""

    _awaits: bool

    def __init__(self, call_factory: CallFactory, payload: PayloadMode, keep: Seconds, payload_bytes_max: int) -> None:
        self._call_factory = call_factory
        self._payload = check_payload_mode(payload)
        self._keep = microseconds(keep, "keep")
        if isinstance(payload_bytes_max, bool) or not isinstance(payload_bytes_max, int) or payload_bytes_max < 0:
            raise ConfigurationError("payload_bytes_max is a number of bytes, zero or more")
        self._payload_bytes_max = payload_bytes_max
        self._handlers: dict[str, RequeueHandler] = {}
        self._senders: dict[str, RequestSender] = {}
        self._selection = Selection(scope=call_factory.scope, kind=DEAD)

    # --- handlers ---

    def handle(
        self, name: str, fn: Callable[..., Any], *, gated: bool | None = None, **options: Unpack[Options]
    ) -> None:
        """
        Register the function that repeats the calls of that name (a policy's `name`, or the function's own).

        `fn` takes the call's arguments, or `letter` if they were not kept. It is run through the gate under the
        operation's key, with these options (`guarantee`, ...); a function declared with `once` goes there by itself,
        and so does one that you register with `gated=True`.
        """
        if not isinstance(name, str) or not name:
            raise ConfigurationError("a handler is registered under the name of the calls that it does again")
        name = clean_name(name)
        if name in self._handlers:
            raise ConfigurationError(f"{name!r} already has a handler; a name can have only one")
        refuse_accept(options)
        if callable(fn):
            check_runnable(fn, awaits=self._awaits)
        self._call_factory.agreed(options)
        self._handlers[name] = make_requeue_handler(name, fn, gated=gated, options=options)

    def handler(self, name: str, *, gated: bool | None = None, **options: Unpack[Options]) -> Callable[[F], F]:
        """Register a handler, as a decorator; the function stays as it is."""

        def register(fn: F) -> F:
            self.handle(name, fn, gated=gated, **options)
            return fn

        return register

    def handle_requests(self, to: str, send: RequestSender) -> None:
        """
        Register who sends HTTP requests to an address again (`to`: scheme, host and port; a path does not matter).

        Letters of our own clients and transports need no other handler. `send` is given the `SentRequest`, adds its
        credentials, and raises if the response is a failure. A `Client` registers itself with its policy's letters.
        """
        if not callable(send):
            raise ConfigurationError("send is a function of the request that was kept (a SentRequest)")
        self._senders[origin_of(to)] = send

    @property
    def handlers(self) -> tuple[str, ...]:
        """The names that have one."""
        return tuple(sorted(self._handlers))

    def arguments(self, letter: DeadLetter) -> CallArguments | None:
        """The arguments of the call as they were kept (JSON's types), opened if they are sealed; None if omitted."""
        return unpack_arguments(self._payload, letter)

    @property
    def keeps_payload(self) -> bool:
        """Whether the arguments of a call are kept at all."""
        return self._payload is not None

    # --- steps ---

    def _draft(self, stop: Stop, call: GivenUp) -> DeadLetterDraft:
        key = key_of_call(call)
        stored = self._call_factory.stored_key(
            mint_from(self._call_factory.environment.random(16)) if key is None else key
        )
        return draft_dead_letter(
            stop,
            self._call_factory.scope,
            stored,
            call.name,
            keyed=key is not None,
            fingerprint=request_fingerprint(call),
            payload=pack_arguments(
                self._payload,
                self._call_factory.scope,
                dead_letter_id(self._call_factory.scope, stored),
                call,
                self._payload_bytes_max,
            ),
            request=None if call.request is None else request_line_of(call.request),
        )

    def _id(self, which: DeadLetter | str) -> bytes:
        if isinstance(which, DeadLetter):
            if which.scope != self._call_factory.scope:
                raise ConfigurationError(
                    f"dead letter {which.digest} belongs to another scope, not this one ({self._call_factory.scope})"
                )
            return bytes.fromhex(which.id)
        return dead_letter_id(self._call_factory.scope, self._call_factory.stored_key(which))

    def _about(self) -> PreparedCall:
        return self._call_factory.about((DEAD,), DEAD)

    def _record_id(self, letter: DeadLetter) -> bytes:
        return record_id(KEY, letter.scope, letter.key)

    def _job(self, letter: DeadLetter, record: Record | None, did_not_happen: bool) -> RequeueJob:
        """Check everything that could refuse a requeue, before anything runs."""
        handler = self._handlers.get(letter.name)
        kept = self.arguments(letter)
        if handler is None and letter.request is not None:
            handler = make_resend_handler(letter, kept, self._senders)
        if handler is None:
            known = ", ".join(map(repr, self.handlers)) or "none"
            raise ConfigurationError(
                f"no handler is registered for {letter.name!r} (registered: {known}). Register a function that does it "
                f"again: @dead.handler({letter.name!r})"
            )
        if record is not None and is_in_doubt(record):
            raise in_doubt(record)
        if letter.request is not None:
            check_resendable(letter, kept, self._call_factory.terms.keyed_for / SECOND, did_not_happen=did_not_happen)
        elif not letter.keyed and letter.may_have_happened and not did_not_happen and record is None:
            raise OutcomeUnknown(
                f"dead letter {letter.digest} ({letter.name}) may have happened, and it had no key: running it again "
                "could do it twice. Check in the system it acts on. If it happened, discard the letter (onceward "
                f"dead discard {letter.digest} --yes); if it did not, requeue it with did_not_happen=True (onceward "
                f"dead requeue {letter.digest} --did-not-happen)"
            )
        arguments = handler.bound(letter, kept)
        ran: list[bool] = []
        prepared = None if handler.gated else self._prepare(letter, record, handler, arguments, ran)
        if prepared is None:
            self._check_key(letter, handler, arguments)
        return RequeueJob(letter, handler, arguments, prepared, ran, self._call_factory.environment.monotonic())

    def _prepare(
        self,
        letter: DeadLetter,
        record: Record | None,
        handler: RequeueHandler,
        arguments: CallArguments,
        ran: list[bool],
    ) -> PreparedCall:
        # The letter stands for the operation, so it is the same request that the record knows, if there is a record.
        if record is not None and shown_state(record) != "absent":
            fingerprint = record.fingerprint
        else:
            fingerprint = bytes.fromhex(letter.fingerprint) if letter.fingerprint else fingerprint_canonical(None)

        def invoke(operation: Any) -> Any:
            ran.append(True)
            given = {"operation": operation} if handler.takes_operation else {}
            return handler.fn(*arguments.args, **arguments.kwargs, **given)

        terms = self._call_factory.agreed(handler.options)
        return self._call_factory.prepare_requeue(
            letter.key, fingerprint, letter.name, terms, invoke, marked=handler.marked
        )

    def _check_key(self, letter: DeadLetter, handler: RequeueHandler, arguments: CallArguments) -> None:
        """Refuse a declared function whose arguments make another key than the letter's."""
        key_of = getattr(handler.fn, "key_of", None)
        if key_of is None or not letter.keyed:
            return
        if self._call_factory.stored_key(key_of(*arguments.args, **arguments.kwargs)) != letter.key:
            raise ConfigurationError(
                f"the handler of {letter.name!r} would run under another key than dead letter "
                f"{letter.digest}. A requeue keeps the key, so that nothing happens twice"
            )

    def _requeue_failed(self, job: RequeueJob, error: Exception) -> Flow[None] | None:
        """The flow that notes a failed requeue in its letter; None if the handler was not even called."""
        if job.prepared is not None and not job.ran:
            return None
        environment = self._call_factory.environment
        wall_us = environment.wall_us()
        verdict = verdict_on(DEFAULT, error, wall_us)
        line = summarize_attempt(1, wall_us, environment.monotonic() - job.began, verdict, error)
        return note_failed_requeue(job.letter, line, verdict, self._keep)

    def _missing(self, which: DeadLetter | str) -> IllegalMove:
        named = f" {which.digest}" if isinstance(which, DeadLetter) else ""
        return IllegalMove(f"there is no such dead letter{named}: it was discarded, it expired, or it was never stored")


def log_not_updated(letter: DeadLetter, error: OncewardError) -> None:
    """Log that a letter could not be updated. The record has the result already, and another requeue replays it."""
    _log.warning(
        "onceward: dead letter %s could not be updated after its requeue (%s); requeueing it again is safe",
        letter.digest,
        type(error).__name__,
    )
