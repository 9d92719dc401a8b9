"""
What is wrong with a key that is allowed: warnings for people, before the first duplicate.

    K1  time or attempt in it     every retry is a new operation
    K2  too broad                 different operations share a key
    K3  too narrow                one operation gets several keys
    K4  personal data             keys end up in logs, at providers and in support mails
    K5  long                      some services stop at 200 characters

`lint_recipe` judges by the names of ingredients, `lint_key` by the look of one key, so the second can be wrong:
an order number may look like a time. Nothing here stops anything; `check_key` and `recipe` do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from onceward._core.errors import KeyInvalid
from onceward._core.key_ingredients import (
    ACTORS,
    MADE_AFRESH,
    OF_THIS_PROCESS,
    OPERATIONS,
    PERSONAL,
    TIME_OR_ATTEMPT,
    words_of,
)
from onceward._core.keys import check_key, key_digest

# The shortest limit among the services in common use (PerSQL); ours is 255.
LONG_KEY_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class KeyFinding:
    """One thing to look at: a stable code, what was seen, what to do."""

    code: str
    message: str
    advice: str


@dataclass(frozen=True, slots=True)
class KeyReport:
    """What can be said about a key without showing it. `problem` is None for a key that is allowed."""

    length: int
    problem: str | None
    digest: str
    findings: tuple[KeyFinding, ...]


def explain_key(key: str) -> KeyReport:
    """Everything there is to say about a key: length, whether it is allowed, digest, findings."""
    try:
        check_key(key)
        problem = None
    except KeyInvalid as error:
        problem = str(error)
    return KeyReport(len(key), problem, key_digest(key), tuple(lint_key(key)))


def lint_key(key: str) -> list[KeyFinding]:
    """Look at one key for signs of the five usual mistakes."""
    findings = [_finding(code, message) for code, pattern, message in _SIGNS if pattern.search(key)]
    if len(key) > LONG_KEY_CHARACTERS:
        findings.append(_finding("K5", f"has {len(key)} characters"))
    return findings


def lint_recipe(template: str) -> list[KeyFinding]:
    """Look at a template, or at an f-string's text, for ingredients that make a bad key."""
    fields = [words_of(text) for text in _FIELD.findall(template)]
    # {datetime.now()} and {order.uuid}: every word of an expression counts.
    names = {words_of(word) for text in _FIELD.findall(template) for word in re.split(r"\W+", text)} | {*fields}
    findings = [
        _finding(code, f"{message}: {', '.join(sorted(names & bad))}")
        for code, bad, message in _INGREDIENTS
        if names & bad
    ]
    literal = _FIELD.sub("", template)
    says_what = any(character.isalpha() for character in literal) or names & OPERATIONS
    if not says_what:
        findings.append(_finding("K2", "does not say which operation it is for"))
    elif {*fields} <= ACTORS:
        findings.append(_finding("K2", "says who is calling, but not what for"))
    return sorted(findings, key=lambda finding: finding.code)


def _finding(code: str, message: str) -> KeyFinding:
    return KeyFinding(code, message, _ADVICE[code])


_ADVICE = {
    "K1": "use identifiers that stay the same on every attempt; leave the time and the attempt out",
    "K2": "name the operation and what it is about, as in charge:{order_id} or {user_id}:{task_id}:{step_id}",
    "K3": "use what is stored with the operation; save a new random value before the first attempt",
    "K4": "use an opaque id in place of the address or number; keys are seen by others",
    "K5": "use fewer parts, or hash them with derive(...)",
}
_FIELD = re.compile(r"\{([^{}]*)\}")
_INGREDIENTS = (
    ("K1", TIME_OR_ATTEMPT, "changes with every attempt"),
    ("K3", MADE_AFRESH | OF_THIS_PROCESS, "is new each time, or belongs to one process"),
    ("K4", PERSONAL, "holds personal data"),
)
_TIME_WORD = r"(?:attempt|retry|retries|try|tries)(?:[-_]?(?:count|number|no))?"
_WHO_WORD = r"(?:user|customer|account|tenant|worker|agent|session)(?:[-_]?id)?"
_SIGNS = tuple(
    (code, re.compile(pattern, re.IGNORECASE), message)
    for code, pattern, message in (
        # 2001 to 2033 in seconds, and the same in thousandths, millionths and billionths, standing alone.
        ("K1", r"(?<![0-9a-z.+])1\d{9}(?:\d{3}){0,3}(?![0-9a-z])", "has what looks like a time since 1970"),
        ("K1", r"(?<!\d)(?:19|20)\d\d-?[01]\d-?[0-3]\d[t_ ]?[0-2]\d:?[0-5]\d", "has what looks like a time of day"),
        ("K1", rf"(?<![a-z]){_TIME_WORD}[-_:=#]?\d+(?![0-9a-z])", "has what looks like an attempt's number"),
        ("K2", rf"^(?:{_WHO_WORD}[-_:=]?)?\d*$", "does not say which operation it is for"),
        ("K3", r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$", "is a trace id, which is new each time"),
        ("K3", r"(?<![a-z])(?:request|trace|span|process)[-_]?id[-_:=]", "has an id that is new each time"),
        ("K4", r"[^@:/\s]@[^@:/\s]+\.[a-z]", "has what looks like an e-mail address"),
        ("K4", r"\+\d{7,15}(?!\d)|(?<!\d)\(?\d{3}[-.)]\d{3}[-.]\d{4}(?!\d)", "has what looks like a telephone number"),
    )
)
