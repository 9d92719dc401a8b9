"""
Which tests look at a clock, wait, or have threads: found by reading what they run, not by what somebody remembered.

Such a test gets the mark `timing`, and `make test-loaded` runs it beside a load. It is looked for in the test's own
code, in its fixtures, and in every helper under `tests` that these name: the modules `time` and `threading`, pools of
threads, the waits of asyncio, and a time-out that is written down as text (`onceward_lock_timeout=0.3`).
"""

from __future__ import annotations

import asyncio
import functools
import re
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
SERVERS = HERE / "servers"
"""What waits here waits for a server to start, with patience."""
CLOCKS = frozenset({"monotonic", "monotonic_ns", "perf_counter", "process_time", "sleep", "time", "time_ns"})
WAITS = frozenset({"timeout", "wait_for"})
WRITTEN = re.compile(r"(?:busy|timeout)=\d")
TOLD_BY_NAME = {
    *(getattr(time, name) for name in CLOCKS),
    *(one for one in vars(threading).values() if isinstance(one, type) and one.__module__ == "threading"),
    ThreadPoolExecutor,
}


def is_timed(item: pytest.Item) -> bool:
    """Whether a test, its fixtures or its helpers look at a clock, wait, or have threads."""
    function = getattr(item, "function", None)
    if function is None:
        return False
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    return reaches_a_clock(function, *(one.func for ones in fixtures for one in ones))


@functools.cache
def reaches_a_clock(*begin: Any) -> bool:
    """Whether one of these functions, or a helper that they name, does."""
    seen: set[FunctionType] = set()
    classes: set[type] = set()
    # Of a class, what is always called, and the methods that somebody on the way names.
    names = {"__init__", "__enter__", "__exit__"}
    ahead = [one for thing in begin for one in _functions(thing)]
    while ahead or (ahead := [one for one in _methods(classes, names) if one not in seen]):
        function = ahead.pop()
        if function in seen:
            continue
        seen.add(function)
        for code in _codes(function.__code__):
            if _has_a_written_wait(code):
                return True
            names |= set(code.co_names)
            for name in code.co_names:
                value = function.__globals__.get(name)
                if _is_a_clock(value, code):
                    return True
                if isinstance(value, type) and _is_ours(value):
                    classes.add(value)
                ahead += _functions(value)
    return False


def _methods(classes: set[type], names: set[str]) -> list[FunctionType]:
    return [one for kind in classes for name in names for one in _functions(getattr(kind, name, None))]


def _functions(thing: Any) -> list[FunctionType]:
    while hasattr(thing, "__wrapped__"):
        thing = thing.__wrapped__
    function = getattr(thing, "__func__", thing)
    return [function] if isinstance(function, FunctionType) and _is_ours(function) else []


@functools.cache
def _is_under_tests(module: str) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and Path(file).is_relative_to(HERE) and not Path(file).is_relative_to(SERVERS)


def _is_ours(thing: Any) -> bool:
    return _is_under_tests(getattr(thing, "__module__", "") or "")


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _has_a_written_wait(code: CodeType) -> bool:
    return any(isinstance(one, str) and WRITTEN.search(one) for one in code.co_consts)


def _is_a_clock(value: Any, code: CodeType) -> bool:
    if value is threading:
        return True
    if value is time:
        return not CLOCKS.isdisjoint(code.co_names)
    if value is asyncio:
        # `sleep(0)` waits for nothing: it lets others go first.
        slept = "sleep" in code.co_names and any(
            isinstance(one, float) or (type(one) is int and one) for one in code.co_consts
        )
        return slept or not WAITS.isdisjoint(code.co_names)
    try:
        return value in TOLD_BY_NAME
    except TypeError:
        return False
