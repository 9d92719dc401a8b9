"""redress: a policy with its own classifier of errors; `retry_after_or` reads the server's wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redress

from compare.limited import Limited, limited

__all__ = ["limited", "retrying"]


def retrying(work: Callable[[], Any], *, attempts: int, total: float | None = None) -> Callable[[], Any]:
    """As its documentation shows."""
    # what a user adds
    policy = redress.Policy(
        retry=redress.Retry(classifier=redress.default_classifier, strategy=lambda context: 0.0, max_attempts=attempts)
    )
    # until here
    if total is not None:
        policy = _obedient(attempts, total)
    return lambda: policy.call(work)


def _obedient(attempts: int, total: float) -> Any:
    from redress.strategies import retry_after_or

    def classify(error: BaseException) -> Any:
        seconds = error.seconds if isinstance(error, Limited) else None
        return redress.Classification(klass=redress.ErrorClass.RATE_LIMIT, retry_after_s=seconds)

    strategy = retry_after_or(lambda context: 0.0)
    return redress.Policy(
        retry=redress.Retry(classifier=classify, strategy=strategy, max_attempts=attempts, deadline_s=total)
    )


def budgeted(work: Callable[[], Any], *, attempts: int) -> Callable[[], Any]:
    """With its budget: so many retries in a window, here a tenth of the operations of the question."""
    from redress.budget import Budget

    retry = redress.Retry(
        classifier=redress.default_classifier, strategy=lambda context: 0.0, max_attempts=attempts,
        budget=Budget(max_retries=30, window_s=60.0),
    )  # fmt: skip
    policy = redress.Policy(retry=retry)
    return lambda: policy.call(work)
