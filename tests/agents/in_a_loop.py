"""Runs a test's coroutine, and brings its failed assertion out of the task groups that it failed in."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


def run(work: Coroutine[object, object, T]) -> T:
    """One event loop for one test."""
    try:
        return asyncio.run(work)
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(error: BaseException) -> BaseException:
    """The error itself: a client's task group makes a group of one of it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
