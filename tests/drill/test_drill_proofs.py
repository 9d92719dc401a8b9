"""The proofs on the embedded store: each holds, each goes wrong without its guard, and nothing is left behind."""

from __future__ import annotations

import os
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from drill_helpers import drilled, entry_of, nurseries_of, rows_of_file, scopes_at

from onceward import Gate
from onceward.drill.bench import Bench, DrillSetting
from onceward.drill.bundle import sealed
from onceward.drill.drill_run import run_proof
from onceward.drill.nursery import NurseryKeeper
from onceward.drill.proof import Proof
from onceward.drill.proofs import PROOFS
from onceward.runtime.environment import Environment
from onceward.stores import open_store


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """A drill of everything, on a file of its own."""
    return drilled(*PROOFS, seed=7)


class Past(Environment):
    """Two months ago."""

    def wall_us(self) -> int:
        return super().wall_us() - 60 * 86_400 * 1_000_000


@pytest.mark.slow
class TestEveryProof:
    """All of them, on SQLite."""

    @pytest.mark.parametrize("name", PROOFS)
    def test_holds_and_its_control_doubles(self, name: str, document: dict[str, Any]) -> None:
        """
        As many effects as operations with the guard, more without.
        """
        entry = entry_of(document, name)
        guarded, control = entry["guarded"], entry["control"]

        assert (entry["holds"], entry["why"], entry["broke"]) == (True, [], None)
        assert guarded["effects"] == guarded["operations"]
        assert control["effects"] > control["operations"]

    def test_the_verdict_follows(self, document: dict[str, Any]) -> None:
        """
        Every proof holds, none was left out: permitted.
        """
        assert (document["verdict"], document["reasons"], document["leftOut"]) == ("PERMITTED", [], {})

    def test_kills_are_at_both_sides_of_every_step(self, document: dict[str, Any]) -> None:
        """
        Before the claim, after it, after the effect, after the settle; in a transaction also around the commit.
        """
        places = set(entry_of(document, "kill")["guarded"]["effectsByBoundary"])
        steps = {f"{step}.{side}" for step in ("claim", "call", "settle") for side in ("before", "after")}

        assert places >= steps | {"drill.effect.after", "atomic drill.effect.after", "atomic commit.before"}

    def test_fifty_race(self, document: dict[str, Any]) -> None:
        """
        Fifty racers, one effect, forty-nine who are told.
        """
        race = entry_of(document, "race")["guarded"]

        assert (race["racers"], race["effects"], race["replayed"], race["answers"]) == (50, 1, 49, 1)

    def test_what_was_not_done_on_the_store_itself_is_said(self, document: dict[str, Any]) -> None:
        """
        A SQLite file has no line to cut, and the tables of outbox and inbox have fixed names.
        """
        assert "its write lock is held instead" in entry_of(document, "store-away")["where"][0]
        assert "a temporary SQLite file" in entry_of(document, "webhook")["where"][0]


class TestRetry:
    """The same insert, again and again."""

    @pytest.mark.requirement("B35")
    @pytest.mark.fault("drill-a-second-insert-counts-as-one")
    def test_three_inserts_affect_one_row_then_none(self) -> None:
        """
        "Run the same insert three times and watch the count stay at 1."
        """
        numbers = entry_of(drilled("retry", times=3), "retry")["guarded"]

        assert numbers["affected"] == [1, 0, 0]
        assert numbers["counts"] == [1, 1, 1]

    @pytest.mark.requirement("B36")
    @pytest.mark.fault("drill-without-a-guard-is-permitted")
    def test_without_the_constraint_two_inserts_are_two_rows_and_the_verdict_is_blocked(self) -> None:
        """
        The negative control: no unique constraint, two rows, and the drill fails loudly.
        """
        document = drilled("retry", times=2, guarded=False)

        assert entry_of(document, "retry")["guarded"]["counts"] == [1, 2]
        assert document["verdict"] == "BLOCKED"
        assert "does not hold: each operation has one effect" in document["reasons"][0]


class TestTheChecksThemselves:
    """A proof that cannot fail proves nothing."""

    def proof(self, run: Any) -> Proof:
        return Proof(name="planted", shows="nothing", without="anything", run=run)

    def judged(self, tmp_path: Path, run: Any) -> dict[str, Any]:
        with closing(NurseryKeeper()) as nurseries:
            setting = DrillSetting(f"sqlite:///{tmp_path / 's.db'}", "test:drill-planted", tmp_path, nurseries, 1)
            proof = self.proof(run)
            entry = run_proof(proof, setting)
        return sealed({"proofs": [entry]}, {proof.name: proof})

    @pytest.mark.fault("drill-a-void-proof-counts")
    def test_a_control_that_does_not_double_makes_the_proof_void(self, tmp_path: Path) -> None:
        """
        One effect with the guard and one without: nothing was shown, and the verdict is blocked.
        """
        document = self.judged(tmp_path, lambda bench: {"operations": 1, "effects": 1})

        assert document["verdict"] == "BLOCKED"
        assert "void: without anything nothing doubled" in document["reasons"][0]

    def test_a_proof_that_raises_blocks(self, tmp_path: Path) -> None:
        """
        It is an entry with its reason, and not the end of the drill.
        """

        def run(bench: Bench) -> dict[str, int]:
            raise RuntimeError("the disk is on fire")

        document = self.judged(tmp_path, run)

        assert document["verdict"] == "BLOCKED"
        assert "RuntimeError: the disk is on fire" in document["reasons"][0]

    def test_a_child_that_is_left_hanging_goes_with_its_proof(self, tmp_path: Path) -> None:
        """
        A proof that raises while a child of it is stopped: the child is gone, and so is its nursery.
        """

        def run(bench: Bench) -> dict[str, int]:
            task = bench.task("send", "k", at="drill.effect.after", action="stop", lease=1.0) | {"guarded": False}
            bench.nursery.start([task])
            bench.nursery.wait_for_stop()
            pids.extend(bench.nursery.pids)
            raise RuntimeError("in the middle")

        pids: list[int] = []
        self.judged(tmp_path, run)

        assert len(pids) == 1
        assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
        assert nurseries_of(os.getpid()) == []

    def test_in_memory_what_needs_other_processes_is_left_out_and_said(self) -> None:
        """
        The rest is run there, in threads of one process.
        """
        names = [name for name in PROOFS if name != "relay"]  # It has a file of its own wherever it runs.
        document = drilled(*names, url="memory://")

        assert (document["verdict"], document["reasons"]) == ("PERMITTED", [])
        assert list(document["leftOut"]) == ["kill", "late-finisher", "store-away"]
        assert entry_of(document, "race")["where"] == ["threads of one process: no other process can open this store"]

    def test_no_proof_is_no_permit(self) -> None:
        """
        Where every chosen proof is left out, nothing is permitted.
        """
        document = drilled("kill", url="memory://")

        assert document["leftOut"] == {"kill": "no other process can open this store"}
        assert (document["verdict"], document["reasons"]) == ("BLOCKED", ["no proof was run"])


class TestSeeds:
    """The same seed is the same run."""

    def bench(self, folder: Path, seed: int) -> Bench:
        folder.mkdir()
        with closing(NurseryKeeper()) as nurseries:
            return Bench(DrillSetting("memory://", "test:x", folder, nurseries, seed), "kill", guarded=True)

    def test_repeats_keys_and_order(self, tmp_path: Path) -> None:
        """
        Keys, and the order of kills, come from the seed; another seed is another run.
        """
        runs = []
        for folder, seed in (("a", 7), ("b", 7), ("c", 8)):
            bench = self.bench(tmp_path / folder, seed)
            runs.append((bench.key("k"), bench.random.sample(range(20), 20)))

        assert runs[0] == runs[1]
        assert runs[0] != runs[2]

    def test_two_runs_of_a_seed_never_meet(self) -> None:
        """
        The scope is random, so that a second run of the same seed finds nothing of the first.
        """
        url = "memory://two-runs-of-a-seed"

        assert [drilled("changed-body", url=url, seed=7)["verdict"] for _ in range(2)] == ["PERMITTED"] * 2


class TestWhatIsLeft:
    """On a store of somebody's own: nothing but what was there."""

    @pytest.fixture
    def theirs(self, tmp_path: Path) -> Path:
        """A store with a record that expired long ago, and a table."""
        path = tmp_path / "theirs.db"
        with Gate(open_store(f"sqlite:///{path}", environment=Past()), scope="live:theirs") as gate:
            gate.run("old", lambda: "long ago")
        return path

    @pytest.mark.fault("drill-tidies-for-others")
    def test_their_records_and_tables_are_as_they_were(self, theirs: Path) -> None:
        """
        Also what a purge might take: the drill deletes what is its own, and nothing else.
        """
        before = rows_of_file(theirs)
        # A gate tidies up after ten operations: `kill` has more.
        document = drilled("retry", "kill", "in-flight", "environments", url=f"sqlite:///{theirs}")

        assert document["verdict"] == "PERMITTED", document["reasons"]
        assert rows_of_file(theirs) == before
        assert scopes_at(f"sqlite:///{theirs}") == {"live:theirs"}
        assert nurseries_of(os.getpid()) == []

    @pytest.mark.fault("drill-leaves-its-records")
    def test_also_when_every_proof_breaks(self, theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        A proof that raises in its middle leaves neither records, nor tables, nor folders.
        """

        def broken(bench: Bench) -> dict[str, int]:
            bench.gate().run(bench.key("k"), lambda: True)
            with bench.table(constrained=True) as (table, _):
                table.count()
                raise RuntimeError("in the middle")

        before, folders = rows_of_file(theirs), set(Path(tempfile.gettempdir()).glob("onceward-drill-*"))
        monkeypatch.setitem(PROOFS, "retry", Proof(name="retry", shows="", without="", run=broken))
        document = drilled("retry", url=f"sqlite:///{theirs}")

        assert document["verdict"] == "BLOCKED"
        assert rows_of_file(theirs) == before
        assert set(Path(tempfile.gettempdir()).glob("onceward-drill-*")) <= folders
