"""
A function settles inside its own transaction: with every library, every driver and both colours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from counters import EVERY, SOME, by_another, call, charge, let_lapse, play, renew, settle
from desks import CREATED, Caller, Desk, Kind

from onceward import ConfigurationError, InDoubt, Operation, OwnershipLost
from onceward.errors import NotSettled

every_kind = pytest.mark.parametrize("kind", EVERY, ids=str)
some_kinds = pytest.mark.parametrize("kind", SOME, ids=str)


@every_kind
def test_record_and_rows_are_committed_together(kind: Kind, tmp_path: Path) -> None:
    """
    One row, one settled record; what was settled is the answer, whatever the function returned, and it replays.
    """

    async def scenario(desk: Desk) -> None:
        first = await call(desk, "order:1", charge)
        again = await call(desk, "order:1", charge)

        assert (first.value, first.replayed) == (CREATED, False)
        assert (again.value, again.replayed) == (CREATED, True)
        assert (desk.place.rows(), desk.place.states()) == (1, {"order:1": "settled"})

    play(kind, tmp_path, scenario)


@every_kind
def test_what_is_rolled_back_is_neither_settled_nor_lost(kind: Kind, tmp_path: Path) -> None:
    """
    Raised before the commit: no row, the key is free, and the next attempt is the first that counts.
    """

    async def fails(caller: Caller, operation: Operation) -> None:
        async with caller.transaction():
            await caller.charge()
            await settle(caller, operation)
            raise LookupError("no such customer")

    async def scenario(desk: Desk) -> None:
        with pytest.raises(LookupError):
            await call(desk, "order:1", fails)

        assert (desk.place.rows(), desk.place.states()) == (0, {"order:1": "released"})
        assert (await call(desk, "order:1", charge)).value == CREATED
        assert (desk.place.rows(), desk.place.states()) == (1, {"order:1": "settled"})

    play(kind, tmp_path, scenario)


@some_kinds
def test_an_error_after_the_commit_changes_nothing(kind: Kind, tmp_path: Path) -> None:
    """
    The record says that it stands: the error is raised with a note, and the retry is given the answer.
    """

    async def fails(caller: Caller, operation: Operation) -> None:
        await charge(caller, operation)
        raise LookupError("the mail could not be sent")

    async def scenario(desk: Desk) -> None:
        with pytest.raises(LookupError) as raised:
            await call(desk, "order:1", fails)
        again = await call(desk, "order:1", fails)

        assert "was committed" in raised.value.__notes__[0]
        assert (again.value, again.replayed) == (CREATED, True)
        assert (desk.place.rows(), desk.place.states()) == (1, {"order:1": "settled"})

    play(kind, tmp_path, scenario)


@some_kinds
def test_returning_without_having_settled_is_in_doubt(kind: Kind, tmp_path: Path) -> None:
    """
    Rows may stand without their record, so it does not run again until somebody has looked.
    """

    async def forgets(caller: Caller, operation: Operation) -> None:
        async with caller.transaction():
            await caller.charge()

    async def scenario(desk: Desk) -> None:
        for work in (forgets, charge):
            with pytest.raises(InDoubt, match="returned without settling"):
                await call(desk, "order:1", work)

        assert (desk.place.rows(), desk.place.states()) == (1, {"order:1": "in_doubt"})

    play(kind, tmp_path, scenario)


@some_kinds
def test_returning_after_a_rollback_is_not_a_success(kind: Kind, tmp_path: Path) -> None:
    """
    Settled and undone: NotSettled, no row, and the same key runs again.
    """

    async def undoes(caller: Caller, operation: Operation) -> str:
        try:
            async with caller.transaction():
                await caller.charge()
                await settle(caller, operation)
                raise LookupError
        except LookupError:
            return "all is well"

    async def scenario(desk: Desk) -> None:
        with pytest.raises(NotSettled, match="nothing happened"):
            await call(desk, "order:1", undoes)

        assert (desk.place.rows(), desk.place.states()) == (0, {"order:1": "released"})
        assert (await call(desk, "order:1", charge)).value == CREATED

    play(kind, tmp_path, scenario)


@every_kind
def test_who_was_overtaken_cannot_settle(kind: Kind, tmp_path: Path) -> None:
    """
    Its lease ran out and another caller has settled: OwnershipLost with the winner's answer, and not a row more.
    """

    async def oversleeps(caller: Caller, operation: Operation) -> None:
        let_lapse(caller.desk)
        await by_another(caller.desk, "order:1")
        async with caller.transaction():
            await caller.charge("99")
            await settle(caller, operation, "the loser's")

    async def scenario(desk: Desk) -> None:
        with pytest.raises(OwnershipLost) as lost:
            await call(desk, "order:1", oversleeps)

        assert lost.value.outcome.value == CREATED
        assert (desk.place.rows(), desk.place.states()) == (1, {"order:1": "settled"})

    play(kind, tmp_path, scenario)


@some_kinds
def test_a_renewal_of_its_own_is_no_competitor(kind: Kind, tmp_path: Path) -> None:
    """
    The record has moved under the same token: the settle lands all the same.
    """

    async def is_renewed(caller: Caller, operation: Operation) -> None:
        await renew(caller.desk, operation)
        await charge(caller, operation)

    async def scenario(desk: Desk) -> None:
        assert (await call(desk, "order:1", is_renewed)).value == CREATED
        assert (desk.place.rows(), desk.place.states()) == (1, {"order:1": "settled"})

    play(kind, tmp_path, scenario)


@some_kinds
def test_a_transaction_may_be_tried_again(kind: Kind, tmp_path: Path) -> None:
    """
    Undone, it takes its settle along; the second one settles with another answer, which stands.
    """

    async def twice(caller: Caller, operation: Operation) -> None:
        try:
            async with caller.transaction():
                await caller.charge("1")
                await settle(caller, operation, "first")
                raise LookupError
        except LookupError:
            async with caller.transaction():
                await caller.charge("2")
                await settle(caller, operation, "second")

    async def scenario(desk: Desk) -> None:
        assert (await call(desk, "order:1", twice)).value == "second"
        assert desk.place.ask("SELECT amount FROM charges") == [("2",)]

    play(kind, tmp_path, scenario)


@some_kinds
def test_settling_without_a_transaction_is_refused_and_in_doubt(kind: Kind, tmp_path: Path) -> None:
    """
    After the commit it is too late: the rows stand alone, and nobody may take that for nothing.
    """

    async def late(caller: Caller, operation: Operation) -> None:
        async with caller.transaction():
            await caller.charge()
        await settle(caller, operation)

    async def scenario(desk: Desk) -> None:
        with pytest.raises(ConfigurationError, match="no transaction open"):
            await call(desk, "order:1", late)

        assert (desk.place.rows(), desk.place.states()) == (1, {"order:1": "in_doubt"})

    play(kind, tmp_path, scenario)


@some_kinds
def test_settling_twice_in_one_transaction(kind: Kind, tmp_path: Path) -> None:
    """
    The same answer again is nothing new; another one is refused, and everything is undone.
    """

    async def again(caller: Caller, operation: Operation, second: Any) -> None:
        async with caller.transaction():
            await caller.charge()
            await settle(caller, operation)
            await settle(caller, operation, second)

    async def scenario(desk: Desk) -> None:
        assert (await call(desk, "order:1", lambda *both: again(*both, CREATED))).value == CREATED
        with pytest.raises(Exception, match="with a different result"):
            await call(desk, "order:2", lambda *both: again(*both, "something else"))

        assert (desk.place.rows(), desk.place.states()) == (1, {"order:1": "settled", "order:2": "released"})

    play(kind, tmp_path, scenario)
