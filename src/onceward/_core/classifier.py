"""
From an exception or a response to a verdict: the one place that decides what "retry" may mean.

    what you taught it        by exception type, the most specific first
    our own errors            their code, advice and wait
    what libraries raise      by qualified name along the MRO, wrapped causes looked through (verdict_tables/)
    an HTTP status            on the problem itself or on its response, with its code and headers
    anything else             unknown, and never tried again

Nothing is imported to do this, nothing acts, and nothing raises: an error whose own attributes raise is judged all
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from onceward._core.errors import ConfigurationError, OncewardError
from onceward._core.verdict import Action, Certainty, Verdict
from onceward._core.verdict_tables import databases, http_clients, standard_library
from onceward._core.verdict_tables.earlier_requests import can_show_history, follows_another_request
from onceward._core.verdict_tables.http_statuses import response_info_of, verdict_by_status
from onceward._core.verdict_tables.onceward_errors import own_verdict
from onceward._core.verdict_tables.rules import UNKNOWN, Rule

Lesson: TypeAlias = Verdict | Callable[[Any], Verdict | None]
"""A verdict, or a function of the error that returns one; None means: I do not know, go on."""

DEPTH_MAX: Final = 16
"""Wrappers looked through, one inside the other: the deepest known chain has six, and a ring of causes must end."""

TABLE: Final[Mapping[str, Rule]] = MappingProxyType({**standard_library.TABLE, **http_clients.TABLE, **databases.TABLE})
"""Every exception type that is known by name."""


_NOT_SENT, _REJECTED = Certainty.NOT_SENT, Certainty.REJECTED


@dataclass(frozen=True, slots=True)
class _Known:
    """What is a matter of a problem's type alone."""

    taught: tuple[Lesson, ...]
    verdict: Verdict | None
    """If the first rule is one."""
    rules: tuple[Rule, ...]
    is_own: bool
    tells: bool
    """Whether the type has attributes that may tell of requests before."""


class Classifier:
    """
    Judges failures. A value: it does not change, and `extended` makes another.

    `retry_500=False` never tries again after a plain 500 (or another 5xx without a rule). The default says "same key":
    whoever retries still needs a key, or a request that is safe by nature, because a 500 leaves the outcome unknown.
    """

    __slots__ = ("_known", "_retry_500", "_taught")

    def __init__(self, taught: Mapping[type, Lesson] | None = None, *, retry_500: bool = True) -> None:
        self._taught: Mapping[type, Lesson] = MappingProxyType(_checked(taught or {}))
        self._retry_500 = retry_500
        # Weak, so that types made at run time are not kept.
        self._known: WeakKeyDictionary[type, _Known] = WeakKeyDictionary()

    def judge(self, problem: Any, *, now: datetime | None = None) -> Verdict:
        """
        What is known about a problem: an exception, or a response (anything with `status_code` or `status`).

        `now` is for waits that are given as dates; without it, the answer's own `Date` serves.
        """
        return self._judge(problem, now, 0)

    def judge_at(self, problem: Any, wall_us: int) -> Verdict:
        """`judge`, with the time as microseconds since 1970: it becomes a date only if a response has to be read."""
        return self._judge(problem, wall_us, 0)

    def extended(self, taught: Mapping[type, Lesson]) -> Classifier:
        """This one, and besides what errors of these types mean. The most specific type wins, then the latest word."""
        return Classifier({**self._taught, **_checked(taught)}, retry_500=self._retry_500)

    def retryable(self, problem: Any, *, keyed: bool = False) -> bool:
        """
        Whether to try again: a predicate for tenacity, stamina and hand-written loops.

        With `keyed` (the request carries a key that stays the same, or is safe by nature) an unknown outcome may be
        tried again; without, only what certainly did not happen.
        """
        return self.judge(problem).retryable(keyed=keyed)

    def _judge(self, problem: Any, now: datetime | int | None, depth: int) -> Verdict:
        if depth > DEPTH_MAX:
            return UNKNOWN
        kind = type(problem)  # Not `isinstance`: that asks the problem for its class, and may be answered anything.
        known = self._known.get(kind) or self._learn(kind)
        for lesson in known.taught:
            if (verdict := _told(lesson, problem)) is not None:
                return verdict
        if known.is_own:
            return own_verdict(problem)
        found = known.verdict or self._look_up(known.rules, problem, now, depth)
        certainty = found.certainty
        if (certainty is _NOT_SENT or certainty is _REJECTED) and follows_another_request(
            problem, kind_tells=known.tells
        ):
            found = found._replace(certainty=Certainty.UNKNOWN)
        return found if found.code is not None else Verdict(*found[:4], kind.__name__)

    def _look_up(self, rules: tuple[Rule, ...], problem: Any, now: datetime | int | None, depth: int) -> Verdict:
        """By type; else by status; else nothing is known."""
        for rule in rules:
            found = rule if isinstance(rule, Verdict) else self._follow(rule, problem, now, depth)
            if found is not None:
                return found
        answer = response_info_of(problem)
        if answer is None:
            return UNKNOWN
        date = now if now is None or isinstance(now, datetime) else date_of(now)
        return verdict_by_status(answer, retry_500=self._retry_500, now=date)

    def _follow(self, rule: Any, problem: BaseException, now: datetime | int | None, depth: int) -> Verdict | None:
        try:
            verdict: Verdict | None = rule(problem, lambda inner: self._judge(inner, now, depth + 1))
        except Exception:
            return None  # An error made in a way that its library does not.
        return verdict

    def _learn(self, kind: type) -> _Known:
        taught = tuple(self._taught[one] for one in kind.__mro__ if one in self._taught)
        names = (f"{one.__module__}.{one.__qualname__}" for one in kind.__mro__)
        rules = tuple(_named(TABLE[name], kind) for name in names if name in TABLE)
        first = rules[0] if rules and isinstance(rules[0], Verdict) else None
        known = self._known[kind] = _Known(
            taught, first, rules, issubclass(kind, OncewardError), can_show_history(kind)
        )
        return known

    def __repr__(self) -> str:
        said = [one.__name__ for one in self._taught] + ([] if self._retry_500 else ["retry_500=False"])
        return f"Classifier({', '.join(said)})"


def date_of(wall_us: int) -> datetime:
    """Microseconds since 1970 as a date."""
    return datetime.fromtimestamp(wall_us / 1e6, UTC)


def _named(rule: Rule, kind: type) -> Rule:
    """A verdict that has no code of its own, with the type's name for it."""
    return rule._replace(code=rule.code or kind.__name__) if isinstance(rule, Verdict) else rule


def _checked(taught: Mapping[type, Lesson]) -> dict[type, Lesson]:
    for kind, lesson in taught.items():
        if not isinstance(kind, type):
            raise ConfigurationError(
                "a classifier is taught by exception type, for example {CardDeclined: Verdict(...)}"
            )
        if not (isinstance(lesson, Verdict) or callable(lesson)):
            raise ConfigurationError(
                f"{kind.__name__} needs a Verdict, or a function of the error that returns a Verdict or None"
            )
    return dict(taught)


def _told(lesson: Lesson, problem: Any) -> Verdict | None:
    """What a lesson says. One that fails is no reason to believe the rest of the table: then nothing is known."""
    if isinstance(lesson, Verdict):
        return lesson
    try:
        verdict: Any = lesson(problem)
    except Exception:
        return UNKNOWN._replace(code="lesson_failed")
    return verdict if verdict is None or isinstance(verdict, Verdict) else UNKNOWN._replace(code="lesson_failed")


DEFAULT: Final = Classifier()
"""What is judged by unless another classifier is given."""

RETRIED_STATUSES: Final = frozenset({408, 429, 502, 503, 504})
"""The statuses of `should_retry`. `Classifier` knows more (425, 500, 529), because it also asks about keys."""


def should_retry(error: Any) -> bool:
    """
    Whether an error or a response is worth another try, for callers who know that another try is harmless.

    Infrastructure errors (network, 408, 429, 502, 503, 504) are; business errors and unknown ones are not. It asks
    nothing about keys. Where the outcome matters, use `Classifier.retryable`, which does.
    """
    answer = response_info_of(error)
    if answer is not None and answer.status not in RETRIED_STATUSES:
        return False
    return DEFAULT.judge(error).action is Action.SAME_KEY
