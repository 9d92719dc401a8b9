"""Text that a database cannot hold: refused before anything is sent, or kept as it is; never cut, never changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onceward import ConfigurationError, Gate, NotReplayable, StoreUnavailable
from onceward.errors import KeyInvalid
from onceward.stores import open_store
from onceward.testing.store_suite.rows import row
from servers import postgres, redis

NUL = "a\0b"


def _urls() -> Iterator[str]:
    if postgres.wanted():
        yield "postgres"
    if redis.wanted():
        yield "redis"


@pytest.fixture(params=list(_urls()))
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "redis":
        return redis.running().url()
    postgres.running().execute("DROP TABLE IF EXISTS onceward_records, onceward_meta", "onceward")
    return postgres.running().url("onceward")


def test_a_scope_or_a_key_with_nul_is_refused_and_nothing_runs(url: str) -> None:
    """
    In the caller's hands, with what to do; the store is not even asked.
    """
    with pytest.raises(ConfigurationError, match="the scope has control characters"):
        Gate(url, scope=f"test:{NUL}")
    with Gate(url, scope="test:text") as gate:
        for key in (NUL, "\ud800"):
            with pytest.raises(KeyInvalid):
                gate.run(key, lambda: pytest.fail("it ran"))


def test_a_result_with_nul_is_kept_as_it_is(url: str) -> None:
    """
    It is data, and data replays.
    """
    with Gate(url, scope="test:text") as gate:
        told = [gate.run("k", lambda: {NUL: NUL}) for _ in range(2)]

    assert told == [{NUL: NUL}] * 2


def test_a_result_that_is_no_text_is_recorded_as_run(url: str) -> None:
    """
    Half of a surrogate pair has no place in any encoding: the caller has it, and a retry hears that it ran.
    """
    with Gate(url, scope="test:text") as gate:
        first = gate.run("k", lambda: "\ud800")
        with pytest.raises(NotReplayable):
            gate.run("k", lambda: pytest.fail("it ran again"))

    assert first == "\ud800"


@pytest.mark.parametrize("field", ["scope", "key", "operation"])
def test_past_the_gate_it_is_a_typed_error_or_stands_as_it_was_sent(url: str, field: str) -> None:
    """
    Whoever uses a store by itself: PostgreSQL says that its text takes no NUL; Redis keeps it.
    """
    store, write = open_store(url), row("test:text")._replace(**{field: NUL})
    try:
        found = store.put(write, None).record
        kept = found is not None and getattr(found, field) == NUL
    except StoreUnavailable as error:
        kept = "takes no NUL character" in str(error) and store.load(write.id) is None
        assert store.put(row("test:text", "fine"), None).landed
    finally:
        store.close()

    assert kept
