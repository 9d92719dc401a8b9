"""The connection is cut during COMMIT: of the store's own transaction, and of the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from postgres_support import query

from onceward import Gate, OncewardError
from servers.postgres import PostgresServer, needed
from servers.proxy import Proxy

needed()

ROUNDS = 10


@pytest.fixture
def proxy(server: PostgresServer, url: str) -> Iterator[Proxy]:
    query(url, "CREATE TABLE IF NOT EXISTS orders (item text)")
    query(url, "TRUNCATE orders")
    with Proxy(server.port) as one:
        yield one


@pytest.mark.requirement("B38")
@pytest.mark.parametrize("arrives", [True, False], ids=["the answer is lost", "the request is lost"])
def test_the_callers_transaction_is_there_whole_or_not_at_all_and_a_retry_makes_it_one(
    proxy: Proxy, url: str, arrives: bool
) -> None:
    """
    Nobody can know whether a COMMIT without an answer took place: the caller hears an error, sends the same key again
    on a new connection, and there is one row either way.
    """
    far = f"postgresql://postgres@127.0.0.1:{proxy.port}/onceward"
    effects = lost = 0
    answers = []

    def buy(connection: psycopg.Connection[Any], key: str) -> str:
        nonlocal effects
        effects += 1
        connection.execute("INSERT INTO orders VALUES (%s)", (key,))
        return f"bought {key}"

    with Gate(url, scope="test:cut") as gate:
        for number in range(ROUNDS):
            key = f"k{number}"
            connection = psycopg.connect(far)
            proxy.cut_at(b"COMMIT", arrives=arrives)
            with pytest.raises((OncewardError, psycopg.OperationalError)):
                gate.atomic(connection, key, lambda connection=connection, key=key: buy(connection, key))
            connection.close()
            lost += 1
            with psycopg.connect(far) as connection:
                answers.append(gate.atomic(connection, key, lambda c=connection, key=key: buy(c, key)))
    rows = query(url, "SELECT item, count(*) FROM orders GROUP BY item ORDER BY item")
    doubled = sum(count > 1 for _, count in rows)
    print(f"COMMIT cut {lost} times: acknowledged {len(answers)}, lost {ROUNDS - len(rows)}, doubled {doubled}")

    assert [f"bought k{n}" for n in range(ROUNDS)] == answers
    assert [(f"k{n}", 1) for n in range(ROUNDS)] == rows
    assert (ROUNDS if arrives else 2 * ROUNDS) == effects
    assert proxy.to_lose == 0


@pytest.mark.parametrize("arrives", [True, False], ids=["the answer is lost", "the request is lost"])
@pytest.mark.parametrize("of", ["claim", "settle"])
def test_a_statement_that_commits_by_itself_is_sent_again_and_lands_once(proxy: Proxy, of: str, arrives: bool) -> None:
    """
    The store's own writes: nobody notices, there is one effect, and a retry learns the answer.
    """
    effects: list[str] = []
    words = b"INSERT INTO onceward_records" if of == "claim" else b"UPDATE onceward_records"
    with Gate(f"postgresql://postgres@127.0.0.1:{proxy.port}/onceward?onceward_bouncer=1", scope="test:cut") as gate:
        gate.run("warm", lambda: "nothing is prepared, so that each request has its words")
        proxy.cut_at(words, arrives=arrives)
        told = [gate.run("k", lambda: effects.append("one") or "done") for _ in range(2)]

    assert (told, effects, proxy.to_lose) == (["done", "done"], ["one"], 0)
