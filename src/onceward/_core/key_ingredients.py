"""
What a key may be made of, judged by name.

A key must be the same on every attempt and another for every operation. The names people give to things say
much about that: a `timestamp` differs between attempts, a `user_id` alone does not tell two operations apart.
`key_recipes.py` refuses the first kind; `key_lint.py` warns about the rest as well.

Decided: only these names, not names that contain them. `date`, `created_at` and `order_uuid` are fine,
because they are usually stored with the thing itself; `today`, `timestamp` and `uuid` are usually made on the spot.
"""

from __future__ import annotations

import re


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


TIME_OR_ATTEMPT = _names(
    "time timestamp ts now utcnow today datetime current_time attempt attempts attempt_number attempt_count "
    "retry retries retry_count retry_number tries try_count"
)
MADE_AFRESH = _names(
    "random rand randint randbits nonce uuid uuid1 uuid4 uuid7 guid request_id trace_id span_id traceparent"
)
# Stable on one machine only: worth a warning, not a refusal.
OF_THIS_PROCESS = _names("pid process_id thread_id host hostname ip ip_address")
PERSONAL = _names("email e_mail email_address mail phone phone_number mobile ssn full_name")
# Who is asking, which says nothing about what for.
ACTORS = _names(
    "user user_id customer customer_id account account_id tenant tenant_id worker worker_id agent agent_id "
    "session session_id owner_id"
)
OPERATIONS = _names(
    "operation operation_type op action kind type tool tool_name step step_id step_name event event_id "
    "event_type method command"
)


def words_of(name: str) -> str:
    """`retryCount`, `RETRY_COUNT` and `retry-count` as `retry_count`: the spelling of the sets above."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", parted.lower()).strip("_")


def why_unstable(name: str) -> str | None:
    """Why an ingredient of that name would change between attempts, or None if nothing says so."""
    words = words_of(name)
    if words in TIME_OR_ATTEMPT:
        return "differs on every attempt, so a retry would be a new operation"
    if words in MADE_AFRESH:
        return "is usually new on every attempt, so a retry would be a new operation"
    return None
