"""How functions are called, and what `@gate.once` makes of them."""

from __future__ import annotations

from functools import partial
from inspect import signature
from typing import Any

import pytest

from onceward import ConfigurationError, Gate, Operation
from onceward.errors import KeyInvalid
from onceward.gate.function_inspection import inspect_function


class TestHowAFunctionIsCalled:
    """It takes nothing, or the operation. What has a default of its own keeps it."""

    def test_an_argument_with_a_default_keeps_its_default(self, world: Any) -> None:
        """
        `lambda order=order: ...` is how Python binds a loop's variable; the operation is not an order.
        """
        gate = world.gate()

        assert [gate.run(f"charge:{order}", lambda order=order: order) for order in (1, 2)] == [1, 2]

    def test_several_arguments_with_defaults_are_fine(self, world: Any) -> None:
        """
        There is nothing left to be given.
        """
        assert world.gate().run("charge:1", lambda order=1, amount=2: order + amount) == 3

    def test_a_keyword_only_operation_is_given(self) -> None:
        """
        Spelt as in a declared function.
        """

        def pay(*, operation: Operation) -> int:
            return operation.attempt

        assert Gate("memory://", scope="acme").run("charge:1", pay) == 1

    @pytest.mark.parametrize(
        "fn",
        [
            lambda operation: operation.attempt,
            lambda anything: anything.attempt,
            partial(lambda more, operation: operation.attempt, 1),
            lambda: 1,
            partial(int, 1),
        ],
        ids=["operation", "any-name", "partial", "nothing", "builtin"],
    )
    def test_the_operation_is_given_to_whoever_takes_it(self, fn: Any) -> None:
        """
        By any name, through partial, and not to who takes nothing.
        """
        assert Gate("memory://", scope="acme").run("charge:1", fn) == 1

    @pytest.mark.fault("a-partial-is-taken-for-another")
    def test_partials_of_one_function_are_told_apart(self) -> None:
        """
        By what they leave open, whichever came first: nothing, the operation, or too much.
        """

        def pay(amount: int, currency: str, operation: Operation | None = None) -> str:
            return f"{amount} {currency} {operation is not None}"

        several = [
            partial(pay, 5, "EUR"),
            partial(pay, 5, "EUR", None),
            partial(pay, 5, currency="EUR"),
            partial(pay, 5, "EUR", operation=None),
        ]

        assert [inspect_function(one).takes_operation for one in several] == [True, False, True, True]
        assert Gate("memory://", scope="acme").run("charge:1", several[1]) == "5 EUR False"
        with pytest.raises(ConfigurationError, match="several arguments"):
            inspect_function(partial(pay))

    def test_a_method_is_fine(self) -> None:
        """
        Its own object is not counted.
        """

        class Payments:
            def pay(self, operation: Operation) -> int:
                return operation.attempt

            def plain(self) -> int:
                return 1

        gate = Gate("memory://", scope="acme")

        assert [gate.run("charge:1", Payments().pay), gate.run("charge:2", Payments().plain)] == [1, 1]


class TestDeclaredFunctions:
    """`@gate.once`: the key from the call, the arguments as the request."""

    def test_arguments_may_be_given_by_place_or_by_name(self, world: Any) -> None:
        """
        It is the same call, defaults included.
        """
        calls = []

        @world.gate().once(key="charge:{order}")
        def pay(order: str, amount: int = 5) -> int:
            calls.append(order)
            return amount

        assert [pay("o-1"), pay("o-1", 5), pay(order="o-1"), pay(amount=5, order="o-1")] == [5] * 4
        assert calls == ["o-1"]

    def test_keyword_only_arguments_keep_their_defaults(self, world: Any) -> None:
        """
        Called with nothing, the defaults are the request and make the key.
        """

        @world.gate().once(key="report:{region}")
        def report(*, region: str = "eu") -> str:
            return region

        assert [report(), report(region="eu"), report(region="us")] == ["eu", "eu", "us"]

    def test_an_excluded_argument_is_not_part_of_the_request(self, world: Any) -> None:
        """
        A trace id may differ on every attempt.
        """
        seen = []

        @world.gate().once(key="charge:{order}", exclude=("trace",))
        def pay(order: str, trace: str) -> None:
            seen.append(trace)

        pay("o-1", "t-1")
        pay("o-1", "t-2")

        assert seen == ["t-1"]

    def test_it_is_given_the_operation_and_hides_that(self, world: Any) -> None:
        """
        The caller does not pass it; `.call` gives the whole outcome.
        """

        @world.gate().once(key="charge:{order}")
        def pay(order: str, *, operation: Operation) -> list[Any]:
            return [order, operation.key, operation.scope, operation.attempt]

        assert pay("o-1") == ["o-1", "charge:o-1", "acme", 1]
        assert pay.call("o-1").replayed

    @pytest.mark.fault("an-operation-at-the-front-takes-an-arguments-place")
    def test_the_operation_may_stand_at_the_front(self, world: Any) -> None:
        """
        First, or after `self`: where type checkers can take it away. However the other arguments are given.
        """
        gate = world.gate()

        @gate.once(key="charge:{order}")
        def pay(operation: Operation, order: str, amount: int = 1) -> list[Any]:
            return [order, amount, operation.key]

        class Payments:
            @gate.once(key="pay:{order}")
            def pay(self, operation: Operation, order: str, amount: int = 1) -> list[Any]:
                return [order, amount, operation.key]

        def heard(call: Any) -> Any:
            try:
                return call()
            except TypeError as error:
                return error

        assert heard(lambda: pay("o-1", 2)) == ["o-1", 2, "charge:o-1"]
        assert heard(lambda: pay(order="o-2")) == ["o-2", 1, "charge:o-2"]
        assert heard(lambda: Payments().pay("o-1", 2)) == ["o-1", 2, "pay:o-1"]
        assert heard(lambda: Payments().pay(order="o-2")) == ["o-2", 1, "pay:o-2"]

    def test_the_operation_at_the_front_is_not_in_the_signature(self) -> None:
        """
        Frameworks that look see what a caller may pass; `key_of` takes the same.
        """
        with Gate("memory://", scope="test:shop") as gate:

            @gate.once(key="charge:{order}")
            def pay(operation: Operation, order: str, amount: int = 1) -> str:
                return order

        assert (pay.key_of("o-3"), list(signature(pay).parameters)) == ("charge:o-3", ["order", "amount"])

    def test_a_method_is_keyed_by_its_arguments(self, world: Any) -> None:
        """
        The object itself is not part of the request: it would differ in the next process.
        """
        gate, calls = world.gate(), []

        class Payments:
            @gate.once(key="charge:{order}")
            def pay(self, order: str) -> str:
                calls.append(order)
                return order

        assert [Payments().pay("o-1"), Payments().pay("o-1")] == ["o-1", "o-1"]
        assert calls == ["o-1"]

    @pytest.mark.parametrize("order", ["", None, 1.5, True, object()], ids=lambda order: type(order).__name__)
    def test_a_value_that_cannot_be_part_of_a_key_is_refused_before_anything_runs(self, world: Any, order: Any) -> None:
        """
        Empty, nothing, a float, a flag, an object.
        """
        gate, calls = world.gate(), []

        @gate.once(key="charge:{order}")
        def pay(order: Any) -> None:
            calls.append(order)

        with pytest.raises(KeyInvalid):
            pay(order)

        assert (calls, gate.rows()) == ([], [])

    def test_a_call_that_does_not_fit_the_function_is_a_type_error(self, world: Any) -> None:
        """
        As it would be without the gate; nothing is claimed.
        """
        gate = world.gate()
        pay = gate.once(key="charge:{order}")(lambda order: order)

        with pytest.raises(TypeError):
            pay("o-1", "too many")

        assert gate.rows() == []
