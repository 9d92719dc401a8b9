"""psycopg and redis against real servers: what they raise, and whether it happened."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import psycopg_pool
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from onceward._core.classifier import DEFAULT
from onceward.verdicts import Action, Certainty, Kind, Verdict
from servers import postgres as postgres_servers
from servers import redis as redis_servers
from servers.faults import FaultServer, deaf_port, say
from servers.proxy import Proxy

IN_VAIN = (Certainty.NOT_SENT, Kind.NETWORK, Action.SAME_KEY)
NOBODY_KNOWS = (Certainty.UNKNOWN, Kind.NETWORK, Action.SAME_KEY)
ROLLED_BACK = (Certainty.REJECTED, Kind.STATE, Action.SAME_KEY)


def judged(act: Callable[[], Any], kind: type[BaseException] = Exception) -> Verdict:
    """The verdict on what this raises."""
    with pytest.raises(kind) as caught:
        act()
    return DEFAULT.judge(caught.value)


class TestPsycopg:
    """What the server says is known by its SQLSTATE; what the connection does, by when."""

    @pytest.fixture
    def url(self) -> str:
        if not postgres_servers.wanted():
            pytest.skip("STORES leaves postgres out")
        return postgres_servers.running().url("onceward")

    @pytest.fixture
    def line(self, url: str) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS verdicts (id int PRIMARY KEY, n int NOT NULL)")
            connection.execute("TRUNCATE verdicts")
            connection.execute("INSERT INTO verdicts VALUES (1, 0), (2, 0)")
            yield connection

    def test_a_refused_connection_was_not_made(self) -> None:
        """
        Refused, unknown, silent, or spoken to in another tongue: no statement has left.
        """
        with FaultServer("refuse") as server:
            assert judged(lambda: psycopg.connect(host="127.0.0.1", port=server.port))[:3] == IN_VAIN
        assert judged(lambda: psycopg.connect(host="nobody.invalid"))[:3] == IN_VAIN
        with FaultServer(say(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
            assert judged(lambda: psycopg.connect(host="127.0.0.1", port=server.port))[:3] == IN_VAIN
        with deaf_port() as port:
            silent = judged(lambda: psycopg.connect(host="127.0.0.1", port=port, connect_timeout=2))
            assert silent[:3] == IN_VAIN

    def test_no_connection_left_in_the_pool_was_not_sent(self, url: str) -> None:
        """
        It waited in line at home.
        """
        with psycopg_pool.ConnectionPool(url, min_size=1, max_size=1, open=True) as pool, pool.connection():
            assert judged(lambda: pool.getconn(timeout=0.05), psycopg_pool.PoolTimeout)[:3] == IN_VAIN

    @pytest.mark.parametrize(
        ("statement", "expected"),
        [
            ("INSERT INTO verdicts VALUES (1, 0)", (Certainty.REJECTED, Kind.STATE, Action.NEVER)),
            ("INSERT INTO verdicts VALUES (3, NULL)", (Certainty.REJECTED, Kind.STATE, Action.NEVER)),
            ("SELECT nonsense", (Certainty.REJECTED, Kind.CLIENT, Action.NEVER)),
            ("SELECT 1 / 0", (Certainty.REJECTED, Kind.CLIENT, Action.NEVER)),
            ("SET statement_timeout = 20; SELECT pg_sleep(9)", (Certainty.REJECTED, Kind.OTHER, Action.NEVER)),
            ("SELECT pg_terminate_backend(pg_backend_pid())", NOBODY_KNOWS),
        ],
    )
    def test_what_the_server_says(self, line: Any, statement: str, expected: Any) -> None:
        """
        An error that the server reports has undone the statement; a server that ends leaves it open.
        """
        assert judged(lambda: line.execute(statement), psycopg.Error)[:3] == expected

    def test_a_serialization_failure_is_rolled_back_and_may_be_tried_again(self, line: Any, url: str) -> None:
        """
        40001, from two real transactions.
        """
        with psycopg.connect(url) as other:
            other.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            other.execute("SELECT n FROM verdicts WHERE id = 1")
            line.execute("UPDATE verdicts SET n = 1 WHERE id = 1")
            verdict = judged(
                lambda: other.execute("UPDATE verdicts SET n = 2 WHERE id = 1"), psycopg.errors.SerializationFailure
            )
            other.rollback()

        assert verdict[:3] == ROLLED_BACK
        assert verdict.retryable()

    def test_a_deadlock_is_rolled_back_and_may_be_tried_again(self, line: Any, url: str) -> None:
        """
        40P01: each waits for the other, and one is made to let go.
        """
        errors: list[BaseException] = []
        met = threading.Barrier(2, timeout=30)

        def take(first: int, second: int) -> None:
            with psycopg.connect(url) as mine:
                mine.execute("SET deadlock_timeout = '20ms'")
                mine.execute("UPDATE verdicts SET n = n + 1 WHERE id = %s", [first])
                met.wait()
                try:
                    mine.execute("UPDATE verdicts SET n = n + 1 WHERE id = %s", [second])
                except psycopg.Error as error:
                    errors.append(error)
                    mine.rollback()

        threads = [threading.Thread(target=take, args=pair) for pair in ((1, 2), (2, 1))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

        assert [psycopg.errors.DeadlockDetected] == [type(error) for error in errors]
        assert DEFAULT.judge(errors[0])[:3] == ROLLED_BACK

    def test_a_lock_that_is_not_to_be_had_was_not_written(self, line: Any, url: str) -> None:
        """
        55P03.
        """
        with psycopg.connect(url) as other:
            other.execute("SELECT * FROM verdicts FOR UPDATE")
            verdict = judged(lambda: line.execute("SELECT * FROM verdicts FOR UPDATE NOWAIT"), psycopg.Error)
            other.rollback()

        assert verdict[:3] == ROLLED_BACK

    def test_an_answer_lost_while_committing_is_unknown_and_it_did_happen(self, line: Any, url: str) -> None:
        """
        The server commits, its word is lost: the client's error must not be taken for a rollback.
        """
        with Proxy(postgres_servers.running().port) as proxy:
            through = url.replace(f":{postgres_servers.running().port}/", f":{proxy.port}/")
            mine = psycopg.connect(through, sslmode="disable", gssencmode="disable")
            mine.execute("INSERT INTO verdicts VALUES (9, 9)")
            proxy.lose_answers(1)
            verdict = judged(mine.commit, psycopg.OperationalError)
            mine.close()

        assert verdict[:3] == NOBODY_KNOWS
        assert line.execute("SELECT count(*) FROM verdicts WHERE id = 9").fetchone() == (1,)

    def test_a_stranger_has_sent_nothing(self, url: str) -> None:
        """
        No such role: the connection was not made, so no statement has left.
        """
        assert Certainty.NOT_SENT is judged(lambda: psycopg.connect(url, user="nobody")).certainty


class TestRedis:
    """redis-py tries again by itself, so its last error speaks for the last try only."""

    @pytest.fixture
    def port(self) -> int:
        if not redis_servers.wanted():
            pytest.skip("STORES leaves redis out")
        return int(redis_servers.running().port)

    def test_a_refused_connection_is_unknown(self) -> None:
        """
        An earlier try may have arrived: with its default of retries there is no telling.
        """
        with FaultServer("refuse") as server:
            client = redis.Redis(port=server.port, retry=Retry(NoBackoff(), 3))
            assert judged(lambda: client.incr("n"), redis.ConnectionError)[:3] == NOBODY_KNOWS

    def test_a_lost_answer_is_unknown_and_it_did_happen(self, port: int) -> None:
        """
        The server counted; the client heard nothing.
        """
        key, straight = f"verdict:{uuid.uuid4()}", redis.Redis(port=port)
        with Proxy(port) as proxy, redis.Redis(port=proxy.port, retry=None) as client:
            client.ping()
            proxy.lose_answers(1)
            verdict = judged(lambda: client.incr(key), redis.ConnectionError)

        assert verdict[:3] == NOBODY_KNOWS
        assert straight.getdel(key) == b"1"
        straight.close()

    def test_silence_is_unknown(self) -> None:
        """
        Nobody answered in time.
        """
        with FaultServer("stall") as server:
            client = redis.Redis(port=server.port, socket_timeout=0.2, retry=None)
            assert judged(lambda: client.incr("n"), redis.TimeoutError)[:3] == NOBODY_KNOWS
            client.close()

    def test_a_server_that_is_still_loading_may_be_asked_again(self) -> None:
        """
        It is weather; a key is needed, because an earlier try may have been carried out before the server fell.
        """
        words = b"-LOADING Redis is loading the dataset in memory\r\n"
        with FaultServer(say(words)) as server:
            client = redis.Redis(port=server.port, retry=None)
            verdict = judged(lambda: client.incr("n"), redis.BusyLoadingError)
            client.close()

        assert verdict[:3] == (Certainty.UNKNOWN, Kind.UPSTREAM, Action.SAME_KEY)

    def test_a_command_that_makes_no_sense_is_not_tried_again(self, port: int) -> None:
        """
        A script may have done half of its work before it failed.
        """
        with redis.Redis(port=port) as client:
            verdict = judged(lambda: client.eval("return redis.call('nonsense')", 0), redis.ResponseError)

        assert verdict[0:3:2] == (Certainty.UNKNOWN, Action.NEVER)

    def test_no_connection_left_in_the_pool_was_not_sent(self, port: int) -> None:
        """
        It was turned away at home.
        """
        pool = redis.ConnectionPool(port=port, max_connections=1)
        held = pool.get_connection()
        verdict = judged(lambda: redis.Redis(connection_pool=pool).incr("n"), redis.exceptions.MaxConnectionsError)
        pool.release(held)
        pool.close()

        assert verdict[:3] == IN_VAIN
