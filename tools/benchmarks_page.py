"""
Makes docs/reference/benchmarks.md from what was measured (docs/reference/benchmarks.json) and the words around it.

    python tools/benchmarks_page.py          write the page
    python tools/benchmarks_page.py --check  say whether it is up to date

The words are in bench/benchmarks_page.md. What stands in double braces there is a figure: `{{matrix redis/always}}` is
the table of a group, one column per case; `{{counts sqlite fsyncs}}` what was counted; `{{aims keys}}` its own aims.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import table  # noqa: E402
from bench.settings import GROUPS  # noqa: E402

WORDS = ROOT / "bench" / "benchmarks_page.md"
MEASURED = ROOT / "docs" / "reference" / "benchmarks.json"
PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
MADE = "<!-- Made by `make bench-page` from benchmarks.json and bench/benchmarks_page.md. Change those. -->\n"
NOT_MEASURED = "Not measured yet."
MACHINE = ("system", "cores", "python", "sqlite")


def page(words: str, groups: Mapping[str, Any]) -> str:
    """The page as it should be."""

    def figure(found: re.Match[str]) -> str:
        kind, *arguments = found[1].split()
        return FIGURES[kind](groups, *arguments)

    return MADE + re.sub(r"\{\{(.+?)\}\}", figure, words)


def _at(groups: Mapping[str, Any], path: str) -> Any:
    place: Any = groups
    for name in path.split("/"):
        place = place.get(name) if isinstance(place, dict) else None
    return place


def _names(groups: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}`" for name in GROUPS)


def _table(groups: Mapping[str, Any]) -> str:
    return "\n".join(table.lines(groups)) or NOT_MEASURED


def _notes(groups: Mapping[str, Any]) -> str:
    return "\n".join(f"- {note}" for note in table.NOTES)


def _runs(groups: Mapping[str, Any]) -> str:
    rows = ["| group | day | rounds | load before | load during | peers |", "|---|---|---|---|---|---|"]
    machines: dict[str, list[str]] = {}
    for name in GROUPS:
        one = groups.get(name)
        if one is None:
            rows.append(f"| `{name}` | not measured yet | | | | |")
            continue
        machines.setdefault(_machine(one["machine"]), []).append(name)
        load, peers = one["load"], "yes" if one["peers"] else "left out"
        shown = f"{one['date']} | {one['rounds']} | {load['before']:g} | {load['during']:g} | {peers}"
        rows.append(f"| `{name}` | {shown} |")
    rows.append("")
    rows += [f"- {', '.join(names)}: {machine}" for machine, names in machines.items()]
    return "\n".join(rows)


def _machine(found: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in found.items() if name not in MACHINE)
    return f"{found['cores']} cores, {found['system']}, Python {found['python']}, SQLite {found['sqlite']}, {versions}"


def _matrix(groups: Mapping[str, Any], path: str) -> str:
    """One column per case, one row per adapter: the ratio, its spread, and the ratio by CPU time."""
    group = _at(groups, path)
    if not group:
        return NOT_MEASURED
    tables, as_time = group["tables"], group["as_time"]
    titles = [one["title"].partition(" (") for one in tables.values()]
    better = "time: less is better" if as_time else "speed: more is better"
    rows = [f"| {better} | {' | '.join(title for title, _, _ in titles)} |", "|---" * (len(titles) + 1) + "|"]
    if any(reference for _, _, reference in titles):
        shown = [reference.rpartition(")")[0].removesuffix(" = 1") for _, _, reference in titles]
        rows.append(f"| reference = 1 | {' | '.join(shown)} |")
    for name, label in group["labels"].items():
        cells = [_cell(one, name, as_time=as_time) for one in tables.values()]
        rows.append(f"| {_bold(name, label)} | {' | '.join(cells)} |")
    rows += [f"\nBroken or missing, so not compared: {name}." for name in group.get("broken", ())]
    return "\n".join(rows)


def _bold(name: str, label: str) -> str:
    return f"**{label}**" if name.startswith("ours") else label


def _cell(one: Mapping[str, Any], name: str, *, as_time: bool) -> str:
    found = one["measured"].get(name)
    if found is None:
        return "-"
    if name == one["reference"]:
        return f"1; {_figure(found['cpu_us'])} us CPU"
    if as_time:
        ratio, least, greatest, cpu = (1 / found[which] for which in ("ratio", "greatest", "least", "cpu"))
    else:
        ratio, least, greatest, cpu = (found[which] for which in ("ratio", "least", "greatest", "cpu"))
    return f"{_figure(ratio)} ({_figure(least)}-{_figure(greatest)}); CPU {_figure(cpu)}"


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.2f}"


def _counts(groups: Mapping[str, Any], path: str, what: str) -> str:
    group = _at(groups, path)
    counted = _at(group, what) if group else None
    if not counted:
        return NOT_MEASURED
    cases = list(dict.fromkeys(case for one in counted.values() for case in one))
    titles = [group["tables"][case]["title"].partition(" (")[0] if case in group["tables"] else case for case in cases]
    rows = [f"| | {' | '.join(titles)} |", "|---" * (len(cases) + 1) + "|"]
    for name, one in counted.items():
        shown = " | ".join(_numbers(one.get(case)) for case in cases)
        rows.append(f"| {_bold(name, group['labels'].get(name, name))} | {shown} |")
    return "\n".join(rows)


def _numbers(value: Any) -> str:
    if value is None:
        return "-"
    return " / ".join(f"{one:.2f}" for one in value) if isinstance(value, list) else f"{value:.2f}"


def _growth(groups: Mapping[str, Any]) -> str:
    group = groups.get("growth")
    if not group:
        return NOT_MEASURED
    rows = [
        "| | a claim among a million | bytes per record | purge of 1000, ms (median, greatest) | nothing due, ms "
        "| longest claim, ms | longest claim during a purge, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for store, label in (("sqlite", "SQLite"), ("postgres", "PostgreSQL"), ("redis", "Redis, `everysec`")):
        one = group.get(store)
        if not one or "a million" not in one["purged"] or not one["held"]:
            rows.append(f"| {label} | broken | | | | | |")
            continue
        purged, held = one["purged"]["a million"], one["held"]
        claim = _cell(one["tables"]["claim"], "a million", as_time=True)
        longest = [1e3 * held[which]["longest"] for which in ("quiet", "during")]
        rows.append(
            f"| {label} | {claim} | {purged['bytes']:.0f} | {purged['median_ms']:.0f}, {purged['greatest_ms']:.0f} | "
            f"{purged['idle_ms']:.1f} | {longest[0]:.0f} | {longest[1]:.0f} (longest batch "
            f"{1e3 * max(held['batches']):.0f}) |"
        )
    return "\n".join(rows)


def _crowd(groups: Mapping[str, Any]) -> str:
    crowds = _at(groups, "http/crowd")
    if not crowds:
        return NOT_MEASURED
    rows = ["| store | executions per key | equal responses | resident MB |", "|---|---|---|---|"]
    for store, one in crowds.items():
        listed = [", ".join(str(value) for value in one[what]) for what in ("effects", "answered")]
        memory = ", ".join(f"{kb / 1024:.1f}" for kb in one["resident_kb"])
        rows.append(f"| {store} | {listed[0]} | {listed[1]} | {memory} |")
    return "\n".join(rows)


def _inbox(groups: Mapping[str, Any]) -> str:
    group = groups.get("inbox")
    if not group:
        return NOT_MEASURED
    rows = ["| | p50, ms | p99, ms | p99, of the insert by hand's |", "|---|---|---|---|"]
    for name, label in group["labels"].items():
        times = group["times_ms"][name]
        rows.append(
            f"| {_bold(name, label)} | {times['p50']:.2f} | {times['p99']:.2f} | {group['ratios'][name]['hand']:.2f} |"
        )
    return "\n".join(rows)


def _aims(groups: Mapping[str, Any], path: str) -> str:
    group = _at(groups, path)
    if not group or not group.get("aims"):
        return ""
    rows = ["| aim | measured | |", "|---|---|---|"]
    for aim in group["aims"]:
        wish, found = f"{'at most' if aim['at_most'] else 'at least'} {aim['bound']:g}", aim["measured"]
        if found is None:
            rows.append(f"| {aim['what']}: {wish} | not measured | |")
            continue
        met = found <= aim["bound"] if aim["at_most"] else found >= aim["bound"]
        rows.append(f"| {aim['what']}: {wish} | {_figure(found)} | {'met' if met else '**missed**'} |")
    return "\n".join(rows)


FIGURES: dict[str, Callable[..., str]] = {
    "aims": _aims,
    "counts": _counts,
    "crowd": _crowd,
    "groups": _names,
    "growth": _growth,
    "inbox": _inbox,
    "matrix": _matrix,
    "notes": _notes,
    "runs": _runs,
    "table": _table,
}


def made() -> str:
    """The page of what is kept now."""
    return page(WORDS.read_text(encoding="utf-8"), json.loads(MEASURED.read_text(encoding="utf-8")))


def main() -> int:
    """Write it, or compare."""
    text = made()
    if sys.argv[1:] == ["--check"]:
        same = PAGE.read_text(encoding="utf-8") == text
        print("up to date" if same else "out of date: run make bench-page")
        return 0 if same else 1
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
