"""A shop that is moved: tables with everything in them, keys and plans; and how to ask for it on either side."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from onceward.service.sql import DatabaseName, Keyed, LocalDatabase, Step
from onceward.service.sql.moving import (
    DatabasePlace,
    ImportOptions,
    ImportReport,
    MoveChoices,
    export_database,
    import_database,
)
from onceward.service.sql.postgres import PostgresEngine
from onceward.service.sql.postgres.preparation import ROLE

NAME = DatabaseName("live-acme", "shop")
SCOPE = "live:acme:db:shop"
CUSTOMER = "INSERT INTO customers (name, active, price, picture, ratio, seen) VALUES (?, ?, ?, ?, ?, ?)"
ORDER = "INSERT INTO orders VALUES (:id, :customer, :number)"
TABLES = (
    """CREATE TABLE customers (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name VARCHAR(20) NOT NULL DEFAULT 'nobody', active BOOLEAN DEFAULT 1,
        price REAL, picture BLOB, ratio DOUBLE, seen DATETIME, CHECK (length(name) > 0))""",
    """CREATE TABLE orders (
        id TEXT PRIMARY KEY, customer INTEGER NOT NULL REFERENCES customers (id) ON DELETE CASCADE, number INT UNIQUE,
        CHECK (number >= 0))""",
    "CREATE TABLE notes (word TEXT, many INTEGER)",
    "CREATE TABLE hollow (at_all BLOB)",
    "CREATE INDEX by_customer ON orders (customer) WHERE number > 1",
    "CREATE VIEW counted AS SELECT customer, count(*) AS many FROM orders GROUP BY customer",
)


def place_of(where: Path | str) -> DatabasePlace:
    """The shop, wherever it is."""
    return DatabasePlace(str(where), "acme", "live", "shop")


def file_of(folder: Path) -> Path:
    """The shop's file in a service's folder."""
    return folder / "databases" / NAME.namespace / f"{NAME.database}.db"


def empty_folder(folder: Path) -> Path:
    """A service's folder with nothing in it."""
    (folder / "databases").mkdir(parents=True)
    return folder


def open_shop(folder: Path, **options: Any) -> LocalDatabase:
    """The shop in a folder, as a worker would open it."""
    file_of(folder).parent.mkdir(parents=True, exist_ok=True)
    return LocalDatabase(file_of(folder), **options)


def customer(number: int) -> list[Any]:
    """The parameters of a customer."""
    picture = {"base64": "AN7/"} if number % 3 else None
    return [f"Zoë {number}", bool(number % 2), number + 0.25, picture, number / 7, "2026-11-17 10:00:00"]


def make_shop(folder: Path, customers: int = 7, orders: int = 12) -> None:
    """Customers under keys, orders as steps of plans, and rows that are the same."""
    with open_shop(folder) as shop:
        for sql in TABLES:
            shop.query(sql)
        for number in range(customers):
            shop.query(CUSTOMER, customer(number), identity=Keyed(SCOPE, f"customer-{number}"))
        for number in range(orders):
            values = {"id": f"o-{number}", "customer": number % customers + 1, "number": number}
            shop.query(ORDER, values, identity=Step(SCOPE, f"plan-{number % 3}", f"order-{number}"))
        for _ in range(3):
            shop.query("INSERT INTO notes VALUES ('same', 9007199254740993)")
        shop.query("DELETE FROM customers WHERE id = ?", [customers], identity=Keyed(SCOPE, "leaves"))


def moved(source: Path | str, target: Path | str, file: Path, *, close: bool = True, **choices: Any) -> ImportReport:
    """Export and import."""
    export_database(place_of(source), file, close=close)
    return import_database(file, str(target), ImportOptions(MoveChoices(**choices)))


def tried(act: Callable[[], Any]) -> Any:
    """What something came to: its result, or the error that it raised."""
    try:
        return act()
    except Exception as error:
        return error


def contents(folder: Path) -> dict[str, list[Any]]:
    """The rows of the shop in a folder, in any order, and the records of its keys."""
    with closing(sqlite3.connect(file_of(folder))) as line:
        tables = ["customers", "orders", "notes", "hollow", "counted", "onceward_records"]
        found = {name: sorted(map(repr, line.execute(f"SELECT * FROM {name}"))) for name in tables}
        kinds = "SELECT typeof(active), typeof(price), typeof(picture), typeof(ratio), typeof(seen) FROM customers"
        return {**found, "types": sorted(line.execute(kinds))}


def told(url: str, story: Callable[[PostgresEngine], Awaitable[Any]]) -> Any:
    """Tell a story on an engine."""

    async def run() -> Any:
        async with PostgresEngine(url) as engine:
            return await story(engine)

    return asyncio.run(run())


def asked(url: str, sql: str, params: Any = None, **options: Any) -> Any:
    """One statement to the shop on PostgreSQL."""
    return told(url, lambda engine: engine.query(*NAME, sql, params, **options))


def databases(url: str) -> list[DatabaseName]:
    """The databases that the service would find."""
    return list(told(url, lambda engine: engine.databases(NAME.namespace)))


def as_administrator(url: str, sql: str, *values: Any) -> list[Any]:
    """Ask the server as a superuser."""
    with psycopg.connect(url.replace(f"{ROLE}@", "postgres@"), autocommit=True) as line:
        line.execute(f"SET search_path = {ROLE}")
        cursor = line.execute(sql.encode(), values)
        return cursor.fetchall() if cursor.description else []
