"""Killed and resumed a few hundred times: one row and one mail for each line of the bank, every time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from reconciler_drill import Drill, Tally, kills_of

from servers import postgres


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_one_row_and_one_mail_for_each_line_wherever_it_is_killed(
    kind: str, mail_port: int, tmp_path: Path, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Half of the runs are on each database. Rows and confirmations are counted in the tables, mails at the server.
    """
    if kind == "postgres" and not postgres.wanted():
        pytest.skip("STORES leaves postgres out")
    runs, seed = pytestconfig.getoption("--runs"), pytestconfig.getoption("--seed")
    numbers = range(runs)[::2] if kind == "sqlite" else range(runs)[1::2]
    total: Counter[str] = Counter()
    with Drill(tmp_path, mail_port, tmp_path / "mails.jsonl") as drill:
        for number in numbers:
            url = f"sqlite:///{tmp_path}/books-{number}.db" if kind == "sqlite" else postgres.running().url()
            kills = kills_of(seed, number)
            tally = drill.run(url, kills)
            assert tally.faults == (), f"run {number} of seed {seed}, killed at {kills}: {tally}"
            total.update({name: value for name, value in tally._asdict().items() if isinstance(value, int)})
    with capsys.disabled():
        print(f"\n{kind}: {len(numbers)} runs, {told(total)}")
    assert total["killed"] > 0 or not numbers


def told(total: Counter[str]) -> str:
    """The figures."""
    names = [name for name in Tally._fields if name != "faults"]
    return ", ".join(f"{total[name]:,} {name}" for name in names)
