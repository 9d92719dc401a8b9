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
same word as on HTTP and in the CLI), `fault`, `retry` and, when known, `retry_after_seconds` and `retry_at`.
A test holds this drawing to the classes below.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from onceward._core.faults import Fault as Fault
from onceward._core.faults import RetryAdvice as RetryAdvice


class OncewardError(Exception):
    """Something about a gated operation went wrong."""

    code: str = "error"
    fault: Fault = Fault.CALLER
    retry: RetryAdvice = RetryAdvice.NEVER

    def __init__(
        self, message: str | None = None, *, retry_after_seconds: float | None = None, retry_at: datetime | None = None
    ) -> None:
        # The default message is the class's docstring, so that text and documentation cannot part.
        super().__init__(message if message is not None else " ".join((self.__doc__ or "").split()))
        self.retry_after_seconds = retry_after_seconds
        self.retry_at = retry_at


class ConfigurationError(OncewardError):
    """The gate, the operation or the store was declared in a way that cannot work."""

    code = "configuration"


class ScopeMissing(ConfigurationError):
    """A gate needs a scope: say who is calling, for example scope="live:acme" (environment and tenant)."""

    code = "scope_missing"


class KeyInvalid(OncewardError):
    """A key is 1 to 255 visible ASCII characters, chosen by the caller and the same on every attempt."""

    code = "key_invalid"


class KeyMissing(KeyInvalid):
    """There is no key, so a retry could not be told from another operation. Nothing was run."""

    code = "key_missing"


class RequestInvalid(OncewardError):
    """The request has no canonical form, so a retry could not be told from another request."""

    code = "request_invalid"


class ResultInvalid(OncewardError):
    """A stored result cannot be turned back into the type that the function declares."""

    code = "result_invalid"


class KeyReused(OncewardError):
    """This key was used for a different request. A different request needs a key of its own."""

    code = "key_reused"
    retry = RetryAdvice.NEW_KEY


class InFlight(OncewardError):
    """Another caller is running this operation right now. Ask again with the same key."""

    code = "in_flight"
    fault = Fault.HOLDER
    retry = RetryAdvice.SAME_KEY


class InDoubt(OncewardError):
    """This operation may have happened, and nobody knows. It will not run again until someone decides."""

    code = "in_doubt"
    fault = Fault.OUTSIDE


class StoreForgot(InDoubt):
    """
    The operation ran, and meanwhile the store lost its claim (a failover, a restored backup), or it was erased.

    `value` is what it returned, if it did. Never repeat it in a loop: look whether it happened. Raised only if its
    ending could not be put back; if it could, the caller has its result, and listeners hear `store_forgot`.
    """

    code = "store_forgot"
    fault = Fault.STORE

    def __init__(self, message: str | None = None, *, value: Any = None) -> None:
        super().__init__(message)
        self.value = value


class Expired(OncewardError):
    """This operation did happen, and its stored answer is past its retention. It will not run again."""

    code = "expired"


class NotReplayable(OncewardError):
    """This operation did happen, and its answer could not be kept. It will not run again."""

    code = "not_replayable"
    fault = Fault.OUTSIDE


class NothingHappened(OncewardError):
    """Raise this from your function when you know that its effect did not take place: the key is released."""

    code = "nothing_happened"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.SAME_KEY


class OwnershipLost(OncewardError):
    """
    This holder was overtaken: its lease ran out, another caller took the key, and nothing of this run was stored.

    `outcome` is the winner's outcome if there is one yet; otherwise ask again with the same key.
    """

    code = "ownership_lost"
    fault = Fault.HOLDER
    retry = RetryAdvice.SAME_KEY

    def __init__(self, message: str | None = None, *, outcome: Any = None) -> None:
        super().__init__(message)
        self.outcome = outcome


class AlreadySettled(OncewardError):
    """This operation was settled before, with a different result. The first result stands."""

    code = "already_settled"


class IllegalMove(OncewardError):
    """The record's state does not allow this move. Nothing was changed."""

    code = "illegal_move"


class RecordedFailure(OncewardError):
    """
    The first run of this operation failed, and its failure was remembered.

    The failure is data (`type`, `message`, `failure_code`), never a re-created exception class.
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
    """A sequence takes its numbers in order."""

    code = "out_of_order"
    retry = RetryAdvice.SAME_KEY

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"expected number {expected}, got {got}: send {expected} first")
        self.expected = expected
        self.got = got


class SequenceForgotten(OncewardError):
    """This number lies behind the sequence's mark, and its result is not (or no longer) stored."""

    code = "sequence_forgotten"


class NotSettled(OncewardError):
    """The function settled inside its transaction, and that was not committed. Nothing happened; use the same key."""

    code = "not_settled"
    retry = RetryAdvice.SAME_KEY


class RetryTransaction(OncewardError):
    """Your transaction lost a race it cannot win by waiting. Roll it back and run it again with the same key."""

    code = "retry_transaction"
    fault = Fault.STORE
    retry = RetryAdvice.SAME_KEY


class StoreUnavailable(OncewardError):
    """The store did not answer, so nothing was started. Try again with the same key."""

    code = "store_unavailable"
    fault = Fault.STORE
    retry = RetryAdvice.SAME_KEY


class StoreContended(StoreUnavailable):
    """The record kept moving while this caller tried to claim it. Try again with the same key."""

    code = "store_contended"


class StoreFull(StoreUnavailable):
    """The store has no room left to write. Nothing was started; free some space, then use the same key."""

    code = "store_full"


class RecordRefused(StoreUnavailable):
    """The store cannot hold this record as it is: it is too large for it, or has text that it does not take."""

    code = "record_refused"
    fault = Fault.CALLER
    retry = RetryAdvice.NEVER


class StoreCorrupt(StoreUnavailable):
    """The store's file is damaged or is not a store. Nothing is read from it: restore a backup."""

    code = "store_corrupt"
    retry = RetryAdvice.NEVER


class Unrecorded(StoreUnavailable):
    """
    The operation ran, and its result could not be recorded before the lease ran out.

    `value` is what it returned. Do not run it again: the record is claimed and will be in doubt.
    """

    code = "unrecorded"
    retry = RetryAdvice.NEVER

    def __init__(self, message: str | None = None, *, value: Any = None) -> None:
        super().__init__(message)
        self.value = value


class SchemaMismatch(OncewardError):
    """The store or the record was written by a version of Onceward that this one does not understand."""

    code = "schema_mismatch"
    fault = Fault.STORE


class OutcomeUnknown(OncewardError):
    """
    This attempt may have had its effect, and trying again could repeat it: no key, no probe, not declared safe.

    Look whether it happened. To let a retry decide by itself, give the call a key that the other side honours.
    """

    code = "outcome_unknown"
    fault = Fault.OUTSIDE


class DeadlineExceeded(OncewardError):
    """
    There is no time left to try again, so nothing was waited for.

    `retry_at` (UTC) is when the other side wants to be asked again, if it said so.
    """

    code = "deadline_exceeded"
    fault = Fault.OUTSIDE


class BudgetExhausted(OncewardError):
    """
    There have been too many retries for this much traffic, so this call was not tried again.

    The last attempt's error is the cause. Later, the same key may be tried again.
    """

    code = "budget_exhausted"
    fault = Fault.OUTSIDE


class CircuitOpen(OncewardError):
    """
    The dependency is failing, so it was not called. Trying again at once would not call it, either.

    `retry_at` (UTC) and `retry_after_seconds` say when the next call will be let through.
    """

    code = "circuit_open"
    fault = Fault.OUTSIDE


class RateLimitError(OncewardError):
    """
    The other side asks for a pause. Nothing happened; send it again, unchanged, after the pause.

    For clients to raise: `RateLimitError(retry_after_seconds=30)`. `response` is the answer itself, if there is one.
    """

    code = "rate_limited"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.SAME_KEY

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after_seconds: float | None = None,
        retry_at: datetime | None = None,
        response: Any = None,
    ) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds, retry_at=retry_at)
        self.response = response


class ServiceUnreachable(OncewardError):
    """
    The service did not answer, or could not be reached. Sent again, unchanged, this call happens once.

    Raised by `Client` where a call has a key, only reads, or is known not to have arrived. The HTTP library's own
    error is the cause.
    """

    code = "service_unreachable"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.SAME_KEY


class SpoolFull(OncewardError):
    """Too many items wait in the emitter's spool. This one was not taken: slow down, and emit it again later."""

    code = "spool_full"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.SAME_KEY


class PlanIncomplete(OncewardError):
    """A step is named by two headers, Plan-Key and Plan-Step. One of them is missing; nothing was run."""

    code = "plan_incomplete"


class AmbiguousIdentity(OncewardError):
    """The request names a key and a step, which are two operations. Nothing was run."""

    code = "ambiguous_identity"


class BodyTooLarge(OncewardError):
    """The request's body is longer than this service takes under a key. Nothing was run."""

    code = "body_too_large"


class UploadTimeout(OncewardError):
    """The request's body did not arrive in time. Nothing was run; send it again with the same key."""

    code = "upload_timeout"
    retry = RetryAdvice.SAME_KEY


class HandlerFailed(OncewardError):
    """The handler failed, and its failure is what this key is remembered by."""

    code = "handler_failed"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.NEW_KEY


class SignatureInvalid(OncewardError):
    """A webhook's signature, time or id is not right, so it was not believed, and nothing was kept of it."""

    code = "signature_invalid"


class EventInvalid(SignatureInvalid):
    """The event's id is missing, or cannot be one, so a redelivery could not be told from another event."""

    code = "event_invalid"


class SourceUnknown(OncewardError):
    """Nothing is received here under this name."""

    code = "source_unknown"


class SourceUnready(OncewardError):
    """What this source signs with cannot be read here, so nothing was believed and nothing kept. Send it again."""

    code = "source_unready"
    fault = Fault.STORE
    retry = RetryAdvice.SAME_KEY


class TargetRefused(OncewardError):
    """A webhook's URL leads where this service does not send, so nothing was sent."""

    code = "target_refused"


class TokenInvalid(OncewardError):
    """This token is not valid: unknown, revoked, expired or damaged. Which of these it is, is not told."""

    code = "token_invalid"


class Forbidden(OncewardError):
    """The token is valid and may not do this: its role, its environment or its list of databases does not cover it."""

    code = "forbidden"


class BalanceExhausted(OncewardError):
    """The tenant's prepaid balance does not cover this call. Nothing ran, and the key is unused: top up, then retry."""

    code = "balance_exhausted"

    def __init__(self, message: str | None = None, *, balance: int | None = None, price: int | None = None) -> None:
        super().__init__(message)
        self.balance = balance
        self.price = price


class QuotaExceeded(OncewardError):
    """The tenant holds as many records, or bytes, as its quota allows. Nothing ran, and the key is unused."""

    code = "quota_exceeded"

    def __init__(self, message: str | None = None, *, limit: int | None = None, held: int | None = None) -> None:
        super().__init__(message)
        self.limit = limit
        self.held = held
