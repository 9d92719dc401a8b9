"""From version 1 to 2: processes of both side by side, moved under load, killed in the middle and run again."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis_support import SCOPE, indexes, looking, opened

from onceward import Gate, StoreUnavailable
from onceward._core.errors import OncewardError, SchemaMismatch, StoreCorrupt
from onceward._core.record import PutResult, Record, Write
from onceward.stores import Selection, _redis_schema, _redis_upkeep
from onceward.stores._redis_connection import RedisConnection
from onceward.stores._redis_hash_rows import HashRows
from onceward.stores._redis_packed_rows import PackedRows
from onceward.stores._redis_url import parse, translate_error
from onceward.stores.redis import RedisStore
from onceward.testing.store_suite.rows import HOUR_US, doubted, released, row, settled, without_durations
from servers.redis import needed, running

needed()


class OldProcess:
    """A process of the version before: its scripts, which are the same text, and no knowledge of any other form."""

    def __init__(self, url: str) -> None:
        self._address = parse(url)
        self._connection = RedisConnection(self._address)
        self._rows = HashRows(self._address.options.prefix)

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        return self._rows.put_result(write, self._replies(self._rows.put(write, expect)))

    def load(self, id: bytes) -> Record | None:
        return self._rows.load_result(id, self._replies(self._rows.load(id)))

    def purge(self, id: bytes) -> list[Any]:
        return self._replies([self._rows.forget(id), self._rows.shrink(id, b"v" * 16)])

    def erase(self, id: bytes) -> list[Any]:
        return self._replies(self._rows.erase(id))

    def _replies(self, commands: Any) -> list[Any]:
        replies = self._connection.exchange(commands)
        for one in replies:
            if isinstance(one, Exception):
                raise translate_error(one, self._address)
        return replies

    def close(self) -> None:
        self._connection.drop()


@pytest.fixture
def url() -> str:
    """A store of version 1, noted as such."""
    made: str = running().url()
    running().ask("SET", f"{{{parse(made).options.prefix}:0}}:schema", "1")
    return made


@pytest.fixture
def old(url: str) -> Iterator[OldProcess]:
    """A process of the version before."""
    made = OldProcess(url)
    yield made
    made.close()


def every_state(old: Any) -> dict[str, Record]:
    """A record of every state, with every field filled in somewhere."""
    found: dict[str, Record] = {}

    def put(name: str, write: Write, expect: bytes | None = None) -> Record:
        result = old.put(write, expect)
        assert result.landed
        found[name] = result.record
        return result.record

    put("claimed", row(SCOPE, "claimed", holder=b"holder", operation="charge"))
    held = put("doubt", row(SCOPE, "doubt", kind="step", family=b"f" * 32))
    put("doubt", doubted(held), held.version)
    held = put("settled", row(SCOPE, "settled", family=b"f" * 32, guarantee="keyed"))
    put("settled", settled(held, result=b"\x00\xff" * 500), held.version)
    held = put("failed", row(SCOPE, "failed", kind="some.kind"))
    put("failed", settled(held, result=None, error=b"{}", codec=None, replay=None, forget=None), held.version)
    held = put("released", row(SCOPE, "released", fence=2**60 + 1))
    put("released", released(held), held.version)
    held = put("empty", row(SCOPE, "empty"))
    put("empty", settled(held, result=b"", error=b""), held.version)
    return found


def _lands(old: OldProcess, write: Write, expect: bytes | None) -> bool:
    """Whether a put of the version before lands."""
    try:
        return old.put(write, expect).landed
    except StoreCorrupt:
        return False


def moved_one_by_one(prefix: str, steps: int) -> bool:
    """Migrate, and give up after so many round trips, as if killed there; whether it came to its end."""
    connection = RedisConnection(parse(running().url(prefix=prefix)))
    walk = _redis_schema.migrate(prefix)
    try:
        commands = next(walk)
        for _ in range(steps):
            commands = walk.send(connection.exchange(commands))
    except StopIteration:
        return True
    finally:
        connection.drop()
    return False


MOVER = """
import sys
from onceward.stores import _redis_schema
from onceward.stores._redis_connection import RedisConnection
from onceward.stores._redis_url import parse
address = parse(sys.argv[1])
connection, walk = RedisConnection(address), _redis_schema.migrate(address.options.prefix)
commands = next(walk)
for _ in range(int(sys.argv[2])):
    commands = walk.send(connection.exchange(commands))
print("there", flush=True)
sys.stdin.read()
"""
"""Migrates, and waits to be killed after so many round trips."""


class TestSideBySide:
    """As long as nobody migrates, both versions work on the same records."""

    def test_each_sees_what_the_other_writes(self, url: str, old: OldProcess) -> None:
        """
        The new version writes a store of version 1 as the version before did.
        """
        with opened(url) as new:
            ours, theirs = row(SCOPE, "ours"), row(SCOPE, "theirs")
            new.put(ours, None)
            old.put(theirs, None)

            assert isinstance(new._server.rows, HashRows)
            assert old.put(row(SCOPE, "ours"), None).record.version == ours.version
            assert new.put(row(SCOPE, "theirs"), None).record.version == theirs.version
            assert len(new.scan(b"", 10, Selection())) == 2

    def test_a_store_that_was_never_noted_is_recognised(self) -> None:
        """
        The version before needed no `store init`: its rows alone say what they are.
        """
        url = running().url()
        before = OldProcess(url)
        found = before.put(row(SCOPE, "k"), None).record
        before.close()
        with opened(url) as new:
            assert isinstance(new._server.rows, HashRows)
            assert new.load(found.id).version == found.version

    def test_a_new_store_is_packed_and_shut_to_the_version_before(self) -> None:
        """
        A process of the version before that opens it by mistake can write nothing.
        """
        url = running().url()
        with opened(url) as new:
            found = new.put(row(SCOPE, "k"), None).record
            before = OldProcess(url)
            for key in ("k", *(f"k{number}" for number in range(40))):
                with pytest.raises(StoreCorrupt):
                    before.put(row(SCOPE, key), None)
            before.close()

            assert [one.version for one in new.scan(b"", 10, Selection())] == [found.version]

    @pytest.mark.fault("a-migration-leaves-the-old-door-open")
    def test_from_the_first_step_of_a_migration_no_put_of_the_version_before_lands(
        self, url: str, old: OldProcess
    ) -> None:
        """
        Neither a claim of a new key, nor a settle, nor a claim of a key that is packed already: refused, unchanged.
        """
        held = old.put(row(SCOPE, "held"), None).record
        ended = old.put(row(SCOPE, "ended"), None).record
        ended = old.put(settled(ended), ended.version).record
        assert not moved_one_by_one(parse(url).options.prefix, 6)  # Shut, and nothing is packed yet.
        puts = ((row(SCOPE, "new"), None), (settled(held), held.version), (row(SCOPE, "held"), None))
        landed = [_lands(old, write, expect) for write, expect in puts]
        with opened(url) as new:
            shown = new.put(row(SCOPE, "held"), None)  # It is packed now.

            assert (landed, _lands(old, row(SCOPE, "held"), None)) == ([False] * 3, False)
            assert (shown.landed, shown.record.version) == (False, held.version)
            assert new.put(settled(held), held.version).landed
            assert new.load(row(SCOPE, "new").id) is None
            assert new.load(ended.id).version == ended.version

    def test_a_process_of_this_version_that_had_not_heard_goes_on(self, url: str) -> None:
        """
        It was opened before the migration: its next put is refused, and it reads the note and sends it again.
        """
        with opened(url) as late, Gate(late, scope=SCOPE) as gate:
            assert gate.run("before", lambda: 1) == 1
            held = late.put(row(SCOPE, "held"), None).record
            _redis_upkeep.migrate(url)

            assert late.load(held.id).version == held.version
            assert gate.run("before", lambda: 2) == 1
            assert gate.run("after", lambda: 3) == 3
            assert late.put(settled(held), held.version).landed
            assert isinstance(late._server.rows, PackedRows)

    @pytest.mark.parametrize("call", ["load", "scan", "purge", "extend", "erase", "put_back"])
    def test_every_call_of_such_a_process_notices(self, url: str, old: OldProcess, call: str) -> None:
        """
        Also those that would take a shard whose rows have moved for an empty one.
        """
        states = every_state(old)
        with opened(url) as late:
            assert isinstance(late._server.rows, HashRows)
            _redis_upkeep.migrate(url)
            done: Any = {
                "load": lambda: late.load(states["settled"].id).version == states["settled"].version,
                "scan": lambda: len(late.scan(b"", 10, Selection())) == len(states),
                "purge": lambda: tuple(late.purge(10)) == (0, 0),
                "extend": lambda: late.extend(b"f" * 32, 10 * HOUR_US, 20 * HOUR_US) == 1,
                "erase": lambda: late.erase([states["claimed"].id]) == 1,
                "put_back": lambda: late.put_back(settled(states["claimed"]), []).landed is False,
            }[call]()

            assert done
            assert isinstance(late._server.rows, PackedRows)


class TestTheRows:
    """What was stored before is what is read after."""

    def test_every_field_of_every_state_is_the_same(self, url: str, old: OldProcess) -> None:
        """
        Moved by the migration, and durations go on from where they were.
        """
        states = every_state(old)
        before = {name: old.load(found.id) for name, found in states.items()}
        assert _redis_upkeep.planned(url).scripts == (f"redis_0002 ({len(states)} rows)",)
        assert _redis_upkeep.migrate(url) == (1, 2)
        with opened(url) as new, looking(running()) as client:
            after = {name: new.load(found.id) for name, found in states.items()}
            sizes = indexes(client, new)
            left = [key for key in client.scan_iter(f"{{{new._server.prefix}:*") if len(key.partition(b"}:")[2]) == 64]

        assert {n: without_durations(one) for n, one in after.items()} == {
            n: without_durations(one) for n, one in before.items()
        }
        for name, found in after.items():
            for span in ("lease_left", "replay_left", "forget_left"):
                was, now = getattr(before[name], span), getattr(found, span)
                assert (was is None) == (now is None)
                if was is not None:
                    assert 0 <= was - now < HOUR_US // 60
            assert 0 <= found.age - before[name].age < HOUR_US // 60
        assert (sizes["ids"], sizes["open"], sizes["families"], left) == (6, 2, 2, [])
        assert _redis_upkeep.planned(url).scripts == ()

    @pytest.mark.fault("a-touched-row-is-not-moved")
    def test_a_row_that_was_not_moved_yet_is_read_listed_settled_and_replayed(self, url: str, old: OldProcess) -> None:
        """
        In the middle of a migration: each call packs what it touches.
        """
        states = every_state(old)
        prefix = parse(url).options.prefix
        assert not moved_one_by_one(prefix, 6)
        with opened(url) as new:
            assert isinstance(new._server.rows, PackedRows)
            assert new.put(row(SCOPE, "settled"), None).record.result == b"\x00\xff" * 500
            assert new.put(settled(states["claimed"]), states["claimed"].version).landed
            assert len(new.scan(b"", 10, Selection())) == len(states)
            assert len(new.scan(b"", 10, Selection(unsettled=True))) == 1
            assert new.extend(b"f" * 32, 10 * HOUR_US, 20 * HOUR_US) == 1
            assert new.erase([states["failed"].id]) == 1
            assert moved_one_by_one(prefix, 10_000)
            assert len(new.scan(b"", 10, Selection())) == len(states) - 1

    def test_fences_go_on_rising(self, url: str, old: OldProcess) -> None:
        """
        What version 1 noted as the greatest fence of a shard is below every claim after the migration.
        """
        held = old.put(row(SCOPE, "k", fence=2**60 + 1), None).record
        ended = old.put(released(held, forget=1), held.version).record
        with looking(running()) as client, opened(url) as new:
            client.delete(f"{{{new._server.prefix}:{held.id.hex()[0]}}}:{held.id.hex()}")
            _redis_upkeep.migrate(url)

            assert new.put(row(SCOPE, "k"), None).record.fence == ended.fence + 1

    def test_after_the_migration_the_version_before_is_told_and_not_shown_an_empty_store(
        self, url: str, old: OldProcess
    ) -> None:
        """
        Its erase and its purge would otherwise say that there was nothing to do.
        """
        states = every_state(old)
        _redis_upkeep.migrate(url)

        for call in (lambda: old.erase(states["settled"].id), lambda: old.purge(states["settled"].id)):
            with pytest.raises(StoreCorrupt):
                call()


class TestKilledInTheMiddle:
    """After each of its round trips."""

    @pytest.mark.slow
    def test_run_again_it_comes_to_its_end_and_nothing_is_lost(self, url: str, old: OldProcess) -> None:
        """
        Given up one step later each time, until it is through.
        """
        states = every_state(old)
        prefix, steps = parse(url).options.prefix, 0
        while not moved_one_by_one(prefix, steps):
            steps += 1
            assert steps < 1_000
        with opened(url) as new:
            found = {one.id: one.version for one in new.scan(b"", 100, Selection())}

        assert found == {one.id: one.version for one in states.values()}
        assert steps > 10

    @pytest.mark.slow
    def test_a_process_is_killed_while_many_work(self, url: str, old: OldProcess) -> None:
        """
        SIGKILL after so many of its round trips, again and again, while gates of this version run operations: each
        happens once, whether its key was settled before the migration, claimed during it, or not used yet.
        """
        with opened(url) as first, Gate(first, scope=SCOPE) as gate:
            for number in range(1_500):
                gate.run(f"k{number}", lambda number=number: number)
        effects: list[str] = []
        answers: dict[str, Any] = {}
        stop = threading.Event()

        def work(name: int) -> None:
            with Gate(url, scope=SCOPE) as mine:
                number = name
                while not stop.is_set() or number < 900:
                    for key in (f"k{number % 1_500}", f"new{name}:{number}"):
                        answers[key] = mine.run(key, lambda key=key: effects.append(key) or f"ran {key}")
                    number += 3

        threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
        for thread in threads:
            thread.start()
        for steps in (1, 4, 9, 16, 25):
            with subprocess.Popen(
                [sys.executable, "-c", MOVER, url, str(steps)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            ) as migrating:
                assert migrating.stdout is not None
                assert migrating.stdout.readline() == "there\n"
                migrating.send_signal(signal.SIGKILL)
        _redis_upkeep.migrate(url)
        stop.set()
        for thread in threads:
            thread.join(60)
        with opened(url) as new:
            count = len(new.scan(b"", 100_000, Selection()))

        print(f"{len(answers)} keys, {len(effects)} effects")
        assert len(set(effects)) == len(effects)
        assert all(answer == int(key[1:]) for key, answer in answers.items() if key.startswith("k"))
        assert {key for key in answers if key.startswith("new")} == set(effects)
        assert count == 1_500 + len(effects)
        assert _redis_upkeep.planned(url).scripts == ()


class TestShards:
    """How many there are is chosen once, and read by everybody."""

    @pytest.mark.parametrize("shards", [1, 3, 16, 64, 257])
    def test_a_store_works_with_any_number(self, shards: int) -> None:
        """
        Operations, lists in order, families and purges; a process that opens it later reads the number.
        """
        url = running().url()
        assert f"{shards} shards" in _redis_upkeep.init_sharded(url, shards)
        with opened(url) as store, Gate(store, scope=SCOPE) as gate:
            first = [gate.run(f"k{number}", lambda number=number: number) for number in range(60)]
            again = [gate.run(f"k{number}", lambda: "again") for number in range(60)]
            held = store.put(row(SCOPE, "step", family=b"f" * 32), None).record
            store.put(settled(held), held.version)
            gone = store.put(row(SCOPE, "gone"), None).record
            store.put(settled(gone, replay=1, forget=1), gone.version)
            time.sleep(0.01)
            extended, purged = store.extend(b"f" * 32, 1, 1), store.purge(10)
            ids = [one.id for one in store.scan(b"", 100, Selection())]

            assert store._server.rows.shards == shards
        assert first == again == list(range(60))
        assert (extended, tuple(purged), ids) == (1, (1, 0), sorted(ids))
        assert len(ids) == 61

    def test_another_number_is_refused_later(self) -> None:
        """
        Also on a store that was made without being asked, with sixteen.
        """
        url = running().url()
        with opened(url):
            pass
        assert "16 shards" in _redis_upkeep.init(url)
        with pytest.raises(OncewardError, match="has 16 shards"):
            _redis_upkeep.init_sharded(url, 32)
        for wrong in (0, -1, 1_025):
            with pytest.raises(OncewardError, match="1 to 1024"):
                _redis_upkeep.init_sharded(running().url(), wrong)

    @pytest.mark.fault("a-changed-number-of-shards-is-believed")
    @pytest.mark.parametrize("note", ["2 32", "2 15", "2", "2 0", "2 many", "2 16 16", "2 99999", "2 32 moving", "x"])
    def test_a_note_that_somebody_changed_is_refused_and_nothing_is_written(self, note: str) -> None:
        """
        With another number, keys would be looked for in other shards, and operations would run twice.
        """
        url = running().url()
        with opened(url) as store, looking(running()) as client:
            for number in range(40):
                store.put(row(SCOPE, f"k{number}"), None)
            before = sorted(client.scan_iter(f"{{{store._server.prefix}:*"))
            client.set(f"{{{store._server.prefix}:0}}:schema", note)
            refused = 0
            for number in range(40):
                try:
                    with opened(url) as wrong:
                        assert wrong.put(row(SCOPE, f"k{number}"), None).landed is False
                except SchemaMismatch:
                    refused += 1

            assert sorted(client.scan_iter(f"{{{store._server.prefix}:*")) == before
            assert refused > 0
            assert store.put(row(SCOPE, "k1"), None).landed is False

    def test_a_store_whose_keys_were_all_deleted_begins_anew(self) -> None:
        """
        FLUSHALL under a running process: what it held is forgotten, and it goes on.
        """
        with opened(running().url()) as store, looking(running()) as client:
            store.put(row(SCOPE, "k"), None)
            client.delete(*client.scan_iter(f"{{{store._server.prefix}:*"))

            assert store.put(row(SCOPE, "k"), None).landed
            assert store.put(row(SCOPE, "k"), None).landed is False


def test_a_store_of_a_later_version_is_refused_by_every_opening() -> None:
    """
    Half understood is worse than an error.
    """
    url = running().url()
    running().ask("SET", f"{{{parse(url).options.prefix}:0}}:schema", "3 16")
    with pytest.raises(SchemaMismatch, match="upgrade"), opened(url) as store:
        store.load(bytes(32))


def test_a_store_opened_while_the_server_was_away_learns_its_form_later() -> None:
    """
    A program may start before its server: the first call asks.
    """
    from servers.redis import started

    with started() as server:
        url = server.url()
        _redis_upkeep.init_sharded(url, 5)
        server.kill()
        store = RedisStore.from_url(url)
        with pytest.raises(StoreUnavailable):
            store.scan(b"", 1, Selection())
        server.start()
        found = store.scan(b"", 1, Selection())
        landed = store.put(row(SCOPE), None).landed
        store.close()

    assert (found, landed, store._server.rows.shards) == ([], True, 5)
