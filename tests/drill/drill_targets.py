"""Functions to be drilled: some survive retries, some do not, and some behave badly. Written into a test's folder."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

SHOP = """
import asyncio, os, sqlite3, sys, time
from onceward import AsyncGate, Gate

gate = Gate("sqlite:///gate.db", scope="test:shop")
async_gate = AsyncGate("sqlite:///gate.db", scope="test:shop")


def book(order):
    database = sqlite3.connect("shop.db", timeout=30)
    with database:
        database.execute("INSERT INTO orders VALUES (?)", (order,))
    database.close()


def plain(order):
    status = "begun"
    book(order)
    status = "done"
    return status


async def awaiting(order):
    await asyncio.sleep(0)
    book(order)


def checked(order):
    database = sqlite3.connect("shop.db", timeout=30)
    database.execute("BEGIN IMMEDIATE")
    if not database.execute("SELECT 1 FROM orders WHERE name = ?", (order,)).fetchone():
        database.execute("INSERT INTO orders VALUES (?)", (order,))
    database.commit()
    database.close()


@gate.once(key="order:{order}")
def blind(order: str) -> str:
    book(order)
    return order


@async_gate.once(key="awaited:{order}")
async def blind_and_awaited(order: str) -> str:
    book(order)
    return order


@gate.once(key="wrong:{order}", guarantee="repeatable")
def not_repeatable(order: str) -> str:
    book(order)
    return order


def late_live(order):
    Gate("sqlite:///gate.db", scope="live:shop").run(order, lambda: book(order))


def generates(order):
    yield book(order)


def hangs(order):
    time.sleep(600)


def leaves(order):
    os._exit(3)


def exits(order):
    sys.exit(2)


def raises(order):
    raise ValueError("no such order")


def does_nothing(order):
    return order


def prints(order):
    book(order)
    for _ in range(60):
        sys.stdout.write("x" * 1_000_000)


def forks(order):
    book(order)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open("daemons.txt", "a") as file:
                file.write(f"{os.getpid()}\\n")
            time.sleep(600)
        os._exit(0)


class Till:
    def charge(self, order):
        book(order)

    @staticmethod
    def charge_by_itself(order):
        book(order)


till = Till()
"""
OTHERS = {
    "broken.py": "1 / 0\n",
    "leaving.py": "import os\nprint('farewell')\nos._exit(4)\n",
    "lively.py": "from onceward import Gate\ngate = Gate('memory://', scope='live:shop')\ndef charge(order): ...\n",
    "unclosed.py": "def charge(\n",
}


def write_shop(folder: Path) -> None:
    """The modules, and a database with an empty table."""
    for name, text in {"drilled_shop.py": SHOP, **OTHERS}.items():
        (folder / name).write_text(text)
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        database.execute("CREATE TABLE orders (name TEXT)")


def line_of(text: str) -> int:
    """The number of the line of the shop that has this text."""
    return next(number for number, line in enumerate(SHOP.splitlines(), 1) if text in line)
