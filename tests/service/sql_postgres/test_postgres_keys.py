"""Keys on PostgreSQL: the record commits with the rows, for one replica and for two."""

from __future__ import annotations

import asyncio
from builtins import id as builtins_id
from collections.abc import Callable
from typing import Any

import pytest
from tenant_support import DATABASE, NAMESPACE, SCOPE, Tenant

from onceward._core.record import PutResult, Write
from onceward.errors import KeyReused
from onceward.protocol.errors import DatabaseUnknown, SqlError, SqlKind
from onceward.service.sql.postgres import PostgresEngine
from onceward.service.sql.postgres.session import PipelineStep
from onceward.service.sql.postgres.tenant_transaction import TenantTransaction
from onceward.service.sql.requests import Keyed
from onceward.service.sql.worker_errors import NotReplayed

pytestmark = pytest.mark.dose(1, of="version")

EVENTS = "CREATE TABLE events (id text PRIMARY KEY, name text NOT NULL)"
INSERT = "INSERT INTO events VALUES ($1, $2)"
COUNTED = "CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text)"
ADD = "INSERT INTO events (name) VALUES ('x') RETURNING id"


class TestOneKey:
    """A request is sent again."""

    def test_a_retry_gets_the_first_result_and_writes_nothing(self, play: Callable[..., Any]) -> None:
        """
        The same document, by one engine and by another one.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(COUNTED)
            first = await tenant.ask(ADD, key="k")
            again = await tenant.ask(ADD, key="k")
            assert not first.replayed
            assert again.replayed
            assert again.document == first.document
            async with PostgresEngine(tenant.engine._url) as other:
                elsewhere = await Tenant(other).ask(ADD, key="k")
            assert elsewhere.replayed
            assert elsewhere.document == first.document
            assert await tenant.count() == 1

        play(story)

    def test_another_statement_under_the_same_key_is_refused(self, play: Callable[..., Any]) -> None:
        """
        Nothing of it is run, and the first result stands.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(EVENTS)
            await tenant.ask(INSERT, "a", "click", key="k")
            with pytest.raises(KeyReused):
                await tenant.ask(INSERT, "b", "click", key="k")
            assert await tenant.count() == 1
            assert (await tenant.ask(INSERT, "a", "click", key="k")).replayed

        play(story)

    def test_a_statement_that_fails_frees_its_key(self, play: Callable[..., Any]) -> None:
        """
        And undoes the whole batch that it is in.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(EVENTS)
            with pytest.raises(SqlError) as refused:
                await tenant.batch("INSERT INTO events VALUES ('a', 'b')", "INSERT INTO events VALUES ('a')", key="k")
            assert (refused.value.kind, refused.value.statement) == (SqlKind.NOT_NULL, 1)
            assert await tenant.count() == 0
            assert not (await tenant.batch("INSERT INTO events VALUES ('a', 'b')", key="k")).replayed
            assert await tenant.count() == 1

        play(story)

    @pytest.mark.fault("pg-replay-only-runs")
    def test_where_nothing_may_be_run_only_a_first_result_is_given(self, play: Callable[..., Any]) -> None:
        """
        Beyond a quota, say.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(COUNTED)
            [ended] = await asyncio.gather(tenant.ask(ADD, key="k", replay_only=True), return_exceptions=True)
            assert isinstance(ended, NotReplayed)
            assert await tenant.count() == 0
            first = await tenant.ask(ADD, key="k")
            assert first.rows == [[1]]  # Not even a number of the sequence was taken before.
            assert (await tenant.ask(ADD, key="k", replay_only=True)).replayed

        play(story)

    def test_a_database_made_anew_has_none_of_the_old_keys(self, play: Callable[..., Any]) -> None:
        """
        Its rows are gone, so what stood under a key is not there, either.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(COUNTED)
            await tenant.ask(ADD, key="k")
            async with PostgresEngine(tenant.engine._url) as other:
                await Tenant(other).ask("SELECT 1")  # It knows the schema that is dropped now.
                assert await tenant.engine.drop(NAMESPACE, DATABASE)
                for asking in (other.tables(NAMESPACE, DATABASE), Tenant(other).ask("SELECT 1")):
                    with pytest.raises(DatabaseUnknown):
                        await asking
                assert await tenant.engine.create(NAMESPACE, DATABASE)
                await tenant.ask(COUNTED)
                assert not (await Tenant(other).ask(ADD, key="k")).replayed
            assert await tenant.count() == 1

        play(story)


class TestLostConnections:
    """The server, or the way to it, is gone in the midst of a request."""

    @pytest.mark.fault("pg-a-lost-line-is-not-tried-again")
    def test_what_was_not_committed_is_run_again_and_happens_once(
        self, play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        The work is done, and the line breaks before the record is sent: nothing was written, and it is sent again.
        """
        broken = []

        async def breaks(joined: TenantTransaction, write: Write, expect: bytes | None) -> PutResult:
            monkeypatch.undo()
            broken.append(joined)
            joined._session.close()
            return await joined.finish(write, expect)

        async def story(tenant: Tenant) -> None:
            await tenant.ask(COUNTED)
            monkeypatch.setattr(TenantTransaction, "finish", breaks)
            [result] = await asyncio.gather(tenant.ask(ADD, key="k"), return_exceptions=True)
            assert len(broken) == 1
            assert not isinstance(result, BaseException)
            assert not result.replayed
            assert await tenant.count() == 1

        play(story)


class TestCrowds:
    """Many callers at once."""

    def test_one_of_many_callers_runs_and_the_others_replay(self, play: Callable[..., Any]) -> None:
        """
        Twenty keys, eight callers each, over two engines on one server.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(COUNTED)
            async with PostgresEngine(tenant.engine._url) as other:
                pair = (tenant, Tenant(other))
                calls = [pair[n % 2].ask(ADD, key=f"k{key}") for key in range(20) for n in range(8)]
                results = await asyncio.gather(*calls)
            assert sum(not one.replayed for one in results) == 20
            for key in range(20):
                documents = [one.document for one in results[key * 8 : key * 8 + 8]]
                assert documents == [documents[0]] * 8
            assert await tenant.count() == 20

        play(story)

    @pytest.mark.fault("pg-who-lost-a-race-says-that-it-ran")
    def test_whoever_finds_the_key_taken_at_the_end_is_undone_and_replays(
        self, play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Two at once, past the lock that usually tells them apart: the unique constraint decides, as it always does.
        """
        finish, look = TenantTransaction.finish, TenantTransaction._look
        worked, won = asyncio.Event(), asyncio.Event()

        async def waits(joined: TenantTransaction, write: Write, expect: bytes | None) -> PutResult:
            if not worked.is_set():
                worked.set()
                await won.wait()
            return await finish(joined, write, expect)

        def looks(joined: TenantTransaction, id: bytes) -> PipelineStep:
            step = look(joined, id)
            return step._replace(values=[step.values[0], str(builtins_id(joined)).encode(), *step.values[2:]])

        async def story(tenant: Tenant) -> None:
            await tenant.ask(COUNTED)
            monkeypatch.setattr(TenantTransaction, "finish", waits)
            monkeypatch.setattr(TenantTransaction, "_look", looks)
            slow = asyncio.create_task(tenant.ask(ADD, key="k"))
            await worked.wait()
            first = await tenant.ask(ADD, key="k")
            won.set()
            second = await slow
            assert (first.replayed, second.replayed) == (False, True)
            assert second.document == first.document
            assert await tenant.count() == 1

        play(story)


class TestPlans:
    """Steps of a plan."""

    def test_a_plan_is_resumed_where_it_was_left(self, play: Callable[..., Any]) -> None:
        """
        Steps that are done replay; the next one runs.
        """

        async def story(tenant: Tenant) -> None:
            await tenant.ask(COUNTED)
            first = await tenant.step("plan", "one", ADD)
            assert (await tenant.step("plan", "one", ADD)).document == first.document
            assert not (await tenant.step("plan", "two", ADD)).replayed
            assert (await tenant.step("plan", "one", ADD)).replayed
            assert await tenant.count() == 2

        play(story)


def test_keys_of_two_databases_have_nothing_to_do_with_each_other(play: Callable[..., Any]) -> None:
    """
    The same scope and key, in another database of the tenant's.
    """

    async def story(tenant: Tenant) -> None:
        await tenant.ask(COUNTED)
        await tenant.ask(ADD, key="k")
        await tenant.engine.drop(NAMESPACE, "other")
        await tenant.engine.create(NAMESPACE, "other")
        await tenant.engine.query(NAMESPACE, "other", COUNTED)
        again = await tenant.engine.query(NAMESPACE, "other", ADD, identity=Keyed(SCOPE, "k"))
        assert not again.replayed
        assert await tenant.count() == 1

    play(story)
