"""
What the ledger refuses. Each has a stable code; statuses are in `service/web/problems.py`.
"""

from __future__ import annotations

from onceward._core.errors import OncewardError, RetryAdvice


class ReferenceReused(OncewardError):
    """This reference was booked before with something else. A different delta needs a reference of its own."""

    code = "reference_reused"
    retry = RetryAdvice.NEW_KEY


class PeriodClosed(OncewardError):
    """The period is closed by a checkpoint, and takes no more deltas."""

    code = "period_closed"


class PeriodNotOpen(OncewardError):
    """The running period was closed before its end, and the next one has not begun. Send it again then, unchanged."""

    code = "period_not_open"
    retry = RetryAdvice.SAME_KEY


class CustomerUnknown(OncewardError):
    """There is no such customer in this ledger."""

    code = "customer_unknown"


class DeltaUnknown(OncewardError):
    """There is no such delta in this ledger."""

    code = "delta_unknown"


class DeltaRefused(OncewardError):
    """The ledger's rule refuses this delta. Nothing was booked."""

    code = "delta_refused"


class NothingToReceipt(OncewardError):
    """There is nothing verified that a receipt could be for."""

    code = "receipt_unknown"


class VerificationPending(OncewardError):
    """Deltas of this period still wait for their verification. Ask again when the verifier has seen them."""

    code = "verification_pending"
    retry = RetryAdvice.SAME_KEY
