# Made from declare_async.py by `make halves`: change that file, not this one.
"""
What `Gate.once` returns, as type checkers see it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeAlias, TypeVar, overload

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

OnceFunction: TypeAlias = DeclaredFunction[P, T, Outcome[T]]
"""A function under `@gate.once`."""

_Unchecked: TypeAlias = UncheckedFunction[T, Outcome[T]]


class Declare(Protocol):
    """What `Gate.once` returns: the decorator."""

    @overload
    def __call__(self, fn: TakesItFirst[P, T], /) -> OnceFunction[P, T]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, fn: TakesItAfterSelf[S, P, T], /) -> DeclaredMethod[S, P, T, Outcome[T]]: ...

    @overload
    def __call__(self, fn: TakesItByKeyword[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: TakesOnlyIt[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: TakesItAfter1[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: TakesItAfter2[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: TakesItAfter3[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: TakesItAfter4[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: TakesItAfter5[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: TakesItAfter6[T], /) -> _Unchecked[T]: ...

    @overload
    def __call__(self, fn: Callable[P, T], /) -> OnceFunction[P, T]: ...
