"""
What type checkers see of a declared function: its own parameters, without the operation that a gate fills in.

    @gate.once(key="charge:{order_id}")
    def charge(operation: Operation, order_id: str, amount: Decimal) -> Receipt: ...

    charge("o-17", Decimal("12.50"))    # checked against (order_id: str, amount: Decimal) -> Receipt

Python's types can take a parameter away at the front and nowhere else. So `operation` is the first parameter, or in a
method the one after `self`. Given by keyword only it works as well, and then calls cannot be checked.

Nothing here runs: a declared function is a plain function, with `call`, `key_of` and `contract` as attributes.
"""

from __future__ import annotations

from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, overload

from onceward._core.operation import Operation
from onceward.gate.function_inspection import OperationContract

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")
S = TypeVar("S")
V = TypeVar("V")
O = TypeVar("O")  # noqa: E741 - the outcome
T_co = TypeVar("T_co", covariant=True)
S_contra = TypeVar("S_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)
O_co = TypeVar("O_co", covariant=True)


class HasContract(Protocol):
    """What every form of a declared function has."""

    @property
    def contract(self) -> OperationContract:
        """What callers may rely on: what identifies an operation, and for how long."""


class DeclaredFunction(HasContract, Protocol[P, V_co, O_co]):
    """A function under `@gate.once`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> V_co:
        """Run it once per key; the value."""

    def call(self, *args: P.args, **kwargs: P.kwargs) -> O_co:
        """Run it once per key; the whole outcome."""

    def key_of(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The key of a call with these arguments; nothing is run."""

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> UnboundMethod[P, V_co, O_co]: ...

    @overload
    def __get__(
        self: DeclaredFunction[Concatenate[S, Q], V, O], instance: S, owner: type | None = None
    ) -> BoundMethod[Q, V]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> BoundMethod[..., V_co]: ...


class BoundMethod(HasContract, Protocol[P, V_co]):
    """
    A declared method of an object: `shop.charge`.

    It is called, and no more: its outcome and its key are asked of the class, `Shop.charge.call(shop, ...)`.
    """

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> V_co:
        """Run it once per key; the value."""


class UnboundMethod(HasContract, Protocol[P, V_co, O_co]):
    """
    A declared method as its class has it: `Shop.charge`, called with the object first; or a class method.

    (mypy takes any method for a class method here, and so does not miss the object.)
    """

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> V_co: ...

    @overload
    def __call__(self: UnboundMethod[Concatenate[type[S], Q], V, O], *args: Q.args, **kwargs: Q.kwargs) -> V: ...

    def call(self, *args: P.args, **kwargs: P.kwargs) -> O_co:
        """Run it once per key; the whole outcome."""

    def key_of(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The key of a call with these arguments; nothing is run."""


class UncheckedFunction(HasContract, Protocol[V_co, O_co]):
    """A declared function that takes `operation` by keyword only: its calls cannot be checked."""

    def __call__(self, *args: Any, **kwargs: Any) -> V_co:
        """Run it once per key; the value."""

    def call(self, *args: Any, **kwargs: Any) -> O_co:
        """Run it once per key; the whole outcome."""

    def key_of(self, *args: Any, **kwargs: Any) -> str:
        """The key of a call with these arguments; nothing is run."""

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        """As a method: unchecked, too."""


class DeclaredMethod(HasContract, Protocol[S_contra, P, V_co, O_co]):
    """A method under `@gate.once` that takes the operation after `self`."""

    def __call__(self, this: S_contra, /, *args: P.args, **kwargs: P.kwargs) -> V_co:
        """Run it once per key; the value."""

    def call(self, this: S_contra, /, *args: P.args, **kwargs: P.kwargs) -> O_co:
        """Run it once per key; the whole outcome."""

    def key_of(self, this: S_contra, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """The key of a call with these arguments; nothing is run."""

    @overload
    def __get__(
        self, instance: None, owner: type | None = None
    ) -> UnboundMethod[Concatenate[S_contra, P], V_co, O_co]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> BoundMethod[P, V_co]: ...


# --- how a function may take the operation ---


class TakesOperationFirst(Protocol[P, T_co]):
    """A function: `(operation, ...)`. The parameter's name counts, so that no other first parameter is taken for it."""

    def __call__(self, operation: Operation, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Run it."""


class TakesOperationAfterSelf(Protocol[S_contra, P, T_co]):
    """A method: `(self, operation, ...)`."""

    def __call__(self, this: S_contra, /, operation: Operation, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Run it."""


class TakesOperationByKeyword(Protocol[T_co]):
    """Any function with `*, operation`. Pyright knows it by this; mypy needs the number of parameters, see below."""

    def __call__(self, *args: Any, operation: Operation, **kwargs: Any) -> T_co:
        """Run it."""


class TakesOnlyOperation(Protocol[T_co]):
    """`(*, operation)`."""

    def __call__(self, *, operation: Operation) -> T_co:
        """Run it."""


class TakesOperationAfter1(Protocol[T_co]):
    """`(a, *, operation)`."""

    def __call__(self, a: Any, /, *, operation: Operation) -> T_co:
        """Run it."""


class TakesOperationAfter2(Protocol[T_co]):
    """`(a, b, *, operation)`."""

    def __call__(self, a: Any, b: Any, /, *, operation: Operation) -> T_co:
        """Run it."""


class TakesOperationAfter3(Protocol[T_co]):
    """`(a, b, c, *, operation)`."""

    def __call__(self, a: Any, b: Any, c: Any, /, *, operation: Operation) -> T_co:
        """Run it."""


class TakesOperationAfter4(Protocol[T_co]):
    """`(a, b, c, d, *, operation)`."""

    def __call__(self, a: Any, b: Any, c: Any, d: Any, /, *, operation: Operation) -> T_co:
        """Run it."""


class TakesOperationAfter5(Protocol[T_co]):
    """`(a, b, c, d, e, *, operation)`."""

    def __call__(self, a: Any, b: Any, c: Any, d: Any, e: Any, /, *, operation: Operation) -> T_co:
        """Run it."""


class TakesOperationAfter6(Protocol[T_co]):
    """`(a, b, c, d, e, f, *, operation)`: who has more puts the operation first."""

    def __call__(self, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, /, *, operation: Operation) -> T_co:
        """Run it."""
