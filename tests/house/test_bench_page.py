"""The page of the benchmarks is what was measured, and its rules of judging are kept. No times are judged here."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT_BYTES_MAX = 120_000


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT))
    yield


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_page", ROOT / "tools" / "benchmarks_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _measured(**ratios: float) -> dict[str, Any]:
    """A group `sqlite` whose adapters had these ratios in the first row's case."""
    found = {
        name.replace("_", "-"): {"ratio": ratio, "least": ratio, "greatest": ratio, "cpu": 0.5}
        for name, ratio in ratios.items()
    }
    return {"sqlite": {"tables": {"fresh_seq": {"reference": "raw", "measured": found}}}}


def test_the_page_is_what_was_measured() -> None:
    """
    docs/reference/benchmarks.md is what the tool makes of benchmarks.json: nobody edits a figure by hand.
    """
    tool = _tool()

    assert tool.PAGE.read_text(encoding="utf-8") == tool.made(), "run make bench-page"
    assert len(tool.MEASURED.read_bytes()) <= KEPT_BYTES_MAX


def test_a_figure_that_changes_changes_the_page() -> None:
    """The control: the comparison above looks at the figures."""
    tool = _tool()
    measured = json.loads(tool.MEASURED.read_text(encoding="utf-8"))
    words = tool.WORDS.read_text(encoding="utf-8")
    first = measured["sqlite"]["tables"]["fresh_seq"]["measured"]["ours"]

    before = tool.page(words, measured)
    first["ratio"] += 0.25

    assert tool.page(words, measured) != before


def test_every_group_has_its_figures_on_the_page() -> None:
    """
    A group that the bench can run is mentioned in the page's words, with a figure of its own.
    """
    from bench.settings import GROUPS

    words = (ROOT / "bench" / "benchmarks_page.md").read_text(encoding="utf-8")
    figures = {figure.split("/")[0] for figure in re.findall(r"\{\{(?:matrix )?([a-z/-]+)\}\}", words)}

    assert set(GROUPS) - figures == set()


@pytest.mark.parametrize(
    ("ratios", "aim", "met", "against_peer"),
    [
        ({"record": 1.0, "ours": 0.94}, 0.9, True, ""),  # Nine tenths of the limit is the aim.
        ({"record": 1.0, "ours": 0.89}, 0.9, False, ""),
        ({"record": 1.0, "record_group": 1.5, "ours": 0.94}, 0.95, False, ""),  # The limit is the best way by hand.
        ({"record": 1.0, "peer_e": 0.98, "ours": 0.94}, 0.9, True, "level"),
        ({"record": 1.0, "peer_e": 1.02, "agent_once": 0.5, "ours": 0.94}, 0.9, True, "behind"),
        ({"record": 1.0, "peer_e": 0.8, "ours": 0.94}, 0.9, True, "ahead"),
        ({"record": 1.0, "peer_e_normal": 4.0, "ours": 0.94}, 0.9, True, ""),  # Not as durable: no peer here.
    ],
)
def test_rows_are_judged_by_the_rules(ratios: dict[str, float], aim: float, met: bool, against_peer: str) -> None:
    """
    An aim above 0.9 of the best way by hand is lowered to that; within five per cent of the best peer is level.
    """
    from bench.table import ROWS, judge

    judged = judge(ROWS[0], _measured(**ratios))

    assert (round(judged.aim, 3), judged.met, judged.against_peer) == (aim, met, against_peer)


def test_a_row_that_was_not_measured_is_neither_met_nor_missed() -> None:
    """
    It is left out of the table, and others are not.
    """
    from bench.table import ROWS, judge, lines

    groups = _measured(raw=1.0, ours=0.94)

    assert judge(ROWS[1], groups).met is None
    assert [line.split(" | ")[0] for line in lines(groups)[1:]] == [f"| {ROWS[0].case}"]
    assert lines({}) == []


def test_listening_is_judged_by_cpu_time() -> None:
    """
    At most 15 per cent more CPU time with a listener; the speed does not count.
    """
    from bench.table import ROWS, judge

    row = next(row for row in ROWS if row.more_cpu and row.group == ("metrics",))

    def measured(cpu: float) -> dict[str, Any]:
        one = {row.ours: {"ratio": 0.1, "least": 0.1, "greatest": 0.1, "cpu": cpu}}
        return {"metrics": {"tables": {row.measured: {"reference": "ours", "measured": one}}}}

    assert (judge(row, measured(0.9)).met, judge(row, measured(0.8)).met) == (True, False)


@pytest.mark.parametrize(
    ("case", "measured", "met"),
    [
        ("the service, keyed write", {"ratio": 0.1, "cpu": 0.7}, True),  # By CPU time of server and workers.
        ("the service, keyed write", {"ratio": 2.0, "cpu": 0.6}, False),
        ("the service, replay", {"ratio": 0.1, "cpu": 0.6}, True),
        ("the service, replay", {"ratio": 2.0, "cpu": 0.58}, False),
        ("the service, read of one row", {"ratio": 0.5, "cpu": 0.1}, True),  # By speed.
        ("the service, read of one row", {"ratio": 0.49, "cpu": 1.0}, False),
        ("the ledger, a hundred deltas a transaction", {"ratio": 0.08, "cpu": 0.1}, True),
        ("the ledger, a hundred deltas a transaction", {"ratio": 0.07, "cpu": 0.1}, False),
        ("the relay, SQLite", {"ratio": 0.52, "cpu": 0.1}, True),
        ("the relay, PostgreSQL", {"ratio": 0.6, "cpu": 1.0}, False),
    ],
)
def test_service_ledger_and_relay_are_judged_in_the_table(case: str, measured: dict[str, float], met: bool) -> None:
    """
    Against what version 0.1.0 took in the same groups: half of the CPU time, or twice the speed; a read has half of a
    bare application's speed.
    """
    from bench.table import ROWS, judge

    [row] = [row for row in ROWS if row.case == case]
    one = {"least": 0.1, "greatest": 2.0, **measured}
    table = {row.measured: {"reference": "bare", "measured": {row.ours: one}}}

    assert judge(row, {row.group[0]: {"tables": table}}).met is met


@pytest.mark.parametrize("group", ["service", "ledger", "relay", "metrics"])
def test_a_row_names_what_its_group_measures(group: str) -> None:
    """
    Its case and its adapter are those of the group: a row that nothing is measured for would never be judged.
    """
    from bench import adapters, group_ledger, group_metrics, group_relay, group_service
    from bench.table import ROWS

    measured: dict[str, tuple[Iterable[str], Iterable[str]]] = {
        "service": (group_service.CASES, group_service.LABELS),
        "ledger": (group_ledger.CASES, group_ledger.EMITS),
        "relay": ([group_relay.CASE], group_relay.LABELS),
        "metrics": (group_metrics.TITLES, adapters.METRICS),
    }
    cases, names = measured[group]
    rows = [row for row in ROWS if row.group == (group,)]

    assert rows
    assert [row.case for row in rows if row.measured not in cases or {row.ours, *row.limits} - set(names)] == []


def test_a_partial_run_replaces_its_own_groups_only(tmp_path: Path) -> None:
    """
    Groups that were not measured now keep their figures, their day and their load.
    """
    from bench import summary

    kept = tmp_path / "kept.json"
    summary.save(kept, {"sqlite": {"date": "2026-01-01"}, "keys": {"date": "2026-01-01"}})
    summary.save(kept, {"keys": {"date": "2026-02-02"}})

    assert json.loads(kept.read_text()) == {"sqlite": {"date": "2026-01-01"}, "keys": {"date": "2026-02-02"}}


def test_what_is_kept_has_medians_and_no_slices() -> None:
    """
    The ratio is taken within a round, its median is kept with the least and the greatest, and so is that of CPU time.
    """
    from bench.summary import condensed

    def slices(*operations: int) -> list[dict[str, float]]:
        return [{"operations": number, "seconds": 1.0, "cpu": 0.5} for number in operations]

    both = {"raw": slices(100, 1000, 10), "ours": slices(90, 900, 5), "half": slices(90)}

    kept = condensed({"tables": {"fresh_seq": {"title": "fresh", "reference": "raw", "slices": both}}})

    table = kept["tables"]["fresh_seq"]
    assert set(table) == {"title", "reference", "measured"}
    assert set(table["measured"]) == {"raw", "ours"}  # What broke on the way has no median.
    ours = table["measured"]["ours"]
    assert (ours["ratio"], ours["least"], ours["greatest"], ours["cpu"]) == (0.9, 0.5, 0.9, 0.9)


def test_no_name_of_a_package_is_kept_that_the_pages_do_not_say() -> None:
    """
    What is kept are the adapters' names and labels, so a label says `peer E`.
    """
    from bench import adapters

    groups = (adapters.SQLITE, adapters.POSTGRES, adapters.REDIS, adapters.HTTP, adapters.METRICS, adapters.ATOMIC)
    labels = " ".join(f"{name} {known.label}" for group in groups for name, known in group.items())

    assert "exactly" not in labels
