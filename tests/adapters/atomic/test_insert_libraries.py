"""
insert_once through SQLAlchemy and Django: the same counts on every driver, and the library's own errors.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from desks import KINDS, Caller, Desk, Kind, in_play
from playing import play

from onceward import ConfigurationError, Update, insert_once

KEY = ["worker_id", "idempotency_key"]
LUNCH = {"worker_id": "w-1", "idempotency_key": "k-1", "amount": Decimal("12.50"), "100%: a :colon, 1 %s?": "odd"}


async def insert(caller: Caller, values: dict[str, Any], **options: Any) -> int:
    """Insert through whatever the caller has; an awaiting library runs it by itself."""
    if caller.desk.kind.awaits:
        written: int = await caller.target.run_sync(insert_once, "expenses", values, **options)
        return written
    return insert_once(caller.target, "expenses", values, **options)


@pytest.mark.parametrize("kind", in_play(KINDS), ids=str)
def test_a_row_is_written_once_and_corrected_when_asked(kind: Kind, tmp_path: Path) -> None:
    """
    One, then none; a correction is one. It never commits; only the named constraint is a duplicate.
    """

    async def scenario(desk: Desk) -> None:
        amount = "TEXT" if kind.database == "sqlite" else "numeric(19, 4)"
        desk.place.ask("DROP TABLE IF EXISTS expenses")
        desk.place.ask(
            f"CREATE TABLE expenses (worker_id TEXT, idempotency_key TEXT, amount {amount}, "
            '"100%: a :colon, 1 %s?" TEXT UNIQUE, UNIQUE (worker_id, idempotency_key))'
        )
        async with desk.caller() as caller:
            async with caller.transaction():
                first = [await insert(caller, LUNCH, key=KEY) for _ in range(2)]
                uncommitted = desk.place.rows("expenses")
            corrected = LUNCH | {"amount": Decimal("13.75")}
            async with caller.transaction():
                second = await insert(caller, corrected, key=KEY, on_duplicate=Update(["amount"]))
            with pytest.raises(desk.violation):
                async with caller.transaction():
                    await insert(caller, LUNCH | {"idempotency_key": "k-2"}, key=KEY)
            with pytest.raises(ConfigurationError, match="no unique constraint"):
                async with caller.transaction():
                    await insert(caller, LUNCH, key=["amount"])
        [(kept,)] = desk.place.ask("SELECT amount FROM expenses")
        desk.place.ask("DROP TABLE expenses")

        assert (first, uncommitted, second, Decimal(kept)) == ([1, 0], 0, 1, Decimal("13.75"))

    play(kind, tmp_path, scenario)


@pytest.mark.parametrize("kind", [Kind("AsyncSession", "sqlite+aiosqlite")], ids=str)
def test_an_awaiting_session_is_told_how(kind: Kind, tmp_path: Path) -> None:
    """
    insert_once blocks; SQLAlchemy's run_sync is the way in.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:
            with pytest.raises(ConfigurationError, match="insert_once_async"):
                insert_once(caller.target, "expenses", LUNCH, key=KEY)

    play(kind, tmp_path, scenario)
