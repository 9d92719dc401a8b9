# blocking half: once_decorator.py
"""
What `AsyncGate.once` returns, as type checkers see it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from onceward._core.operation import Outcome
from onceward.gate.function_protocols import (
    DeclaredFunction,
    DeclaredMethod,
    TakesOnlyOperation,
    TakesOperationAfter1,
    TakesOperationAfter2,
    TakesOperationAfter3,
    TakesOperationAfter4,
    TakesOperationAfter5,
    TakesOperationAfter6,
    TakesOperationAfterSelf,
    TakesOperationByKeyword,
    TakesOperationFirst,
    UncheckedFunction,
)

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")

AsyncOnceFunction: TypeAlias = DeclaredFunction[P, Coroutine[Any, Any, T], Coroutine[Any, Any, Outcome[T]]]
"""A function under `@gate.once`."""

_AsyncUnchecked: TypeAlias = UncheckedFunction[Coroutine[Any, Any, T], Coroutine[Any, Any, Outcome[T]]]


class AsyncOnceDecorator(Protocol):
    """What `AsyncGate.once` returns: the decorator."""

    @overload
    def __call__(self, fn: TakesOperationFirst[P, Awaitable[T]], /) -> AsyncOnceFunction[P, T]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(
        self, fn: TakesOperationAfterSelf[S, P, Awaitable[T]], /
    ) -> DeclaredMethod[S, P, Coroutine[Any, Any, T], Coroutine[Any, Any, Outcome[T]]]: ...

    @overload
    def __call__(self, fn: TakesOperationByKeyword[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOnlyOperation[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOperationAfter1[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOperationAfter2[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOperationAfter3[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOperationAfter4[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOperationAfter5[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOperationAfter6[Awaitable[T]], /) -> _AsyncUnchecked[T]: ...

    @overload
    def __call__(self, fn: Callable[P, Awaitable[T]], /) -> AsyncOnceFunction[P, T]: ...
