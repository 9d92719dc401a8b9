"""A table of records in partitions: the suite on it, and what is different to look after."""

from __future__ import annotations

from functools import cache

import pytest
from postgres_support import EMPTY, problems, query

from onceward import ConfigurationError, Gate
from onceward.cli import main
from onceward.runtime.environment import REAL
from onceward.stores import _postgres_upkeep as upkeep
from onceward.testing.store_suite.suite import *  # noqa: F403
from servers.handles import Deferred
from servers.postgres import PostgresServer, needed, running
from servers.suites import leave_out_clients

pytestmark = pytest.mark.dose(1, of="place")

needed()
leave_out_clients(globals())


@cache
def _partitioned() -> str:
    database = f"divided_{REAL.random(4).hex()}"
    running().execute(f"CREATE DATABASE {database}")
    upkeep.init(f"{running().url(database)}?onceward_partitions=4")
    return running().url(database)


STORES = (Deferred("postgresql://partitioned", _partitioned),)


@pytest.fixture(autouse=True)
def _empty_partitions() -> None:
    for statement in EMPTY:
        query(_partitioned(), statement)


def _details(url: str) -> dict[str, str]:
    return {one.name: one.detail for one in upkeep.check(url)}


@pytest.mark.fault("the-size-of-a-partitioned-table-is-its-empty-roofs")
def test_init_divides_the_table_and_check_adds_the_partitions_up(server: PostgresServer) -> None:
    """
    Sixteen, by the hash of the id; every check is well, and the size is that of all of them.
    """
    database = f"divided_{REAL.random(4).hex()}"
    server.execute(f"CREATE DATABASE {database}")
    url = server.url(database)

    made = main(["store", "init", "--partitions", "16", "--store", url])
    with Gate(url, scope="live:acme") as gate:
        answers = [gate.run(f"job:{number}", lambda number=number: number) for number in range(64)]
        replays = [gate.run(f"job:{number}", lambda: None) for number in range(64)]
    used = query(url, "SELECT count(DISTINCT tableoid) FROM onceward_records")
    bytes_in_all = query(url, "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('onceward_records')")

    assert (made, answers, replays) == (0, list(range(64)), list(range(64)))
    assert used[0][0] > 8
    assert problems(url) == {}
    assert (
        _details(url)["size"]
        == f"{query(url, f'SELECT pg_size_pretty({bytes_in_all[0][0]}::numeric)')[0][0]} in 16 partitions"
    )


def test_the_statements_for_an_administrator_make_the_same(
    server: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    `store init --sql --partitions` prints what `--partitions` does.
    """
    database = f"divided_{REAL.random(4).hex()}"
    server.execute(f"CREATE DATABASE {database}")
    url = server.url(database)

    main(["store", "init", "--sql", "--partitions", "3", "--store", url])
    query(url, capsys.readouterr().out)

    assert query(url, "SELECT count(*) FROM pg_partition_tree('onceward_records') WHERE isleaf") == [(3,)]
    assert problems(url) == {}


@pytest.mark.parametrize(
    ("store", "partitions"), [("sqlite:///a.db", "4"), ("postgresql://u@h/d", "1"), ("postgresql://u@h/d", "1000")]
)
def test_what_cannot_be_divided_is_refused(store: str, partitions: str, capsys: pytest.CaptureFixture[str]) -> None:
    """
    Exit code 2, and nothing is opened.
    """
    assert main(["store", "init", "--partitions", partitions, "--store", store]) == 2
    assert capsys.readouterr().out == ""


def test_the_url_says_how_a_table_is_divided_that_is_made_now() -> None:
    """
    Less than two partitions are none.
    """
    with pytest.raises(ConfigurationError, match="onceward_partitions=2"):
        upkeep.parse("postgresql://u@h/d?onceward_partitions=1")
