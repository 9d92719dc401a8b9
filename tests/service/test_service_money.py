"""Prepaid money over a real socket: what ran is paid for once, whoever else was there and whatever was killed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from service_support import INSERT, TABLE, Heard, Served

from onceward.service.access import Access
from onceward.service.settings import Settings, store_url_of
from servers import ending, postgres

PRICE = 1_000
PAID_IN = 10_000 * PRICE
PEPPER = "a pepper of more than thirty-two characters"
CROWD = 40
KEYS = 50


class Shop:
    """A service whose tenants pay, and what its operator sees."""

    def __init__(self, kind: str, folder: Path, *flags: str, program: tuple[str, ...] = ("-m", "onceward")) -> None:
        self.url = store_url_of(Settings(folder=str(folder)))
        if kind == "postgres":
            postgres.running().execute("DROP DATABASE IF EXISTS money WITH (FORCE)")
            postgres.running().execute("CREATE DATABASE money")
            self.url = postgres.running().url("money")
        self.flags = ("--store", self.url, "--price", str(PRICE), "--flood-burst", "100000", *flags)
        self.folder = folder
        self.served = self.start(*program)

    def start(self, *program: str) -> Served:
        """A service on this folder and store."""
        return Served.started(self.folder, *self.flags, program=program or ("-m", "onceward"), ONCEWARD_PEPPER=PEPPER)

    def access(self) -> Access:
        """What operators use."""
        return Access.open(self.url)

    def tenant(self, name: str, units: int = PAID_IN) -> tuple[str, str]:
        """A tenant that has paid, with a database and a table: its path, and a token."""
        with self.access() as access:
            access.create_tenant(name, prepaid=True)
            access.top_up(name, units + PRICE, reference="first")
            made = access.create_token(name, environment="test", role="admin")
        token = "" if made is None else made.issued.text
        path = f"/v1/db/{name}/shop"
        self.served.call("PUT", path, token=token)
        assert self.served.query(path, TABLE, token=token).status == 200
        assert self.balance(name) == (units, 0)
        return path, token

    def reader(self, name: str) -> str:
        """A token that may only read."""
        with self.access() as access:
            made = access.create_token(name, environment="test", role="read")
        return "" if made is None else made.issued.text

    def balance(self, name: str) -> tuple[int, int]:
        """What is left, and what is reserved."""
        with self.access() as access:
            found = access.tenant(name)
        return (0, 0) if found is None else (found.balance or 0, found.reserved)

    def stop(self) -> None:
        """The end."""
        self.served.stop()


@pytest.fixture(scope="module", params=postgres.kinds())
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """One service for each kind of store."""
    os.environ["ONCEWARD_PEPPER"] = PEPPER
    made = Shop(str(request.param), ending.folder("onceward-money-"))
    yield made
    made.stop()
    del os.environ["ONCEWARD_PEPPER"]


def crowd(calls: list[Callable[[], Heard]]) -> list[Heard]:
    """Make calls at once; their answers, in order."""
    heard: list[Any] = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def one(number: int) -> None:
        barrier.wait(60)
        heard[number] = calls[number]()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return heard


class TestSharedKeys:
    """Somebody else's attempt under the same key neither pays for mine nor takes my money back."""

    def test_a_reader_with_the_same_key_takes_nothing_back(self, shop: Shop) -> None:
        """
        A read token sends every write along, same key and same body: it is refused, every row is paid, and every
        writer hears of its row.
        """
        path, token = shop.tenant("mixed")
        reader = shop.reader("mixed")
        written, refused = [], []
        for start in range(0, KEYS, 10):
            numbers = range(start, start + 10)
            heard = crowd(
                [
                    lambda number=number, its=its: shop.served.query(  # type: ignore[misc]
                        path, INSERT, [f"e-{number}", "x"], key=f"k-{number}", token=its
                    )
                    for number in numbers
                    for its in (reader, token, reader)
                ]
            )
            written += heard[1::3]
            refused += [*heard[0::3], *heard[2::3]]
        rows = shop.served.query(path, "SELECT count(*) FROM events", token=token).document["rows"][0][0]

        assert {one.status for one in written} == {200}
        assert {(one.status, one.document["kind"]) for one in refused} == {(403, "readonly")}
        assert rows == KEYS
        assert shop.balance("mixed") == (PAID_IN - (KEYS + 1) * PRICE, 0)
