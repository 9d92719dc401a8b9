# Made from once_decorator_async.py by `make halves`: change that file, not this one.
"""
What `Gate.once` returns, as type checkers see it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeAlias, TypeVar, overload

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

OnceFunction: TypeAlias = DeclaredFunction[P, T, Outcome[T]]
"""A function under `@gate.once`."""

_Unchecked: TypeAlias = UncheckedFunction[T, Outcome[T]]


class OnceDecorator(Protocol):
    """What `Gate.once` returns: the decorator."""

    @overload
    def __call__(self, fn: TakesOperationFirst[P, T], /) -> OnceFunction[P, T]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, fn: TakesOperationAfterSelf[S, P, T], /) -> DeclaredMethod[S, P, T, Outcome[T]]: ...

    @overload
    def __call__(self, fn: TakesOperationByKeyword[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOnlyOperation[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOperationAfter1[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOperationAfter2[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOperationAfter3[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOperationAfter4[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOperationAfter5[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOperationAfter6[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: Callable[P, T], /) -> OnceFunction[P, T]: ...
