"""
Verdicts by the codes of `OncewardError`, which are also the codes of problem responses over HTTP.
"""

from __future__ import annotations

from typing import Any, Final

from onceward._core.errors import OncewardError, RetryAdvice
from onceward._core.verdict import Action, Certainty, Kind, Verdict
from onceward._core.verdict_tables.rules import UNKNOWN, read_attribute

STOP_ATTRIBUTE: Final = "__onceward_stop__"
"""Where a retry policy leaves its `Stop` on the error that it raises."""

_C, _K, _A = Certainty, Kind, Action

CODES: Final[dict[str, Verdict]] = {
    # Refused before anything was claimed.
    "configuration": Verdict(_C.NOT_SENT, _K.CLIENT, _A.NEVER),
    "scope_missing": Verdict(_C.NOT_SENT, _K.CLIENT, _A.NEVER),
    "key_missing": Verdict(_C.NOT_SENT, _K.CLIENT, _A.NEVER),
    "key_invalid": Verdict(_C.NOT_SENT, _K.CLIENT, _A.NEVER),
    "request_invalid": Verdict(_C.NOT_SENT, _K.CLIENT, _A.NEVER),
    "record_refused": Verdict(_C.NOT_SENT, _K.CLIENT, _A.NEVER),
    "plan_incomplete": Verdict(_C.NOT_SENT, _K.CLIENT, _A.NEVER),
    "ambiguous_identity": Verdict(_C.NOT_SENT, _K.CLIENT, _A.NEVER),
    "body_too_large": Verdict(_C.NOT_SENT, _K.CLIENT, _A.NEVER),
    "upload_timeout": Verdict(_C.NOT_SENT, _K.CLIENT, _A.SAME_KEY),
    "target_refused": Verdict(_C.NOT_SENT, _K.CLIENT, _A.NEVER),
    "signature_invalid": Verdict(_C.NOT_SENT, _K.CLIENT, _A.NEVER),
    "event_invalid": Verdict(_C.NOT_SENT, _K.CLIENT, _A.NEVER),
    "source_unknown": Verdict(_C.NOT_SENT, _K.CLIENT, _A.NEVER),
    "source_unready": Verdict(_C.NOT_SENT, _K.UPSTREAM, _A.SAME_KEY),
    "rate_limited": Verdict(_C.NOT_SENT, _K.RATE_LIMIT, _A.SAME_KEY),
    "balance_exhausted": Verdict(_C.REJECTED, _K.STATE, _A.ESCALATE),
    "quota_exceeded": Verdict(_C.REJECTED, _K.STATE, _A.ESCALATE),
    "token_invalid": Verdict(_C.REJECTED, _K.AUTH, _A.REFRESH),
    "forbidden": Verdict(_C.REJECTED, _K.AUTH, _A.ESCALATE),
    "store_unavailable": Verdict(_C.NOT_SENT, _K.UPSTREAM, _A.SAME_KEY),
    "store_contended": Verdict(_C.NOT_SENT, _K.UPSTREAM, _A.SAME_KEY),
    "store_full": Verdict(_C.NOT_SENT, _K.UPSTREAM, _A.SAME_KEY),
    "spool_full": Verdict(_C.NOT_SENT, _K.RATE_LIMIT, _A.SAME_KEY),
    "store_corrupt": Verdict(_C.NOT_SENT, _K.UPSTREAM, _A.NEVER),
    "schema_mismatch": Verdict(_C.NOT_SENT, _K.UPSTREAM, _A.NEVER),
    # Not called at all: who waits outside an open circuit gains nothing by knocking again.
    "circuit_open": Verdict(_C.NOT_SENT, _K.UPSTREAM, _A.NEVER),
    "spend_exhausted": Verdict(_C.NOT_SENT, _K.STATE, _A.ESCALATE),
    # Given up by a retry policy; what is known about the attempts is on its stop.
    "outcome_unknown": Verdict(_C.UNKNOWN, _K.OTHER, _A.NEVER),
    "deadline_exceeded": Verdict(_C.UNKNOWN, _K.OTHER, _A.NEVER),
    "budget_exhausted": Verdict(_C.UNKNOWN, _K.OTHER, _A.NEVER),
    # Read, and refused.
    "key_reused": Verdict(_C.REJECTED, _K.CLIENT, _A.NEW_KEY),
    "out_of_order": Verdict(_C.REJECTED, _K.STATE, _A.SAME_KEY),
    "illegal_move": Verdict(_C.REJECTED, _K.STATE, _A.NEVER),
    "nothing_happened": Verdict(_C.REJECTED, _K.OTHER, _A.SAME_KEY),
    "not_settled": Verdict(_C.REJECTED, _K.STATE, _A.SAME_KEY),
    "retry_transaction": Verdict(_C.REJECTED, _K.STATE, _A.SAME_KEY),
    # Somebody, perhaps an earlier try of this very caller, is at it: it may well happen.
    "service_unreachable": Verdict(_C.UNKNOWN, _K.NETWORK, _A.SAME_KEY),
    "in_flight": Verdict(_C.UNKNOWN, _K.STATE, _A.SAME_KEY),
    "pending": Verdict(_C.UNKNOWN, _K.STATE, _A.SAME_KEY),
    "ownership_lost": Verdict(_C.UNKNOWN, _K.STATE, _A.SAME_KEY),
    # Nobody knows.
    "in_doubt": Verdict(_C.UNKNOWN, _K.STATE, _A.NEVER),
    "store_forgot": Verdict(_C.UNKNOWN, _K.STATE, _A.NEVER),
    "sequence_forgotten": Verdict(_C.UNKNOWN, _K.STATE, _A.NEVER),
    # A result or a failure is stored, and cannot be read.
    "seal_broken": Verdict(_C.UNKNOWN, _K.STATE, _A.NEVER),
    "seal_key_missing": Verdict(_C.UNKNOWN, _K.STATE, _A.SAME_KEY),
    "recorded_failure": Verdict(_C.UNKNOWN, _K.STATE, _A.NEW_KEY),
    "handler_failed": Verdict(_C.UNKNOWN, _K.STATE, _A.NEW_KEY),
    # It ran.
    "expired": Verdict(_C.DONE, _K.STATE, _A.NEVER),
    "not_replayable": Verdict(_C.DONE, _K.STATE, _A.NEVER),
    "already_settled": Verdict(_C.DONE, _K.STATE, _A.NEVER),
    "result_invalid": Verdict(_C.DONE, _K.STATE, _A.NEVER),
    "unrecorded": Verdict(_C.DONE, _K.STATE, _A.NEVER),
}
"""By code. A test compares the actions with the advice of the errors' classes, so they cannot part."""

NEEDS_SOMEBODY: Final = frozenset((Action.ESCALATE, Action.REFRESH))
"""Where somebody has to mend something first. A retry alone would not help, whichever key it would have."""

_ADVICE = {
    RetryAdvice.SAME_KEY: Action.SAME_KEY,
    RetryAdvice.NEW_KEY: Action.NEW_KEY,
    RetryAdvice.NEVER: Action.NEVER,
}


def own_verdict(error: OncewardError) -> Verdict:
    """The verdict on one of our own errors: what its code says of the effect, what the error itself advises."""
    code = read_attribute(error, "code")
    known = CODES.get(code) if isinstance(code, str) else None
    certainty, kind, *_ = known or UNKNOWN
    attempts = read_attribute(read_attribute(error, STOP_ATTRIBUTE), "verdict")
    if isinstance(attempts, Verdict):
        certainty = attempts.certainty
    advice = read_attribute(error, "retry")
    action = _ADVICE.get(advice, Action.NEVER)
    if isinstance(advice, Action):  # An error may know more words than the wire does.
        action = advice
    elif action is not Action.NEW_KEY and known is not None and known.action in NEEDS_SOMEBODY:
        action = known.action
    return Verdict(certainty, kind, action, _wait(error), code if isinstance(code, str) else None)


def _wait(error: Any) -> float | None:
    wait = read_attribute(error, "retry_after_seconds")
    return float(wait) if isinstance(wait, int | float) and not isinstance(wait, bool) and 0 <= wait < 1e12 else None
