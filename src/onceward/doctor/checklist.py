"""
The sixteen boxes of the checklist before production: keys, errors, back-off, circuit breakers.

Sentences are the document's own. Each function looks at what the code shows; the linter's codes say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from onceward.doctor.box import Box, BoxAnswer, CodePlace, empty, filled, idle, unknown
from onceward.doctor.code_facts import KeyFact, RetryFact

if TYPE_CHECKING:
    from onceward.doctor.code_facts import CodeFacts
    from onceward.doctor.examination import Evidence

KEYS: Final = "KEY GENERATION"
ERRORS: Final = "ERROR HANDLING"
BACKOFF: Final = "BACKOFF"
BREAKERS: Final = "CIRCUIT BREAKERS"


def count(number: int, word: str) -> str:
    """A number with its word: 1 key, 2 keys."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


# --- keys ---


def _keys(
    evidence: Evidence, wrong: Sequence[CodePlace], say: str, judge: Callable[[list[KeyFact]], BoxAnswer]
) -> BoxAnswer:
    """What is wrong first; then whether there are keys to judge at all."""
    code = evidence.code
    if wrong:
        return empty(say, wrong)
    made = [one for one in code.keys if not one.is_given]
    if made:
        return judge(made)
    outside = [one.place for one in code.effects if not one.has_key]
    if outside:
        return empty("external calls have no key: give each call one, with gate.once or idempotency_key=", outside)
    if code.keys:
        given = [one.place for one in code.keys]
        return unknown("keys come from elsewhere: also pass the files that make them, with --path", given)
    if _derives(code):
        return filled("the gate derives the keys of its tools from run, tool and arguments")
    return unknown(
        f"no key and no external call in {count(code.files, 'file')}: pass more files with --path, or state it"
    )


def _derives(code: CodeFacts) -> bool:
    return any(one.identified_by for one in code.operations)


def _stable(evidence: Evidence) -> BoxAnswer:
    code = evidence.code
    bare = code.found("OW110", "OW111", "OW112")
    if bare:
        return empty("writes are retried without a key: derive one from ids that are stored", bare)
    wrong = code.found("OW105", "OW106")
    say = "keys contain process-local or personal data: use ids that are stored"

    def judge(keys: list[KeyFact]) -> BoxAnswer:
        names = list(dict.fromkeys(name for one in keys for name in one.made_of))
        shown = ", ".join(names[:6]) + (" ..." if len(names) > 6 else "")
        made = f"made of {shown}" if names else "made of fixed text"
        return filled(f"{count(len(keys), 'key')} {made}", [one.place for one in keys])

    return _keys(evidence, wrong, say, judge)


def _timeless(evidence: Evidence) -> BoxAnswer:
    say = "keys contain a time or an attempt number, which differs on a retry: leave it out"
    return _keys(
        evidence,
        evidence.code.found("OW101", "OW104"),
        say,
        lambda keys: filled(
            f"none of {count(len(keys), 'key')} contains a time or an attempt number", [one.place for one in keys]
        ),
    )


def _typed(evidence: Evidence) -> BoxAnswer:
    say = 'different operations share a key: begin each key with its operation, as in "charge:{order_id}"'

    def judge(keys: list[KeyFact]) -> BoxAnswer:
        nameless = [one for one in keys if not one.names_operation and not one.is_opaque]
        if nameless:
            shown = "; ".join(dict.fromkeys(f"{one.used_by}: {', '.join(one.made_of)}" for one in nameless[:3]))
            return empty(
                f"keys do not say what they are for: begin them with the operation. {shown}",
                [one.place for one in nameless],
            )
        named = [one for one in keys if one.names_operation]
        if not named:
            return unknown(
                "the keys come from functions that are not in these files: state what a key contains",
                [one.place for one in keys],
            )
        return filled(f"{count(len(named), 'key')} that name the operation", [one.place for one in named])

    return _keys(evidence, evidence.code.found("OW107"), say, judge)


def _deterministic(evidence: Evidence) -> BoxAnswer:
    say = "keys differ between attempts (random, clock, made inside the retry): derive them before the first attempt"

    def judge(keys: list[KeyFact]) -> BoxAnswer:
        opaque = [one.place for one in keys if one.is_opaque]
        if len(opaque) == len(keys):
            return unknown(
                "the keys come from functions that are not in these files: state that equal input gives equal keys",
                opaque,
            )
        return filled(
            f"{count(len(keys), 'key')}, and nothing in them changes between attempts", [one.place for one in keys]
        )

    return _keys(evidence, evidence.code.found("OW101", "OW102", "OW103", "OW104", "OW105"), say, judge)


# --- retries ---


def _retries(
    evidence: Evidence,
    ask: Callable[[RetryFact], bool | None],
    *,
    lack: str,
    good: str,
    cannot: str,
    wrong: Sequence[CodePlace] = (),
) -> BoxAnswer:
    """Ask every retry of the code: one that lacks it empties the box, one that hides it makes it unknown."""
    retries = evidence.code.retries
    lacking = [*wrong, *(one.place for one in retries if ask(one) is False)]
    if lacking:
        return empty(lack, lacking)
    if not retries:
        return idle(f"nothing in {count(evidence.code.files, 'file')} retries by itself")
    hidden = [one.place for one in retries if ask(one) is None]
    if hidden:
        return unknown(cannot, hidden)
    return filled(
        f"{count(len(retries), 'retry').replace('retrys', 'retries')}: {good}", [one.place for one in retries]
    )


def _classified(evidence: Evidence) -> BoxAnswer:
    return _retries(
        evidence,
        lambda one: one.classified,
        lack="every error is retried: tell errors apart, as Retry() does, or catch only some types",
        good="errors are distinguished",
        cannot="the code does not show which errors are retried: name them, or use Retry()",
    )


def _not_client_errors(evidence: Evidence) -> BoxAnswer:
    return _retries(
        evidence,
        lambda one: one.classified,
        lack="4xx responses are retried, which another attempt cannot fix: retry only 408 and 429",
        good="no 4xx except 408 and 429 is retried",
        cannot="the code does not show whether 4xx responses are retried: name the statuses, or use Retry()",
        wrong=evidence.code.found("OW113"),
    )


def _network_errors(evidence: Evidence) -> BoxAnswer:
    return _retries(
        evidence,
        lambda one: one.network,
        lack="5xx and broken connections are not retried: retry them",
        good="broken connections, timeouts and 5xx are retried",
        cannot="the code does not show that 5xx and broken connections are retried: name them, or use Retry()",
    )


def _limited(evidence: Evidence) -> BoxAnswer:
    return _retries(
        evidence,
        lambda one: one.limited,
        lack="a retry never gives up: limit its attempts and its time",
        good="attempts have a limit",
        cannot="the code does not show when a retry gives up: count the attempts, or use Retry()",
        wrong=evidence.code.found("OW114"),
    )


def _exponential(evidence: Evidence) -> BoxAnswer:
    return _retries(
        evidence,
        lambda one: one.exponential,
        lack="pauses do not grow: double them on each attempt",
        good="pauses double",
        cannot="the code does not show how pauses grow: write it out, or use Retry()",
    )


def _jittered(evidence: Evidence) -> BoxAnswer:
    return _retries(
        evidence,
        lambda one: None if one.jitter is None else one.jitter == "full",
        lack="pauses are not random from zero to the ceiling: sleep random.uniform(0, ceiling)",
        good="pauses are random from zero to the ceiling",
        cannot="the code does not show whether pauses are random: state it, or use Retry()",
        wrong=evidence.code.found("OW115"),
    )


def _capped(evidence: Evidence) -> BoxAnswer:
    return _retries(
        evidence,
        lambda one: one.capped,
        lack="pauses grow without end: cap them, with min(cap, ...) or max=",
        good="the longest pause has a limit",
        cannot="the code does not show how long the longest pause is: cap it, or use Retry()",
    )


def _based(evidence: Evidence) -> BoxAnswer:
    bases = list(dict.fromkeys(one.base for one in evidence.code.retries if one.base))
    return _retries(
        evidence,
        lambda one: True if one.base else False if one.exponential is False and one.jitter == "none" else None,
        lack="there is no pause before the next attempt: start with the length of a short hiccup of the API (0.1 s)",
        good=f"the first pause is {', '.join(bases[:3])}",
        cannot="the code does not show the first pause: write it out, or state why it fits the API",
    )


# --- breakers ---


def _everywhere(evidence: Evidence) -> BoxAnswer:
    code = evidence.code
    outside = code.effects
    bare = [one for one in outside if not one.has_breaker]
    if bare:
        called = list(dict.fromkeys(one.called for one in bare))
        shown = ", ".join(called[:3]) + (" ..." if len(called) > 3 else "")
        return empty(
            f"no breaker around {shown}: use Breaker(name), with @, .call or Retry(breaker=)",
            [one.place for one in bare],
        )
    if outside:
        return filled(f"{count(len(outside), 'external call')}, each behind a breaker", [one.place for one in outside])
    if code.breakers:
        return filled(count(len(code.breakers), "breaker"), [one.place for one in code.breakers])
    return idle(f"no external call in {count(code.files, 'file')}")


def _breakers(evidence: Evidence, look: Callable[[CodeFacts], BoxAnswer]) -> BoxAnswer:
    code = evidence.code
    if code.breakers:
        return look(code)
    if [one for one in code.effects if not one.has_breaker]:
        return empty("there is no breaker: see the first box of this group")
    if code.effects and any(one.has_breaker for one in code.effects):
        return unknown("the breakers are made elsewhere: also pass those files with --path, or state it")
    return idle(f"no external call in {count(code.files, 'file')}")


def _threshold(evidence: Evidence) -> BoxAnswer:
    def look(code: CodeFacts) -> BoxAnswer:
        untuned = [one.place for one in code.breakers if one.threshold is None]
        if untuned:
            return unknown("the threshold is the default: set threshold=, or state why the default fits", untuned)
        said = ", ".join(dict.fromkeys(str(one.threshold) for one in code.breakers))
        return filled(f"opens after {said}", [one.place for one in code.breakers])

    return _breakers(evidence, look)


def _recovery(evidence: Evidence) -> BoxAnswer:
    def look(code: CodeFacts) -> BoxAnswer:
        untuned = [one.place for one in code.breakers if one.recovery is None]
        if untuned:
            return unknown("the recovery time is the default: set recovery=, or state why the default fits", untuned)
        said = ", ".join(dict.fromkeys(str(one.recovery) for one in code.breakers))
        return filled(f"lets a call through again after {said} s", [one.place for one in code.breakers])

    return _breakers(evidence, look)


def _fallback(evidence: Evidence) -> BoxAnswer:
    def look(code: CodeFacts) -> BoxAnswer:
        bare = [one.place for one in code.breakers if not one.has_fallback]
        if bare and not code.fallbacks:
            return empty("an open circuit reaches the user as an error: catch CircuitOpen, or set fallback=", bare)
        return filled("an open circuit has a fallback", code.fallbacks or [one.place for one in code.breakers])

    return _breakers(evidence, look)


CHECKLIST: Final = (
    Box("stable-identifiers", KEYS, "Keys use stable identifiers (user_id, task_id, step_id)", "code", _stable),
    Box("no-time-or-attempt", KEYS, "Keys do NOT include timestamps or retry counts", "code", _timeless),
    Box("operation-type", KEYS, "Keys include operation type to prevent collisions", "code", _typed),
    Box("deterministic", KEYS, "Keys are deterministic (same input = same key)", "code", _deterministic),
    Box("errors-classified", ERRORS, "Errors classified as RETRY vs NEVER_RETRY", "code", _classified),
    Box("no-client-errors", ERRORS, "4xx errors (except 429) are not retried", "code", _not_client_errors),
    Box("server-errors", ERRORS, "5xx and network errors are retried", "code", _network_errors),
    Box("retry-limit", ERRORS, "Max retry limit is set", "code", _limited),
    Box("exponential", BACKOFF, "Exponential backoff implemented", "code", _exponential),
    Box("full-jitter", BACKOFF, "Full jitter added to prevent thundering herd", "code", _jittered),
    Box("delay-cap", BACKOFF, "Max delay cap prevents infinite waits", "code", _capped),
    Box("base-delay", BACKOFF, "Base delay appropriate for the API", "code", _based),
    Box("breaker-each", BREAKERS, "Circuit breaker on each external dependency", "code", _everywhere),
    Box("failure-threshold", BREAKERS, "Failure threshold tuned for the service", "code", _threshold),
    Box("recovery-timeout", BREAKERS, "Recovery timeout allows service to stabilize", "code", _recovery),
    Box("open-fallback", BREAKERS, "Open circuit has graceful fallback", "code", _fallback),
)
