"""The SQL engine as a type checker sees it. Checked, never run."""

from __future__ import annotations

from typing import assert_type

from onceward.service.sql import (
    Keyed,
    LocalDatabase,
    SqlBatchResult,
    SqlEngine,
    SqliteEngine,
    SqlResult,
    SqlStatement,
    Step,
    TableInfo,
)


def an_engine_is_one_of_several() -> SqlEngine:
    return SqliteEngine("databases", retain=3600, after_expiry="run")


async def answers(engine: SqlEngine) -> None:
    one = await engine.query("acme", "shop", "SELECT :a", {"a": 1}, identity=Keyed("live:acme", "k"))
    many = await engine.batch(
        "acme", "shop", [SqlStatement("SELECT ?", [1]), "SELECT 2"], identity=Step("live:acme", "p", "s")
    )
    assert_type(one, SqlResult)
    assert_type(many, SqlBatchResult)
    assert_type(await engine.tables("acme", "shop"), list[TableInfo])


def locally(database: LocalDatabase) -> None:
    assert_type(database.query("SELECT 1").rows_written, int)
