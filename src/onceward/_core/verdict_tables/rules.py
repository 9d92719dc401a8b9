"""
What the tables are made of: common verdicts and rules, and safe access to attributes of foreign objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from onceward._core.verdict import Action, Certainty, Kind, Verdict

JudgeFunction: TypeAlias = Callable[[Any], Verdict]
Rule: TypeAlias = Verdict | Callable[[Any, JudgeFunction], Verdict | None]
Table: TypeAlias = dict[str, Rule]

# The verdicts that most failures of a connection come to.
NEVER_LEFT: Final = Verdict(Certainty.NOT_SENT, Kind.NETWORK, Action.SAME_KEY)
"""There was no connection to send it on."""
LOST: Final = Verdict(Certainty.UNKNOWN, Kind.NETWORK, Action.SAME_KEY)
"""It was, or may have been, under way."""
UNTRUSTED: Final = Verdict(Certainty.NOT_SENT, Kind.NETWORK, Action.ESCALATE)
"""The other side could not prove who it is: trying again does not help, and somebody should know."""
MISUSED: Final = Verdict(Certainty.NOT_SENT, Kind.CLIENT, Action.NEVER)
"""The call itself is wrong, and was refused before anything was sent."""
GARBLED: Final = Verdict(Certainty.UNKNOWN, Kind.UPSTREAM, Action.NEVER)
"""A response came that cannot be understood."""
UNKNOWN: Final = Verdict(Certainty.UNKNOWN, Kind.OTHER, Action.NEVER)
"""Nothing is known: the careful answer."""


def read_attribute(thing: Any, *names: str) -> Any:
    """An attribute, and an attribute of that, and so on; None if there is none or reading it raises."""
    for name in names:
        try:
            thing = getattr(thing, name, None)
        except Exception:
            return None
    return thing


def text_of(error: BaseException) -> str:
    """An error's text; empty if it cannot say."""
    try:
        return str(error)
    except Exception:
        return ""


Places: TypeAlias = Mapping[str, tuple[str, ...]]
"""Functions by name, and the modules that have them."""


def frames_passed(error: BaseException, places: Places) -> list[Any]:
    """The frames of these functions that an error passed through, from the outside in."""
    found: list[Any] = []
    try:
        trace: Any = error.__traceback__ if issubclass(type(error), BaseException) else None
    except Exception:
        return found
    while trace is not None:
        frame = trace.tb_frame
        modules = places.get(frame.f_code.co_name)
        if modules is not None and frame.f_globals.get("__name__") in modules:
            found.append(frame)
        trace = trace.tb_next
    return found


def wrapped_error_rule(*paths: str, otherwise: Verdict | None = None) -> Rule:
    """A rule for an error that wraps the one that matters: in an attribute, its arguments, or its cause."""

    def look(error: Any, judge: JudgeFunction) -> Verdict | None:
        for inside in _inside(error, paths):
            verdict = judge(inside)
            if not knows_nothing(verdict):
                return verdict
        return otherwise

    return look


def knows_nothing(verdict: Verdict) -> bool:
    """Whether a verdict says no more than that something went wrong."""
    return verdict[:3] == UNKNOWN[:3]


def connection_error_rule(error: Any, judge: JudgeFunction) -> Verdict | None:
    """A rule for an error that says itself that there was no connection: only its reason is looked up."""
    for inside in _inside(error, ("os_error", "certificate_error", "reason")):
        if judge(inside).action is Action.ESCALATE:
            return UNTRUSTED
    return NEVER_LEFT


def _inside(error: Any, paths: tuple[str, ...]) -> Iterator[BaseException]:
    """What an error wraps, the most outspoken first. The context is last: it may only have been there before."""
    places = [read_attribute(error, path) for path in paths]
    arguments = read_attribute(error, "args")
    if isinstance(arguments, tuple):
        places.extend(arguments)
    places += [error.__cause__, None if error.__suppress_context__ else error.__context__]
    seen: list[BaseException] = [error]
    for place in places:
        if isinstance(place, BaseException) and not any(place is one for one in seen):
            seen.append(place)
            yield place
