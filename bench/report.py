"""Tables and aims, in words."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.interleave import Table


class Aim(NamedTuple):
    """What a ratio should be, at least or at most."""

    case: str
    name: str
    bound: float
    what: str
    at_most: bool = False

    def verdict(self, measured: float | None) -> str:
        """One line: the aim, what was measured, and whether it is met."""
        wish = f"{'at most' if self.at_most else 'at least'} {self.bound:g}"
        if measured is None:
            return f"aim  NOT MEASURED  {self.what}: {wish}"
        met = measured <= self.bound if self.at_most else measured >= self.bound
        return f"aim  {'met   ' if met else 'MISSED'}  {self.what}: {wish}, measured {measured:.2f}"


def print_table(
    title: str,
    table: Table,
    labels: Mapping[str, str],
    *,
    as_time: bool = False,
    unit: str = "ops/s",
) -> None:
    """One case, the fastest first. `as_time`: the ratio is of times, so that less is better."""
    print(f"\n### {title}\n")
    better = "less is better" if as_time else "more is better"
    print(f"| {better} | ratio (median) | spread | by CPU time | {unit} | CPU us/op |\n|---|---|---|---|---|---|")
    names = sorted(
        (name for name in table.slices if table.complete(name)), key=lambda name: -statistics.median(table.ratios(name))
    )
    for name in names:
        ratios = shown_ratios(table, name, as_time=as_time)
        slices = table.slices[name]
        rate = statistics.median(one.rate for one in slices)
        cpu = sum(one.cpu for one in slices) / max(1, sum(one.operations for one in slices)) * 1e6
        shown = f"{1e6 / rate:.1f}" if unit == "us/op" else f"{rate:.0f}"
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        cpu_shown = f"{cpu:.0f}" if cpu >= 20 else f"{cpu:.1f}"
        by_cpu = statistics.median(table.cpu_ratios(name))
        by_cpu = 1 / by_cpu if as_time else by_cpu
        print(f"| {labels[name]} | {statistics.median(ratios):.2f} | {spread} | {by_cpu:.2f} | {shown} | {cpu_shown} |")


def shown_ratios(table: Table, name: str, *, as_time: bool) -> list[float]:
    """The ratios as they are shown: of speeds, or of times."""
    ratios = table.ratios(name)
    return [1 / ratio for ratio in ratios] if as_time else ratios


def measured(tables: list[Table], case: str, name: str, *, as_time: bool = False) -> float | None:
    """The median ratio of one adapter in one case, as it is shown."""
    for table in tables:
        if table.case == case and table.complete(name):
            return statistics.median(shown_ratios(table, name, as_time=as_time))
    return None


def print_aims(aims: Sequence[tuple[Aim, float | None]]) -> None:
    """All the aims of a group."""
    print()
    for aim, value in aims:
        print(aim.verdict(value))


def as_json(
    tables: list[Table],
    titles: Mapping[str, str],
    labels: Mapping[str, str],
    aims: Sequence[tuple[Aim, float | None]] = (),
    *,
    as_time: bool = False,
) -> dict[str, object]:
    """Every slice, for programs, and what is needed to print it again."""
    return {
        "tables": {
            table.case: {
                "title": titles[table.case],
                "reference": table.reference,
                "slices": {name: [one._asdict() for one in slices] for name, slices in table.slices.items()},
            }
            for table in tables
        },
        "labels": {name: labels[name] for table in tables for name in table.slices},
        "as_time": as_time,
        "aims": aims_as_json(aims),
    }


def aims_as_json(aims: Sequence[tuple[Aim, float | None]]) -> list[dict[str, object]]:
    """Each with what was measured."""
    return [{"what": aim.what, "bound": aim.bound, "at_most": aim.at_most, "measured": value} for aim, value in aims]
