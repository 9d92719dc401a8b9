"""Resealing: every value under the key that seals now, and nothing else changed."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from seal_support import Bench

from onceward import InDoubt
from onceward._core.record_types import Record, Selection
from onceward._core.sealing import Sealer, key_id_of
from onceward.errors import RecordedFailure, SealBroken
from onceward.gate import Sealed
from onceward.gate.resealing import ResealProgress, reseal_store
from onceward.stores import open_store


class OneScope:
    """A store that shows one scope only: servers are shared by all tests."""

    def __init__(self, store: Any, scope: str) -> None:
        self.store, self.scope = store, scope
        self.before_put: Any = None

    def scan(self, after: bytes, limit: int, selection: Selection) -> list[Record]:
        return self.store.scan(after, min(limit, 2), Selection(scope=self.scope))

    def put(self, write: Any, expect: bytes | None) -> Any:
        if self.before_put is not None:
            self.before_put()
            self.before_put = None
        return self.store.put(write, expect)


def resealed(bench: Bench, seal: Sealed, *, before_put: Any = None, pages: int | None = None) -> ResealProgress:
    """Run it on the bench's store, as a command does; killed after so many pages."""
    progress = ResealProgress()
    with closing(open_store(bench.url)) as store:
        shown = OneScope(store, bench.scope)
        shown.before_put = before_put
        steps = reseal_store(shown, Sealer(seal), lambda scope: seal.key_ids[0], progress)  # type: ignore[arg-type]
        for number, _ in enumerate(steps, 1):
            if number == pages:
                break
    return progress


def everything(bench: Bench) -> dict[bytes, Record]:
    """All records of the scope, as the store has them."""
    with closing(open_store(bench.url)) as store:
        return {one.id: one for one in store.scan(b"", 100, Selection(scope=bench.scope))}


def _ran() -> Any:
    pytest.fail("it ran again")


def test_every_value_comes_under_the_new_key_and_nothing_else_changes(bench: Bench) -> None:
    """
    Plain ones, those under the old key, failures, and what is in doubt; and a second time there is nothing to do.
    """
    old, new = Sealed.new_key(), Sealed.new_key()
    for gate, name in ((bench.gate(), "plain"), (bench.gate(Sealed(old)), "old"), (bench.gate(Sealed(new)), "new")):
        bench.run(gate, name, {"of": name})
        with pytest.raises(ValueError, match=name):
            bench.run(gate, f"{name}-failed", ValueError(name), remember="all")
        with pytest.raises(TimeoutError):
            bench.run(gate, f"{name}-doubt", TimeoutError(name))
    before = everything(bench)
    progress = resealed(bench, Sealed(new, old))
    after = everything(bench)

    assert (progress.looked_at, progress.resealed, progress.held, progress.unreadable) == (9, 6, 0, 0)
    values = [value for one in after.values() for value in (one.result, one.error) if value is not None]
    assert {key_id_of(value) for value in values} == {Sealed(new).key_ids[0]}
    for id, one in after.items():
        ours, theirs = _unchanging(before[id]), _unchanging(one)
        assert theirs == ours
        assert (one.replay_left is None) == (before[id].replay_left is None)
    gate = bench.gate(Sealed(new), sealed_only=True)
    for name in ("plain", "old", "new"):
        assert bench.do(gate.run(name, _ran)) == {"of": name}
        with pytest.raises(RecordedFailure, match=name):
            bench.do(gate.run(f"{name}-failed", _ran, remember="all"))
        with pytest.raises(InDoubt, match=name):
            bench.do(gate.run(f"{name}-doubt", _ran))
    assert resealed(bench, Sealed(new, old)).resealed == 0


def _unchanging(one: Record) -> tuple[Any, ...]:
    """What a reseal must leave as it is."""
    return (
        *one[: Record._fields.index("version")],
        *(one.token, one.fence, one.attempt, one.first_at, one.settled_at, one.holder),
    )


@pytest.mark.fault("a-reseal-touches-claims")
def test_a_claim_is_never_touched(bench: Bench) -> None:
    """
    Whoever runs an operation meanwhile ends it as if nobody had been there.
    """
    seal = Sealed(Sealed.new_key())
    gate = bench.gate()

    def work() -> Any:
        (held,) = everything(bench).values()
        progress = resealed(bench, seal)
        (still,) = everything(bench).values()
        return {"version": still.version == held.version, "resealed": progress.resealed}

    assert bench.do(gate.run("charge", work)) == {"version": True, "resealed": 0}
    assert bench.do(gate.run("charge", _ran)) == {"version": True, "resealed": 0}


@pytest.mark.fault("a-reseal-writes-over-others")
def test_whoever_writes_meanwhile_wins(bench: Bench) -> None:
    """
    Erased and run again between the look and the write: the new answer stands.
    """
    if bench.colour == "awaiting":
        pytest.skip("the command blocks")
    gate, seal = bench.gate(), Sealed(Sealed.new_key())
    bench.run(gate, "charge", "the first")

    def meanwhile() -> None:
        gate.records.erase()
        bench.run(gate, "charge", "the second")

    progress = resealed(bench, seal, before_put=meanwhile)

    assert bench.run(bench.gate(seal), "charge", "it ran") == "the second"
    assert progress.resealed == 1, "what came meanwhile was sealed, too"


def test_killed_in_the_middle_it_is_simply_run_again(bench: Bench) -> None:
    """
    After the first page; the second run does the rest.
    """
    gate, seal = bench.gate(), Sealed(Sealed.new_key())
    for number in range(5):
        bench.run(gate, f"charge-{number}", number)
    first = resealed(bench, seal, pages=1)
    second = resealed(bench, seal)

    assert (first.resealed, second.resealed) == (2, 3)
    strict = bench.gate(seal, sealed_only=True)
    assert [bench.do(strict.run(f"charge-{number}", _ran)) for number in range(5)] == list(range(5))


def test_what_does_not_open_is_told_and_left_alone(bench: Bench) -> None:
    """
    A row under a key that is gone, and one that was tampered with.
    """
    gone, old, new = Sealed.new_key(), Sealed.new_key(), Sealed.new_key()
    bench.run(bench.gate(Sealed(gone)), "gone", 1)
    bench.run(bench.gate(Sealed(old)), "carol", 2)
    bench.change("carol", result=bench.row("carol")["result"][:-1] + b"\0")
    before = {id: one.version for id, one in everything(bench).items()}
    progress = resealed(bench, Sealed(new, old))

    assert (progress.resealed, progress.unreadable) == (0, 2)
    assert sorted(progress.digests) == sorted(id.hex()[:12] for id in before)
    assert {id: one.version for id, one in everything(bench).items()} == before
    assert bench.do(bench.gate(Sealed(gone)).run("gone", _ran)) == 1
    with pytest.raises(SealBroken):
        bench.do(bench.gate(Sealed(old)).run("carol", _ran))
