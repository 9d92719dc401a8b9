"""
Every error of Onceward: what happened, whose fault it is, and what a caller may safely do next.

    OncewardError
    +-- ConfigurationError    a setting cannot work                    never: fix the declaration
    |   +-- ScopeMissing      no scope was given                       never: pass scope=
    +-- KeyInvalid            not a valid key                          never: fix the key
    |   +-- KeyMissing        there is no key                          never: give it one
    +-- RequestInvalid        the request has no canonical form        never: fix the request
    +-- ResultInvalid         a stored result cannot be read back      never: look at the record
    +-- SealBroken            a sealed value does not fit its row      never: look at the store
    +-- SealKeyMissing        a value is sealed under a missing key    same key, once the key is there
    +-- KeyReused             same key, different request              new key
    +-- InFlight              another caller is running it             same key, after a pause
    +-- InDoubt               it may have happened                     never: reconcile first
    |   +-- StoreForgot       it ran, and the store lost its claim     never: the value is on the error
    +-- Expired               it happened; its result has expired      never: it ran
    +-- NotReplayable         it happened; its result was not stored   never: it ran
    +-- NothingHappened       raised by your code: no effect took place  same key
    +-- OwnershipLost         overtaken while running                  same key: to get the result
    +-- AlreadySettled        settled before, with another result      never: a bug
    +-- IllegalMove           the record does not allow that           never: look at the record
    +-- RecordedFailure       the remembered failure of the first run  never, or a new key
    +-- OutOfOrder            a sequence expected another number       same key, after the others
    +-- SequenceForgotten     an old number, no longer stored          never
    +-- NotSettled            settled inside, and never committed      same key, at once
    +-- RetryTransaction      your transaction must start over         same key, at once
    +-- StoreUnavailable      the store did not respond                same key, after a pause
    |   +-- StoreContended    others kept changing the record          same key, after a pause
    |   +-- StoreFull         no room left to write                    same key, once there is room
    |   +-- RecordRefused     the store cannot hold this record        never: make it smaller, or plainer
    |   +-- StoreCorrupt      the store's file is damaged              never: restore it
    |   +-- Unrecorded        it ran, and could not be recorded        never: the value is on the error
    +-- SchemaMismatch        written by another version               never: upgrade or migrate
    +-- OutcomeUnknown        this attempt may have had its effect     never: look, or give it a key
    +-- DeadlineExceeded      no time is left to try again             never now: `retry_at` says when
    +-- BudgetExhausted       too many retries for this much traffic   never now: later, with the same key
    +-- SpendExhausted        this work may spend no more              never now: raise the limit, then the same key
    +-- CircuitOpen           the dependency is failing; not called    never now: `retry_at` says when
    +-- RateLimitError        the server asks for a pause              same key, after the pause
    +-- ServiceUnreachable    the service did not respond              same key, after a pause
    +-- SpoolFull             too many items wait to be sent           same key, after a pause
    +-- PlanIncomplete        a step without its plan, or the reverse  never: send both headers
    +-- AmbiguousIdentity     a key and a step on one request          never: send one of them
    +-- BodyTooLarge          the request's body is too long           never: send less
    +-- UploadTimeout         the request's body did not arrive        same key, at once
    +-- HandlerFailed         the handler failed; that is remembered   new key
    +-- SignatureInvalid      a webhook's signature is wrong           never: check the secret
    |   +-- EventInvalid      a webhook's event has no valid id        never: send one
    +-- SourceUnknown         this source of webhooks is not known     never: add the source
    +-- SourceUnready         the source's secret cannot be read       same event, after a pause
    +-- TargetRefused         a webhook's URL is not a public address  never: use a public https URL
    +-- TokenInvalid          this token is not valid                  never: use one that is valid
    +-- Forbidden             this token may not do that               never: use one that may
    +-- BalanceExhausted      the prepaid balance does not cover it    same key, after a top-up
    +-- QuotaExceeded         the tenant's quota is used up            same key, once there is room

Every error has these attributes: `code` (stable, the same word on HTTP and in the CLI), `fault`, `retry` and, when
known, `retry_after_seconds` and `retry_at`. `key`, `digest`, `fence`, `operation` and `first_at` say which operation it
is about. Each class says whether a loop may repeat it. Those that it must not repeat are `RuntimeError`s, too, which
frameworks do not retry by default. Tests compare this drawing with the classes.
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
# Defined in other files; imported from here like the rest.


class ConfigurationError(OncewardError, RuntimeError):
    """
    The gate, the operation or the store has a setting that cannot work. Change it.

    A loop must not repeat it: the setting stays wrong until somebody changes it.
    """

    code = "configuration"


class ScopeMissing(ConfigurationError):
    """
    No scope was given. Pass the environment and tenant that keys belong to, for example scope="live:acme".

    A loop must not repeat it: the scope stays missing.
    """

    code = "scope_missing"


class KeyInvalid(OncewardError, RuntimeError):
    """
    This is not a valid key. A key is visible ASCII characters, at most as many as are published, and the
    same on every attempt.

    A loop must not repeat it: the key stays what it is.
    """

    code = "key_invalid"


class KeyMissing(KeyInvalid):
    """
    There is no key, and nothing was run. Give the call a key, so that a retry can be told from a new operation.

    A loop must not repeat it: give the call a key first.
    """

    code = "key_missing"


class RequestInvalid(OncewardError, RuntimeError):
    """
    The request cannot be compared with a retry, because it has no canonical form. Send plain data.

    A loop must not repeat it: the request stays what it is.
    """

    code = "request_invalid"


class ResultInvalid(OncewardError, RuntimeError):
    """
    The stored result does not fit the type that the function declares. Declare a type that accepts it.

    A loop must not repeat it: the stored result stays the same.
    """

    code = "result_invalid"


class SealBroken(OncewardError, RuntimeError):
    """
    A sealed value does not open in its place: it was changed, cut off, or moved there from another row. Restore it.

    A loop must not repeat it: the stored value stays what it is.
    """

    code = "seal_broken"
    fault = Fault.STORE


class SealKeyMissing(OncewardError):
    """
    A stored value is sealed under a key that is not here. Add that key: the error names its id.

    A loop may repeat it with the same key, once the key is there. Nothing runs meanwhile.
    """

    code = "seal_key_missing"
    fault = Fault.STORE
    retry = RetryAdvice.SAME_KEY


class KeyReused(OncewardError, RuntimeError):
    """
    This key was used for a different request. Retry with the same request, or use a new key for a new one.

    A loop must not repeat it: this key is refused every time. A different request needs a different key.
    """

    code = "key_reused"
    retry = RetryAdvice.NEW_KEY


class InFlight(OncewardError):
    """
    Another caller is running this operation right now. Retry with the same key.

    A loop may repeat it, with the same key, after a pause (`retry_after_seconds`).
    """

    code = "in_flight"
    fault = Fault.HOLDER
    retry = RetryAdvice.SAME_KEY


class InDoubt(OncewardError, RuntimeError):
    """
    This operation may have happened. Check whether it did, then reconcile it; it does not run before that.

    A loop must not repeat it: it is refused until someone decides.
    """

    code = "in_doubt"
    fault = Fault.OUTSIDE


class StoreForgot(InDoubt):
    """
    The operation ran, but the store lost its claim (failover, restored backup, erasure). Check whether it happened.

    `value` is what it returned, if it did. Raised only if the result could not be stored again. If it could, the caller
    gets the result, and listeners get the event `store_forgot`.

    A loop must not repeat it: check whether it happened.
    """

    code = "store_forgot"
    fault = Fault.STORE

    def __init__(self, message: str | None = None, *, value: Any = None) -> None:
        super().__init__(message)
        self.value = value


class Expired(OncewardError, RuntimeError):
    """
    This operation happened, and its stored result has expired. It will not run again under this key.

    A loop must not repeat it: it ran.
    """

    code = "expired"


class NotReplayable(OncewardError, RuntimeError):
    """
    This operation happened, but its result could not be stored. It will not run again under this key.

    A loop must not repeat it: it ran.
    """

    code = "not_replayable"
    fault = Fault.OUTSIDE


class NothingHappened(OncewardError):
    """
    The effect did not take place. Retry with the same key.

    Raise this from your function when you know that: it releases the key.

    A loop may repeat it, with the same key.
    """

    code = "nothing_happened"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.SAME_KEY


class OwnershipLost(OncewardError):
    """
    This run took longer than its lease, and another caller took over. Nothing was stored; retry with the same key.

    `outcome` is the other caller's outcome, if there is one yet. If not, retry with the same key.

    A loop may repeat it, with the same key: it then gets the other caller's result.
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
    The record's state does not allow this change. Nothing was changed; look at the record.

    A loop must not repeat it: the record stays as it is.
    """

    code = "illegal_move"


class RecordedFailure(OncewardError, RuntimeError):
    """
    The first run of this operation failed, and this is that failure. A new try needs a new key.

    The failure is data (`type`, `message`, `failure_code`), never the original exception class.

    A loop must not repeat it: this key replays the failure.
    """

    code = "recorded_failure"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.NEW_KEY

    def __init__(self, type: str, message: str, failure_code: str | None = None) -> None:
        super().__init__(f"the first run failed: {type}: {message}. Every retry with this key gets this failure")
        self.type = type
        self.message = message
        self.failure_code = failure_code


class OutOfOrder(OncewardError):
    """
    This is not the next number of the sequence. Send the missing numbers first.

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
    The sequence is past this number, and its result is no longer stored. It will not run again.

    A loop must not repeat it: the number stays forgotten.
    """

    code = "sequence_forgotten"


class NotSettled(OncewardError):
    """
    The function settled in its own transaction, and that was not committed. Nothing happened; retry with the same key.

    A loop may repeat it, with the same key.
    """

    code = "not_settled"
    retry = RetryAdvice.SAME_KEY


class RetryTransaction(OncewardError):
    """
    Your transaction conflicts with another one. Roll it back and run all of it again with the same key.

    A loop may repeat the whole transaction, with the same key.
    """

    code = "retry_transaction"
    fault = Fault.STORE
    retry = RetryAdvice.SAME_KEY


class StoreUnavailable(OncewardError):
    """
    The store did not respond, so nothing was started. Retry with the same key.

    A loop may repeat it, with the same key, after a pause.
    """

    code = "store_unavailable"
    fault = Fault.STORE
    retry = RetryAdvice.SAME_KEY


class StoreContended(StoreUnavailable):
    """
    Other callers kept changing this record, so it could not be claimed. Retry with the same key.

    A loop may repeat it, with the same key, after a pause.
    """

    code = "store_contended"


class StoreFull(StoreUnavailable):
    """
    The store is full, so nothing was started. Free some space, then retry with the same key.

    A loop may repeat it, with the same key, once there is room.
    """

    code = "store_full"


class RecordRefused(StoreUnavailable, RuntimeError):
    """
    The store cannot hold this record: it is too large, or has text that the store does not accept. Make it smaller.

    A loop must not repeat it: the record stays the same.
    """

    code = "record_refused"
    fault = Fault.CALLER
    retry = RetryAdvice.NEVER


class StoreCorrupt(StoreUnavailable, RuntimeError):
    """
    The store's file is damaged, or is not a store. Restore a backup; nothing was read from it.

    A loop must not repeat it: the file stays damaged until it is restored.
    """

    code = "store_corrupt"
    retry = RetryAdvice.NEVER


class Unrecorded(StoreUnavailable, RuntimeError):
    """
    The operation ran, but its result could not be stored. Do not run it again: use `value`, and reconcile the record.

    `value` is what it returned. The record is still claimed, and in doubt once its lease is over.

    A loop must not repeat it: it ran.
    """

    code = "unrecorded"
    retry = RetryAdvice.NEVER

    def __init__(self, message: str | None = None, *, value: Any = None) -> None:
        super().__init__(message)
        self.value = value


class SchemaMismatch(OncewardError, RuntimeError):
    """
    The store or the record was written by another version of Onceward. Upgrade, or run `onceward store migrate`.

    A loop must not repeat it: upgrade or migrate first.
    """

    code = "schema_mismatch"
    fault = Fault.STORE


class OutcomeUnknown(OncewardError, RuntimeError):
    """
    This call may have happened, and a retry could repeat it. Check whether it did.

    It has no key and no probe, and was not declared safe. Give it a key that the server honours, and retries are safe.

    A loop must not repeat it: that could do it twice.
    """

    code = "outcome_unknown"
    fault = Fault.OUTSIDE


class DeadlineExceeded(OncewardError, RuntimeError):
    """
    The deadline leaves no time for another attempt. Retry later with the same key.

    `retry_at` (UTC) is the time that the server gave for a retry, if it gave one.

    A loop must not repeat it now: the time is over. Later, it may be called again with the same key.
    """

    code = "deadline_exceeded"
    fault = Fault.OUTSIDE


class BudgetExhausted(OncewardError, RuntimeError):
    """
    The retry budget is used up, so this call was not retried. Retry later with the same key.

    There were too many retries for this much traffic. The last attempt's error is the cause.

    A loop must not repeat it now: that is what the budget prevents. Later, it may be called again with the same key.
    """

    code = "budget_exhausted"
    fault = Fault.OUTSIDE


class SpendExhausted(OncewardError, RuntimeError):
    """
    This work may spend no more, so the call was not made. What was done before stands; raise the limit to go on.

    `left` is what may still be spent, and `price` what the call costs, both as exact text.

    A loop must not repeat it: it is refused until the limit is raised. Then it may be called again with the same key.
    """

    code = "spend_exhausted"

    def __init__(self, message: str | None = None, *, left: str | None = None, price: str | None = None) -> None:
        super().__init__(message)
        self.left = left
        self.price = price


class CircuitOpen(OncewardError, RuntimeError):
    """
    The circuit is open because the dependency is failing, so it was not called. Retry later with the same key.

    `retry_at` (UTC) and `retry_after_seconds` say when the next call is let through.

    A loop must not repeat it now: no call is made before `retry_at`. Later, it may be called again with the same key.
    """

    code = "circuit_open"
    fault = Fault.OUTSIDE
