# blocking half: declare.py
"""
What `AsyncGate.once` returns, as type checkers see it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from onceward._core.operation import Outcome
from onceward.gate.signatures import (
    DeclaredFunction,
    DeclaredMethod,
    TakesItAfter1,
    TakesItAfter2,
    TakesItAfter3,
    TakesItAfter4,
    TakesItAfter5,
    TakesItAfter6,
    TakesItAfterSelf,
    TakesItByKeyword,
    TakesItFirst,
    TakesOnlyIt,
    UncheckedFunction,
)

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")

AsyncOnceFunction: TypeAlias = DeclaredFunction[P, Coroutine[Any, Any, T], Coroutine[Any, Any, Outcome[T]]]
"""A function under `@gate.once`."""

_AsyncUnchecked: TypeAlias = UncheckedFunction[Coroutine[Any, Any, T], Coroutine[Any, Any, Outcome[T]]]


class AsyncDeclare(Protocol):
    """What `AsyncGate.once` returns: the decorator."""

    @overload
    def __call__(self, fn: TakesItFirst[P, Awaitable[T]], /) -> AsyncOnceFunction[P, T]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(
        self, fn: TakesItAfterSelf[S, P, Awaitable[T]], /
    ) -> DeclaredMethod[S, P, Coroutine[Any, Any, T], Coroutine[Any, Any, Outcome[T]]]: ...

    @overload
    def __call__(self, fn: TakesItByKeyword[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOnlyIt[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: TakesItAfter1[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: TakesItAfter2[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: TakesItAfter3[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: TakesItAfter4[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: TakesItAfter5[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: TakesItAfter6[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: Callable[P, Awaitable[T]], /) -> AsyncOnceFunction[P, T]: ...
