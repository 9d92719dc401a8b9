"""
How a project tries again: whether errors are distinguished, when it ends, and how long it pauses.

Each library has a function that knows its defaults; loops written by hand are read as they stand.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Final

from onceward._core.backoff import BASE
from onceward.doctor.box import CodePlace
from onceward.doctor.code_facts import RetryFact
from onceward.doctor.retry_loops import loop_fact, mentioned, names_network
from onceward.lint.python.names import PythonFile, keyword_of
from onceward.lint.python.retry_places import RetryPlace, retry_places
from onceward.lint.python.waiting import is_poll

_OURS: Final = frozenset(
    {
        "onceward.Retry",
        "onceward.retry.Retry",
        *(
            f"onceward.http.{module}.{name}"
            for module in ("httpx", "httpx2", "requests")
            for name in ("Transport", "AsyncTransport", "Adapter", "sdk_options")
        ),
    }
)
_POLICIES: Final = {"langgraph.types.RetryPolicy": "LangGraph", "temporalio.common.RetryPolicy": "Temporal"}
_EVERYTHING: Final = frozenset({"Exception", "BaseException"})


def retry_facts(file: PythonFile) -> Iterator[RetryFact]:
    """Everything in a file that tries again."""
    for place in retry_places(file):
        if place.library:
            yield _library(file, place)
        elif isinstance(place.node, ast.For | ast.While | ast.AsyncFor):
            if not is_poll(file, place.node):
                yield loop_fact(file, place.node, place)
        else:
            yield RetryFact(_place(file, place.node), "", limited=True, exponential=False, jitter="none", capped=True)
    for node in file.nodes:
        if isinstance(node, ast.Call):
            name = file.dotted(node.func)
            if name in _OURS:
                yield _ours(file, node)
            elif library := _POLICIES.get(name):
                yield (_langgraph if library == "LangGraph" else _temporal)(file, node)


def _place(file: PythonFile, node: ast.AST) -> CodePlace:
    return CodePlace(file.source.path, getattr(node, "lineno", 1))


def _given(file: PythonFile, policy: ast.Call, *names: str) -> str | None:
    value = keyword_of(policy, *names)
    return None if value is None else file.text(value)


def _ours(file: PythonFile, policy: ast.Call) -> RetryFact:
    """A policy of ours: everything is on unless it says otherwise."""
    jitter = keyword_of(policy, "jitter")
    kind = jitter.value if isinstance(jitter, ast.Constant) else "full" if jitter is None else None
    return RetryFact(
        _place(file, policy),
        "onceward",
        classified=True,
        network=True,
        limited=True,
        exponential=True,
        jitter=kind if kind in ("full", "none", None) else "some",
        capped=True,
        base=_given(file, policy, "base") or f"{BASE:g} s by default",
    )


def _langgraph(file: PythonFile, policy: ast.Call) -> RetryFact:
    jitter = keyword_of(policy, "jitter")
    return RetryFact(
        _place(file, policy),
        "LangGraph",
        classified=True,  # Its default leaves out ValueError, TypeError and 4xx.
        network=True,
        limited=True,
        exponential=True,
        jitter="none" if isinstance(jitter, ast.Constant) and jitter.value is False else "full",
        capped=True,
        base=_given(file, policy, "initial_interval") or "0.5 s by default",
    )


def _temporal(file: PythonFile, policy: ast.Call) -> RetryFact:
    return RetryFact(
        _place(file, policy),
        "Temporal",
        classified=_given(file, policy, "non_retryable_error_types") is not None,
        network=True,
        limited=len(policy.args) > 3 or _given(file, policy, "maximum_attempts") is not None,
        exponential=True,
        jitter=None,
        capped=True,  # A hundred times the first pause, by default.
        base=_given(file, policy, "initial_interval")
        or (file.text(policy.args[0]) if policy.args else "1 s by default"),
    )


def _library(file: PythonFile, place: RetryPlace) -> RetryFact:
    read = _LIBRARIES.get(place.library)
    if place.policy is None or read is None:
        return RetryFact(_place(file, place.node), place.library, mentions=mentioned(file, place.node))
    return read(file, place, place.policy)


def _tenacity(file: PythonFile, place: RetryPlace, policy: ast.Call) -> RetryFact:
    wait, test, stop = (keyword_of(policy, name) for name in ("wait", "retry", "stop"))
    words = mentioned(file, wait) if wait is not None else frozenset()
    made = [file.dotted(one.func).removeprefix("tenacity.") for one in _calls(file, wait)]
    exponential = any("exponential" in one for one in made)
    random = "wait_random_exponential" in made
    some = any("random" in one or "jitter" in one for one in made)
    asked = mentioned(file, test) if test is not None else frozenset()
    return RetryFact(
        _place(file, policy),
        "tenacity",
        classified=test is not None and not asked & _EVERYTHING,
        network=test is None or names_network(asked) or None,
        limited=stop is not None,
        exponential=exponential,
        jitter="full" if random else "some" if some else "none",
        capped=not exponential or "max" in {one.arg for call in _calls(file, wait) for one in call.keywords},
        base=_given_in(file, _calls(file, wait), "multiplier", "min", "initial") or (made[0] if made else None),
        mentions=words | asked,
    )


def _stamina(file: PythonFile, place: RetryPlace, policy: ast.Call) -> RetryFact:
    on = keyword_of(policy, "on")
    asked = mentioned(file, on) if on is not None else frozenset()
    jitter = keyword_of(policy, "wait_jitter")
    off = isinstance(jitter, ast.Constant) and not jitter.value
    return RetryFact(
        _place(file, policy),
        "stamina",
        classified=on is not None and not asked & _EVERYTHING,
        network=names_network(asked) or None,
        limited=True,
        exponential=True,
        jitter="none" if off else "some",
        capped=True,
        base=_given(file, policy, "wait_initial") or "0.1 s by default",
        mentions=asked,
    )


def _backoff(file: PythonFile, place: RetryPlace, policy: ast.Call) -> RetryFact:
    wait = policy.args[0] if policy.args else keyword_of(policy, "wait_gen")
    on = policy.args[1] if len(policy.args) > 1 else keyword_of(policy, "exception", "predicate")
    asked = mentioned(file, on) if on is not None else frozenset()
    jitter = keyword_of(policy, "jitter")
    off = isinstance(jitter, ast.Constant) and jitter.value is None
    exponential = wait is not None and file.dotted(wait).endswith("expo")
    return RetryFact(
        _place(file, policy),
        "backoff",
        classified=not asked & _EVERYTHING or keyword_of(policy, "giveup") is not None,
        network=names_network(asked) or None,
        limited=keyword_of(policy, "max_tries", "max_time") is not None,
        exponential=exponential,
        jitter="none" if off else "full",
        capped=not exponential or keyword_of(policy, "max_value") is not None,
        base=_given(file, policy, "factor", "base", "interval") or "1 s by default",
        mentions=asked,
    )


def _celery(file: PythonFile, place: RetryPlace, policy: ast.Call) -> RetryFact:
    on, jitter = keyword_of(policy, "autoretry_for"), keyword_of(policy, "retry_jitter")
    asked = mentioned(file, on) if on is not None else frozenset()
    grows = keyword_of(policy, "retry_backoff")
    exponential = grows is not None and not (isinstance(grows, ast.Constant) and not grows.value)
    off = isinstance(jitter, ast.Constant) and not jitter.value
    return RetryFact(
        _place(file, policy),
        "Celery",
        classified=on is not None and not asked & _EVERYTHING,
        network=names_network(asked) or None,
        limited=True,  # max_retries is 3 by default.
        exponential=exponential,
        jitter="none" if off or not exponential else "full",
        capped=True,
        base=_given(file, policy, "retry_backoff", "default_retry_delay") or "180 s by default",
        mentions=asked,
    )


_LIBRARIES: Final[dict[str, Callable[[PythonFile, RetryPlace, ast.Call], RetryFact]]] = {
    "tenacity": _tenacity,
    "stamina": _stamina,
    "backoff": _backoff,
    "Celery": _celery,
}


def _calls(file: PythonFile, node: ast.expr | None) -> list[ast.Call]:
    """The calls in an expression, or in what is assigned to its name."""
    values = [] if node is None else [node, *file.values_of(node)]
    return [one for value in values for one in ast.walk(value) if isinstance(one, ast.Call)]


def _given_in(file: PythonFile, calls: list[ast.Call], *names: str) -> str | None:
    return next((found for call in calls if (found := _given(file, call, *names)) is not None), None)
