"""`onceward store` on PostgreSQL and Redis: making ready, looking over, moving forward; and passwords stay unseen."""

from __future__ import annotations

import logging
import re
import shlex
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
import server_stores as stores
from test_command_line import COMMANDS

from onceward import ConfigurationError, Gate, OncewardError
from onceward.cli.store_argument import upkeep_of
from onceward.runtime.environment import REAL
from onceward.stores import _postgres_flow as flows
from onceward.stores import _redis_schema as redis_schema
from onceward.stores import open_store
from servers import postgres, redis

needs_postgres = pytest.mark.skipif(not postgres.wanted(), reason="STORES leaves postgres out")
needs_redis = pytest.mark.skipif(not redis.wanted(), reason="STORES leaves redis out")
SERVERS = [kind for kind in stores.wanted() if kind in stores.ON_SERVERS]
SECRET = "s3cr3t-Hunter2"
EXAMPLES = [
    pytest.param(line.strip(), marks=needs_redis if "--store redis" in line else needs_postgres)
    for parser in COMMANDS.values()
    for line in parser.format_help().splitlines()
    if line.startswith("  onceward ") and re.search("--store (redis|postgresql:)", line)
]
TABLES = "SELECT count(*) FROM pg_class WHERE relname LIKE 'onceward_%' AND relkind = 'r'"


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """PostgreSQL, unless a test asks for others."""
    return str(getattr(request, "param", "postgres"))


@pytest.fixture
def fresh(folder: Path) -> Iterator[str]:
    """The URL of a database without our tables."""
    name = f"fresh_{REAL.random(4).hex()}"
    postgres.running().execute(f"CREATE DATABASE {name}")
    yield postgres.running().url(name)
    postgres.running().execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def role(fresh: str) -> Iterator[str]:
    """A role that may connect and was given nothing else."""
    with postgres.running().role("shop", database=fresh.rpartition("/")[2]) as name:
        yield name


def as_role(url: str, role: str) -> str:
    return url.replace("//postgres@", f"//{role}@")


def rows(url: str, sql: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def problems(ran: Any) -> dict[str, str]:
    return {one["name"]: one["detail"] for one in ran.document["checks"] if not one["ok"]}


def details(ran: Any) -> dict[str, str]:
    return {one["name"]: one["detail"] for one in ran.document["checks"]}


@pytest.mark.parametrize("line", EXAMPLES)
def test_the_examples_with_a_servers_address_run_where_there_is_a_server(
    line: str, request: pytest.FixtureRequest, run: Any
) -> None:
    """
    As the help has them, with another address: made ready, with so many parts, and again.
    """
    *typed, address = shlex.split(line)[1:]
    number = next(word for word in typed if word.isdigit())
    url = redis.running().url() if address.startswith("redis") else request.getfixturevalue("fresh")

    first, again = run(*typed, url), run(*typed, url)
    checked = run("store", "check", "--json", "--store", url)

    assert (first.code, again.code) == (0, 0), first.err + again.err
    assert re.search(rf"\b{number} (shards|partitions)\b", first.out + str(details(checked)))


@needs_redis
def test_shards_are_for_redis_and_their_number_stays(folder: Path, run: Any) -> None:
    """
    Another store has none; and a number that was chosen cannot be changed by asking again.
    """
    url = redis.running().url()
    made = run("store", "init", "--shards", "8", "--store", url)
    changed = run("store", "init", "--shards", "16", "--store", url)
    misplaced = run("store", "init", "--shards", "8", "--store", "sqlite:///here.db")

    assert (made.code, "8 shards" in made.out) == (0, True)
    assert (changed.code != 0, "8" in changed.err) == (True, True)
    assert (misplaced.code, "--shards is for Redis" in misplaced.err) == (2, True)


@needs_postgres
class TestPostgres:
    """One table in your database."""

    def test_init_makes_the_tables_and_again_does_no_harm(self, fresh: str, run: Any) -> None:
        """
        The second time everything is there already, records included.
        """
        first = run("store", "init", "--store", fresh)
        with Gate(fresh, scope="live:acme") as gate:
            gate.run("job:1", lambda: 1)

        second = run("store", "init", "--store", fresh, "--json")

        assert (first.code, second.code) == (0, 0)
        assert second.document["ready"]
        assert rows(fresh, "SELECT count(*) FROM onceward_records") == [(1,)]

    def test_many_that_init_at_once_make_one_store(self, fresh: str) -> None:
        """
        Of eight at the same moment each is told that it is ready, and one made it.
        """
        upkeep = upkeep_of(fresh)
        with ThreadPoolExecutor(8) as crowd:
            answers = list(crowd.map(lambda _: upkeep.init(fresh), range(8)))

        assert len(set(answers)) == 1
        assert rows(fresh, TABLES) == [(2,)]
        assert rows(fresh, "SELECT value FROM onceward_meta WHERE name = 'schema_version'") == [(flows.LATEST,)]

    @pytest.mark.parametrize("command", ["store check", "store migrate", "records list", "records purge"])
    def test_a_database_without_our_tables_is_not_given_any(self, command: str, fresh: str, run: Any) -> None:
        """
        It is perhaps the wrong one: exit code 2, the command that makes them, and no table more than before.
        """
        ran = run(*command.split(), "--store", fresh)

        assert (ran.code, ran.out) == (2, "")
        assert "`onceward store init`" in ran.err
        assert rows(fresh, TABLES) == [(0,)]

    def test_the_administrator_runs_the_sql_and_the_role_needs_no_more(self, fresh: str, role: str, run: Any) -> None:
        """
        `--sql` prints without connecting; what it prints, grants included, is all that a role without CREATE needs.
        """
        refused = run("store", "init", "--store", as_role(fresh, role))
        sql = run("store", "init", "--sql", "--store", "postgresql://nobody@127.0.0.1:1/nowhere").out
        grants = [line.removeprefix("--   ") for line in sql.splitlines() if line.startswith("--   GRANT")]
        rows(fresh, sql)
        before = run("store", "check", "--json", "--store", as_role(fresh, role))
        rows(fresh, "".join(grants).replace("the_role_that_gates_connect_as", role))

        again = run("store", "init", "--store", as_role(fresh, role))
        after = run("store", "check", "--json", "--store", as_role(fresh, role))
        with Gate(as_role(fresh, role), scope="live:acme") as gate:
            answers = [gate.run("job:1", lambda: 1), gate.run("job:1", lambda: 2)]

        assert refused.code == 4
        assert "--sql" in refused.err
        assert before.code == 4
        assert (again.code, answers) == (0, [1, 1])
        assert "rights" not in problems(after)

    def test_a_healthy_server_is_looked_over(self, store: str, gate: Gate, doubted: Any, run: Any) -> None:
        """
        Every setting that matters is named with its value. The tests' server has fsync off, and that is found.
        """
        gate.run("job:1", lambda: 1)
        doubted()

        ran = run("store", "check", "--json")

        assert set(problems(ran)) == {"fsync"}
        assert (ran.code, ran.document["records"]) == (1, {"in_doubt": 1, "settled": 1})
        assert set(details(ran)) == {
            *("server", "encoding", "writer", "fsync", "full_page_writes", "synchronous_commit", "failover", "clock"),
            *("schema", "columns", "indexes", "logged", "row security", "rights", "size"),
        }
        assert details(ran)["schema"] == f"version {flows.LATEST}"
        assert "PROBLEM" in run("store", "check").out

    @pytest.mark.parametrize(
        ("break_it", "name", "says"),
        [
            ("DROP INDEX onceward_due_at", "indexes", "onceward_due_at"),
            ("ALTER TABLE onceward_records DROP COLUMN codec CASCADE", "columns", "codec"),
            ("ALTER TABLE onceward_records SET UNLOGGED", "logged", "empties the table"),
        ],
    )
    def test_what_is_wrong_with_the_tables_is_found(
        self, break_it: str, name: str, says: str, fresh: str, run: Any
    ) -> None:
        """
        Each planted fault is named, and makes the answer no.
        """
        run("store", "init", "--store", fresh)
        sound = problems(run("store", "check", "--json", "--store", fresh))
        rows(fresh, break_it)

        checks = {one.name: one for one in upkeep_of(fresh).check(fresh)}

        assert name not in sound
        assert not checks[name].ok
        assert says in checks[name].detail

    def test_a_role_with_too_few_rights_is_told_which(self, fresh: str, role: str, run: Any) -> None:
        """
        Before an operation meets it: the missing rights by name, and rows that row-level security hides.
        """
        run("store", "init", "--store", fresh)
        rows(fresh, f"GRANT SELECT ON onceward_records, onceward_meta TO {role}")
        few = run("store", "check", "--json", "--store", as_role(fresh, role))
        rows(fresh, "ALTER TABLE onceward_records ENABLE ROW LEVEL SECURITY")

        hidden = run("store", "check", "--json", "--store", as_role(fresh, role))

        assert few.code == 1
        assert problems(few)["rights"] == (
            "missing: INSERT on onceward_records, UPDATE on onceward_records, DELETE on onceward_records, "
            "UPDATE on onceward_meta"
        )
        assert {"rights", "row security"} <= set(problems(hidden))

    def test_a_read_only_server_is_a_finding(self, fresh: str, run: Any) -> None:
        """
        A gate could not even connect; who looks it over learns why.
        """
        run("store", "init", "--store", fresh)
        name = fresh.rpartition("/")[2]
        postgres.running().execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")

        ran = run("store", "check", "--json", "--store", fresh)

        assert (ran.code, problems(ran)["writer"]) == (1, "read-only")

    def test_looking_prepares_nothing_so_a_pooler_may_stand_between(
        self, store: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        What is prepared on one connection is not known on the next that a pooler in transaction mode gives.
        """
        prepared: list[Any] = []
        close = psycopg.Connection.close

        def closing(connection: Any) -> None:
            if connection.pgconn.status == 0 and connection.prepare_threshold is None:
                prepared.extend(connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchall())
            close(connection)

        monkeypatch.setattr(psycopg.Connection, "close", closing)
        upkeep = upkeep_of(store)
        upkeep.check(store)
        list(upkeep.held(store))

        assert prepared == [(0,), (0,)]

    @pytest.mark.parametrize("command", ["store init", "store check", "store migrate", "records list"])
    def test_a_schema_of_a_later_version_is_refused(self, command: str, fresh: str, run: Any) -> None:
        """
        Half understood is worse than an error: exit code 4, what to do, and nothing moved back.
        """
        run("store", "init", "--store", fresh)
        rows(fresh, "UPDATE onceward_meta SET value = 99 WHERE name = 'schema_version'")

        ran = run(*command.split(), "--store", fresh)

        assert ran.code == 4
        assert "upgrade" in ran.err
        assert rows(fresh, "SELECT value FROM onceward_meta WHERE name = 'schema_version'") == [(99,)]

    def test_migrate_says_what_it_will_do_and_does_it_once(
        self, fresh: str, run: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        `--sql` prints what is left and changes nothing; then forward, records kept; then there is nothing to do.
        """
        run("store", "init", "--store", fresh)
        with Gate(fresh, scope="live:acme") as gate:
            gate.run("job:1", lambda: 1)
        known_before, upcoming = flows.LATEST, flows.LATEST + 1
        version = f"UPDATE onceward_meta SET value = {upcoming} WHERE name = 'schema_version'"
        later = f"ALTER TABLE onceward_meta ADD note text;\n{version}".encode()
        known = [*flows.migrations(), (upcoming, later)]
        monkeypatch.setattr(flows, "migrations", lambda _=0: iter(known))
        monkeypatch.setattr(flows, "LATEST", upcoming)

        printed = run("store", "migrate", "--sql", "--store", fresh)
        still = rows(fresh, "SELECT value FROM onceward_meta WHERE name = 'schema_version'")
        moved = run("store", "migrate", "--json", "--store", fresh)
        again = run("store", "migrate", "--json", "--store", fresh)

        assert later.decode() in printed.out
        assert "CREATE TABLE" not in printed.out
        assert [(known_before,)] == still
        assert {"before": known_before, "after": upcoming, "moved": True} == moved.document
        assert f"from version {known_before} to {upcoming}: postgres_{upcoming:04}" in moved.err
        assert {"before": upcoming, "after": upcoming, "moved": False} == again.document
        assert rows(fresh, "SELECT count(*) FROM onceward_records") == [(1,)]


@needs_redis
class TestRedis:
    """Nothing has to be made, and much can be wrong."""

    @pytest.fixture
    def kind(self) -> str:
        return "redis"

    def test_a_healthy_server_is_looked_over(self, store: str, gate: Gate, doubted: Any, run: Any) -> None:
        """
        Every setting that matters is named with its value, and looking leaves no key behind.
        """
        gate.run("job:1", lambda: 1)
        doubted()
        keys = redis.running().ask("DBSIZE")

        ran = run("store", "check", "--json")

        assert problems(ran) == {}
        assert (ran.code, ran.document["records"]) == (1, {"in_doubt": 1, "settled": 1})
        assert set(details(ran)) == {
            *("server", "writer", "cluster", "memory", "eviction", "append-only file", "last write to it"),
            *("appendfsync", "failover", "clock", "schema", "rights"),
        }
        assert details(ran)["appendfsync"] == "always"
        assert keys == redis.running().ask("DBSIZE")

    def test_init_again_and_migrate_do_no_harm(self, store: str, gate: Gate, run: Any) -> None:
        """
        There was never another form of the records, so there is nothing to move.
        """
        gate.run("job:1", lambda: 1)

        codes = [run("store", "init").code, run("store", "migrate").code]
        moved = run("store", "migrate", "--json").document

        assert (codes, moved["moved"]) == ([0, 0], False)
        assert len(run("records", "list", "--json").document["records"]) == 1
        assert run("store", "init", "--sql").code == 2

    def test_a_server_that_forgets_is_looked_over_and_not_made_ready(self, folder: Path, run: Any) -> None:
        """
        A gate refuses it; who looks it over learns every reason at once.
        """
        forgetful = ("--appendonly", "no", "--maxmemory-policy", "allkeys-lru", "--maxmemory", "1mb")
        with redis.started(*forgetful) as server:
            url = server.url()
            made = run("store", "init", "--store", url)
            ran = run("store", "check", "--json", "--store", url)

        assert (made.code, ran.code) == (2, 1)
        assert set(problems(ran)) == {"eviction", "append-only file", "memory"}

    def test_a_user_with_too_few_rights_is_told_which(self, folder: Path, run: Any) -> None:
        """
        By trying: the commands that the server refuses, by name.
        """
        with redis.started() as server:
            allowed = ["+@all", "-hset", "-zrem", "-config", "~*"]
            server.ask("ACL", "SETUSER", "shy", "on", f">{SECRET}", *allowed)
            url = server.url().replace("//", f"//shy:{SECRET}@")
            ran = run("store", "check", "--json", "--store", url)

        assert set(problems(ran)) == {"rights"}
        assert "HSET: " in problems(ran)["rights"]
        assert "ZREM: " in problems(ran)["rights"]
        assert details(ran)["appendfsync"] == "not told"

    @pytest.mark.parametrize("command", ["store init", "store check", "store migrate", "records list"])
    def test_records_of_a_later_form_are_refused(self, command: str, store: str, run: Any) -> None:
        """
        Half understood is worse than an error: exit code 4, and what to do.
        """
        prefix = store.partition("prefix=")[2]
        redis.running().ask("SET", f"{{{prefix}:0}}:schema", str(redis_schema.LATEST + 1))

        ran = run(*command.split())

        assert ran.code == 4
        assert "upgrade" in ran.err

    def test_a_replica_takes_no_writes(self, folder: Path, run: Any) -> None:
        """
        Looking over says so, where a gate would only fail to write.
        """
        with redis.started() as server:
            server.ask("REPLICAOF", "127.0.0.1", "1")
            ran = run("store", "check", "--json", "--store", server.url())

        assert set(problems(ran)) == {"writer", "rights"}


WRONG = [
    "postgresql://shop:{}@127.0.0.1:1/shop",
    "postgresql://shop:{}@127.0.0.1:port/shop",
    "postgresql://shop:{}%zz@127.0.0.1/shop",
    "postgresql://shop:{}@127.0.0.1:1/shop?onceward_pool={}",
    "postgresql://shop:{}@127.0.0.1:1/shop?nonsense=1",
    "postgresql://127.0.0.1:1/shop?user=shop&password={}",
    "postgresql://shop:{}\u2100@127.0.0.1/shop",
    "postgres:/shop:{}@127.0.0.1/shop",
    "postgresq://shop:{}@127.0.0.1/shop",
    "shop:{}@127.0.0.1/shop",
    "redis://:{}@127.0.0.1:1/0",
    "redis://shop:{}@127.0.0.1:port/0",
    "redis://shop:{}@127.0.0.1:1/zero",
    "redis://shop:{}@127.0.0.1:1/0?nonsense=1",
    "redis://127.0.0.1:1/0?password={}",
    "rediss://:{}@[127.0.0.1:1/0",
]
COMMANDS = ["store init", "store check", "store migrate", "records list", "records purge", "records show abcdef"]


class TestPasswords:
    """A URL holds a password; nothing that is printed, raised or logged does."""

    @pytest.mark.parametrize("wrong", WRONG)
    def test_none_is_shown_when_the_url_is_wrong_or_nobody_is_there(
        self, wrong: str, folder: Path, run: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        For people, for programs, in the log, and in the traceback of whoever opens it in Python.
        """
        url = wrong.replace("{}", SECRET)
        with caplog.at_level(logging.DEBUG):
            seen = [run(*command.split(), *more, "--store", url) for command in COMMANDS for more in ([], ["--json"])]
        with pytest.raises(OncewardError) as failure:
            _use(url)

        told = "".join(ran.out + ran.err for ran in seen) + caplog.text + _trace(failure.value)
        assert {2, 4} >= {ran.code for ran in seen}
        assert told != ""
        assert SECRET not in told

    @needs_postgres
    def test_none_is_shown_when_postgres_refuses_it(self, fresh: str, run: Any) -> None:
        """
        A wrong password for a role that needs one: exit code 2, and the password is not repeated.
        """
        url = fresh.replace("//postgres@", f"//locked:{SECRET}@")

        with postgres.running().role("locked", "LOGIN PASSWORD 'right'"):
            seen = [run(*command.split(), "--store", url) for command in COMMANDS]
            with pytest.raises(ConfigurationError) as failure:
                _use(url)

        assert {ran.code for ran in seen} == {2}
        assert SECRET not in "".join(ran.out + ran.err for ran in seen) + _trace(failure.value)

    @needs_redis
    def test_none_is_shown_by_a_redis_that_takes_it(self, folder: Path, run: Any) -> None:
        """
        Right or wrong: no command prints it.
        """
        with redis.started(*redis.DURABLE, "--requirepass", SECRET) as server:
            right, wrong = (server.url(password=password) for password in (SECRET, f"{SECRET}!"))
            fine = [run(*command.split(), "--store", right) for command in COMMANDS[:5]]
            refused = [run(*command.split(), "--store", wrong) for command in COMMANDS[:5]]

        assert {ran.code for ran in fine} == {0}
        assert {ran.code for ran in refused} == {4}
        assert SECRET not in "".join(ran.out + ran.err for ran in [*fine, *refused])

    def test_one_that_were_printed_would_be_seen(self, run: Any) -> None:
        """
        The check itself can fail: a password in the place of a path is no secret, and is found.
        """
        ran = run("records", "list", "--store", f"sqlite:///{SECRET}")

        assert SECRET in ran.err


def _use(url: str) -> None:
    store = open_store(url)
    try:
        store.load(bytes(32))
    finally:
        store.close()


def _trace(error: BaseException) -> str:
    """What a log of the error would hold, causes included, but not the lines of the test that has the URL."""
    chain = traceback.TracebackException.from_exception(error)
    lines: list[str] = []
    while chain is not None:
        lines += chain.format_exception_only()
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    return "".join(lines)
