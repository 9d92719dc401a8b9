"""
What can go wrong, whose fault it is, and what a caller may safely do next.

    OncewardError
    +-- ConfigurationError    declared wrongly                         never: fix the declaration
    |   +-- ScopeMissing      nobody said who is calling               never: pass scope=
    +-- KeyInvalid            the key cannot be a key                  never: fix the key
    |   +-- KeyMissing        there is no key                          never: give it one
    +-- RequestInvalid        the request has no canonical form        never: fix the request
    +-- ResultInvalid         a stored result cannot be read back      never: look at the record
    +-- KeyReused             same key, other request                  new key
    +-- InFlight              another holder has it                    same key, after a pause
    +-- InDoubt               it may have happened                     never: reconcile first
    |   +-- StoreForgot       it ran, and the store lost its claim     never: the value is on the error
    +-- Expired               it happened; the answer is gone          never: it ran
    +-- NotReplayable         it happened; the answer was not kept     never: it ran
    +-- NothingHappened       raised by your code: no effect took place  same key
    +-- OwnershipLost         overtaken while running                  same key: to learn the answer
    +-- AlreadySettled        settled before, with another result      never: a bug
    +-- IllegalMove           the record does not allow that           never: look at the record
    +-- RecordedFailure       the remembered failure of the first run  never, or a new key
    +-- OutOfOrder            a sequence expected another number       same key, after the others
    +-- SequenceForgotten     an old number nobody remembers           never
    +-- NotSettled            settled inside, and never committed      same key, at once
    +-- RetryTransaction      your transaction must start over         same key, at once
    +-- StoreUnavailable      the store did not answer                 same key, after a pause
    |   +-- StoreContended    the record kept moving                   same key, after a pause
    |   +-- StoreFull         no room left to write                    same key, once there is room
    |   +-- RecordRefused     the store cannot hold this record        never: make it smaller, or plainer
    |   +-- StoreCorrupt      the store's file is damaged              never: restore it
    |   +-- Unrecorded        it ran, and could not be recorded        never: the value is on the error
    +-- SchemaMismatch        written by another version               never: upgrade or migrate
    +-- OutcomeUnknown        this attempt may have had its effect     never: look, or give it a key
    +-- DeadlineExceeded      no time is left to try again             never now: `retry_at` says when
    +-- BudgetExhausted       too many retries for this much traffic   never now: later, with the same key
    +-- CircuitOpen           the dependency is failing; not called    never now: `retry_at` says when
    +-- RateLimitError        the other side asks for a pause          same key, after the pause
    +-- ServiceUnreachable    the service did not answer               same key, after a pause
    +-- SpoolFull             too many items wait to be sent           same key, after a pause
    +-- PlanIncomplete        a step without its plan, or the reverse  never: send both headers
    +-- AmbiguousIdentity     a key and a step on one request          never: send one of them
    +-- BodyTooLarge          the request's body is too long           never: send less
    +-- UploadTimeout         the request's body did not arrive        same key, at once
    +-- HandlerFailed         the handler failed; that is remembered   new key
    +-- SignatureInvalid      a webhook's signature is not right       never: check the secret
    |   +-- EventInvalid      a webhook's event has no id to know it by  never: send one
    +-- SourceUnknown         no webhooks are taken from this source   never: add the source
    +-- SourceUnready         the source's secret cannot be read       same event, after a pause
    +-- TargetRefused         a webhook's URL leads inside             never: use a public https URL
    +-- TokenInvalid          nobody is known by this token            never: use one that is valid
    +-- Forbidden             this token may not do that               never: use one that may
    +-- BalanceExhausted      the prepaid balance does not cover it    never now: top up, then the same key
    +-- QuotaExceeded         the tenant's quota is used up            never now: make room, then the same key

Every error carries, as attributes, what people, programs and agents all need: `code` (stable, the
same word as on HTTP and in the CLI), `fault`, `retry` and, when known, `retry_after_seconds` and `retry_at`; and, of
the operation that it is about, `key`, `digest`, `fence`, `operation` and `first_at`. Each class says whether a loop may
repeat it. Those that it must not repeat are `RuntimeError`s, too, which frameworks do not repeat by default.
Tests hold the drawing to the classes, and the classes to their words.
"""

from __future__ import annotations

from typing import Any

from onceward._core.base_error import Fault, OncewardError, RetryAdvice
from onceward._core.edge_errors import (
    AmbiguousIdentity,
    BalanceExhausted,
    BodyTooLarge,
    EventInvalid,
    Forbidden,
    HandlerFailed,
    PlanIncomplete,
    QuotaExceeded,
    RateLimitError,
    ServiceUnreachable,
    SignatureInvalid,
    SourceUnknown,
    SourceUnready,
    SpoolFull,
    TargetRefused,
    TokenInvalid,
    UploadTimeout,
)

__all__ = [
    "AmbiguousIdentity",
    "BalanceExhausted",
    "BodyTooLarge",
    "EventInvalid",
    "Fault",
    "Forbidden",
    "HandlerFailed",
    "OncewardError",
    "PlanIncomplete",
    "QuotaExceeded",
    "RateLimitError",
    "RetryAdvice",
    "ServiceUnreachable",
    "SignatureInvalid",
    "SourceUnknown",
    "SourceUnready",
    "SpoolFull",
    "TargetRefused",
    "TokenInvalid",
    "UploadTimeout",
]
# What is written elsewhere and imported from here, as the rest is.


class ConfigurationError(OncewardError, RuntimeError):
    """
    The gate, the operation or the store was declared in a way that cannot work.

    A loop must not repeat it: the declaration stays wrong until somebody mends it.
    """

    code = "configuration"


class ScopeMissing(ConfigurationError):
    """
    A gate needs a scope: say who is calling, for example scope="live:acme" (environment and tenant).

    A loop must not repeat it: the scope stays missing.
    """

    code = "scope_missing"


class KeyInvalid(OncewardError, RuntimeError):
    """
    A key is 1 to 255 visible ASCII characters, chosen by the caller and the same on every attempt.

    A loop must not repeat it: the key stays what it is.
    """

    code = "key_invalid"


class KeyMissing(KeyInvalid):
    """
    There is no key, so a retry could not be told from another operation. Nothing was run.

    A loop must not repeat it: give the call a key first.
    """

    code = "key_missing"


class RequestInvalid(OncewardError, RuntimeError):
    """
    The request has no canonical form, so a retry could not be told from another request.

    A loop must not repeat it: the request stays what it is.
    """

    code = "request_invalid"


class ResultInvalid(OncewardError, RuntimeError):
    """
    A stored result cannot be turned back into the type that the function declares.

    A loop must not repeat it: the stored result stays what it is.
    """

    code = "result_invalid"


class KeyReused(OncewardError, RuntimeError):
    """
    This key was used for a different request. A different request needs a key of its own.

    A loop must not repeat it: under this key the answer stays no. Another request needs another key.
    """

    code = "key_reused"
    retry = RetryAdvice.NEW_KEY


class InFlight(OncewardError):
    """
    Another caller is running this operation right now. Ask again with the same key.

    A loop may repeat it, with the same key, after a pause (`retry_after_seconds`).
    """

    code = "in_flight"
    fault = Fault.HOLDER
    retry = RetryAdvice.SAME_KEY


class InDoubt(OncewardError, RuntimeError):
    """
    This operation may have happened, and nobody knows. It will not run again until someone decides.

    A loop must not repeat it: the answer stays the same until somebody decides.
    """

    code = "in_doubt"
    fault = Fault.OUTSIDE


class StoreForgot(InDoubt):
    """
    The operation ran, and meanwhile the store lost its claim (a failover, a restored backup), or it was erased.

    `value` is what it returned, if it did. Raised only if its ending could not be put back; if it could, the caller has
    its result, and listeners hear `store_forgot`.

    A loop must not repeat it: look whether it happened.
    """

    code = "store_forgot"
    fault = Fault.STORE

    def __init__(self, message: str | None = None, *, value: Any = None) -> None:
        super().__init__(message)
        self.value = value


class Expired(OncewardError, RuntimeError):
    """
    This operation did happen, and its stored answer is past its retention. It will not run again.

    A loop must not repeat it: it ran.
    """

    code = "expired"


class NotReplayable(OncewardError, RuntimeError):
    """
    This operation did happen, and its answer could not be kept. It will not run again.

    A loop must not repeat it: it ran.
    """

    code = "not_replayable"
    fault = Fault.OUTSIDE


class NothingHappened(OncewardError):
    """
    Raise this from your function when you know that its effect did not take place: the key is released.

    A loop may repeat it, with the same key.
    """

    code = "nothing_happened"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.SAME_KEY


class OwnershipLost(OncewardError):
    """
    This holder was overtaken: its lease ran out, another caller took the key, and nothing of this run was stored.

    `outcome` is the winner's outcome if there is one yet; otherwise ask again with the same key.

    A loop may repeat it, with the same key: it then learns the winner's answer.
    """

    code = "ownership_lost"
    fault = Fault.HOLDER
    retry = RetryAdvice.SAME_KEY

    def __init__(self, message: str | None = None, *, outcome: Any = None) -> None:
        super().__init__(message)
        self.outcome = outcome


class AlreadySettled(OncewardError, RuntimeError):
    """
    This operation was settled before, with a different result. The first result stands.

    A loop must not repeat it: the first result stands.
    """

    code = "already_settled"


class IllegalMove(OncewardError, RuntimeError):
    """
    The record's state does not allow this move. Nothing was changed.

    A loop must not repeat it: the record stays as it is.
    """

    code = "illegal_move"


class RecordedFailure(OncewardError, RuntimeError):
    """
    The first run of this operation failed, and its failure was remembered.

    The failure is data (`type`, `message`, `failure_code`), never a re-created exception class.

    A loop must not repeat it: this key replays its failure. A new try needs a new key.
    """

    code = "recorded_failure"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.NEW_KEY

    def __init__(self, type: str, message: str, failure_code: str | None = None) -> None:
        super().__init__(f"the first run failed and its failure was remembered: {type}: {message}")
        self.type = type
        self.message = message
        self.failure_code = failure_code


class OutOfOrder(OncewardError):
    """
    A sequence takes its numbers in order.

    A loop may repeat it, with the same key, once the earlier numbers have been sent.
    """

    code = "out_of_order"
    retry = RetryAdvice.SAME_KEY

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"expected number {expected}, got {got}: send {expected} first")
        self.expected = expected
        self.got = got


class SequenceForgotten(OncewardError, RuntimeError):
    """
    This number lies behind the sequence's mark, and its result is not (or no longer) stored.

    A loop must not repeat it: the number stays forgotten.
    """

    code = "sequence_forgotten"


class NotSettled(OncewardError):
    """
    The function settled inside its transaction, and that was not committed. Nothing happened; use the same key.

    A loop may repeat it, with the same key.
    """

    code = "not_settled"
    retry = RetryAdvice.SAME_KEY


class RetryTransaction(OncewardError):
    """
    Your transaction lost a race it cannot win by waiting. Roll it back and run it again with the same key.

    A loop may repeat the whole transaction, with the same key.
    """

    code = "retry_transaction"
    fault = Fault.STORE
    retry = RetryAdvice.SAME_KEY


class StoreUnavailable(OncewardError):
    """
    The store did not answer, so nothing was started. Try again with the same key.

    A loop may repeat it, with the same key, after a pause.
    """

    code = "store_unavailable"
    fault = Fault.STORE
    retry = RetryAdvice.SAME_KEY


class StoreContended(StoreUnavailable):
    """
    The record kept moving while this caller tried to claim it. Try again with the same key.

    A loop may repeat it, with the same key, after a pause.
    """

    code = "store_contended"


class StoreFull(StoreUnavailable):
    """
    The store has no room left to write. Nothing was started; free some space, then use the same key.

    A loop may repeat it, with the same key, once there is room.
    """

    code = "store_full"


class RecordRefused(StoreUnavailable, RuntimeError):
    """
    The store cannot hold this record as it is: it is too large for it, or has text that it does not take.

    A loop must not repeat it: the record stays too large, or its text stays what it is.
    """

    code = "record_refused"
    fault = Fault.CALLER
    retry = RetryAdvice.NEVER


class StoreCorrupt(StoreUnavailable, RuntimeError):
    """
    The store's file is damaged or is not a store. Nothing is read from it: restore a backup.

    A loop must not repeat it: the file stays damaged until it is restored.
    """

    code = "store_corrupt"
    retry = RetryAdvice.NEVER


class Unrecorded(StoreUnavailable, RuntimeError):
    """
    The operation ran, and its result could not be recorded before the lease ran out.

    `value` is what it returned. Do not run it again: the record is claimed and will be in doubt.

    A loop must not repeat it: it ran.
    """

    code = "unrecorded"
    retry = RetryAdvice.NEVER

    def __init__(self, message: str | None = None, *, value: Any = None) -> None:
        super().__init__(message)
        self.value = value


class SchemaMismatch(OncewardError, RuntimeError):
    """
    The store or the record was written by a version of Onceward that this one does not understand.

    A loop must not repeat it: upgrade or migrate first.
    """

    code = "schema_mismatch"
    fault = Fault.STORE


class OutcomeUnknown(OncewardError, RuntimeError):
    """
    This attempt may have had its effect, and trying again could repeat it: no key, no probe, not declared safe.

    Look whether it happened. To let a retry decide by itself, give the call a key that the other side honours.

    A loop must not repeat it: that could do it twice.
    """

    code = "outcome_unknown"
    fault = Fault.OUTSIDE


class DeadlineExceeded(OncewardError, RuntimeError):
    """
    There is no time left to try again, so nothing was waited for.

    `retry_at` (UTC) is when the other side wants to be asked again, if it said so.

    A loop must not repeat it now: the time is over. Later, with the same key, it may be called again.
    """

    code = "deadline_exceeded"
    fault = Fault.OUTSIDE


class BudgetExhausted(OncewardError, RuntimeError):
    """
    There have been too many retries for this much traffic, so this call was not tried again.

    The last attempt's error is the cause. Later, the same key may be tried again.

    A loop must not repeat it now: that is what the budget refuses. Later, with the same key, it may be called
    again.
    """

    code = "budget_exhausted"
    fault = Fault.OUTSIDE


class CircuitOpen(OncewardError, RuntimeError):
    """
    The dependency is failing, so it was not called. Trying again at once would not call it, either.

    `retry_at` (UTC) and `retry_after_seconds` say when the next call will be let through.

    A loop must not repeat it now: the call is not made before `retry_at`. Later, with the same key, it may be
    called again.
    """

    code = "circuit_open"
    fault = Fault.OUTSIDE
