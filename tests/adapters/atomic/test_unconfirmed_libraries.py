"""
Atomic mode on SQLAlchemy and Django: a commit that did not wait for the synchronous standby, by every driver.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from desks import MATRIX, Desk, Kind, in_play
from playing import play

from onceward import StoreUnavailable
from servers.postgres import running

ON_POSTGRES = [kind for kind in MATRIX if kind.database == "postgresql"]


@pytest.mark.fault("a-library-commit-is-not-listened-to")
@pytest.mark.parametrize("kind", in_play(ON_POSTGRES), ids=str)
def test_a_commit_that_waited_for_nobody_is_not_an_answer(kind: Kind, tmp_path: Path) -> None:
    """
    Where the gate commits, its caller hears that the answer may be lost; sent again when the standby is there, it is
    the first answer, and there is one row.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:
            told = pytest.raises(StoreUnavailable, match="a failover may lose it")
            with running().without_its_standby(), told:
                await caller.atomic("k")
        async with desk.caller() as caller:
            await caller.atomic("k")

        assert desk.place.rows() == 1

    play(kind, tmp_path, scenario)
