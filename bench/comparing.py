"""What every group that compares adapters does: start them, interleave their slices, print tables and verdicts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import peers
from bench.adapters import Known
from bench.interleave import Table, Worker, WorkerFailed, interleave, progress
from bench.report import Aim, as_json, measured, print_aims, print_table
from bench.settings import Settings

PLACE = "bench.slices:Slices"


class Field(NamedTuple):
    """Who is compared, in what, against whom."""

    known: Mapping[str, Known]
    references: Mapping[str, str]
    """By case, the adapter that is 1."""
    titles: Mapping[str, str]
    notes: Sequence[str] = ()
    address: Callable[[str], str] | None = None
    """Where an adapter finds its own part of the server; None where it needs but a folder."""
    place: str = PLACE
    """What a worker runs."""
    pinned: Mapping[str, str] = peers.PINNED | peers.DRIVERS
    """What the peers' environment must have."""


class Compared(NamedTuple):
    """What came of it."""

    tables: list[Table]
    working: dict[str, Known]
    broken: dict[str, str]


def compare(field: Field, settings: Settings, folder: Path) -> Compared:
    """Measure every adapter in every case, and print a table per case."""
    known = {name: one for name, one in field.known.items() if settings.peers or not one.peer}
    broken = _missing_peers(known, field, settings)
    workers = _start({name: one for name, one in known.items() if name not in broken}, field, folder, broken)
    cases = {
        case: (reference, [name for name, one in known.items() if case in one.cases])
        for case, reference in field.references.items()
    }
    try:
        tables = interleave(
            workers, cases, rounds=settings.rounds, seconds=settings.seconds, seed=settings.seed, broken=broken
        )
    finally:
        for worker in workers:
            worker.quit()
    for table in tables:
        print_table(field.titles[table.case], table, {name: one.label for name, one in known.items()})
    return Compared(tables, {name: one for name, one in known.items() if name not in broken}, broken)


def conclude(field: Field, compared: Compared) -> dict[str, Any]:
    """What is missing and what has to be said; what is kept. The aims are those of the whole run (`table.py`)."""
    print()
    for name, why in compared.broken.items():
        print(f"BROKEN OR MISSING, so not compared: {name}: {why}")
    for note in field.notes:
        print(f"note: {note}")
    labels = {name: one.label for name, one in field.known.items()}
    return {**as_json(compared.tables, field.titles, labels), "broken": compared.broken}


class OwnField(NamedTuple):
    """Adapters of this project alone, each in a process of its own."""

    place: str
    """What a worker runs; it is told the adapter's name, and its address if there is one."""
    labels: Mapping[str, str]
    titles: Mapping[str, str]
    cases: Mapping[str, tuple[str, list[str]]]
    """By case, the adapter that is 1, and all that are compared."""
    aims: Sequence[Aim]


def compare_own(
    field: OwnField,
    settings: Settings,
    folder: Path,
    seconds: float,
    address: Callable[[str], str | None] | None = None,
) -> dict[str, Any]:
    """Measure and print; what is kept of it."""
    broken: dict[str, str] = {}
    workers = []
    try:
        for name, label in field.labels.items():
            progress(f"starting {label}")
            where = None if address is None else address(name)
            more = () if where is None else (where,)
            try:
                workers.append(Worker(name, sys.executable, field.place, folder / name, name, *more))
            except WorkerFailed as error:
                broken[name] = str(error)
        tables = interleave(
            workers, field.cases, rounds=settings.rounds, seconds=seconds, seed=settings.seed, broken=broken
        )
    finally:
        for worker in workers:
            worker.quit()
    for table in tables:
        print_table(field.titles[table.case], table, field.labels)
    print()
    for name, why in broken.items():
        print(f"BROKEN: {name}: {why}")
    aims = [(aim, measured(tables, aim.case, aim.name)) for aim in field.aims]
    print_aims(aims)
    return {**as_json(tables, field.titles, field.labels, aims), "broken": broken}


def _missing_peers(known: Mapping[str, Known], field: Field, settings: Settings) -> dict[str, str]:
    if not settings.peers:
        print("\npeers: left out (--no-peers)")
        return {}
    if not any(one.peer for one in known.values()):
        return {}
    missing = peers.prepare(field.pinned)
    return {
        name: missing[package]
        for name, one in known.items()
        if one.peer and (package := peers.package_of(name)) in missing
    }


def _start(known: dict[str, Known], field: Field, folder: Path, broken: dict[str, str]) -> list[Worker]:
    workers = []
    for name, one in known.items():
        progress(f"starting {one.label}")
        where = [field.address(name)] if field.address is not None else []
        try:
            workers.append(Worker(name, python_of(one), field.place, folder / name, *arguments_of(one), *where))
        except WorkerFailed as error:
            broken[name] = str(error)
    return workers


def python_of(one: Known) -> str:
    """The Python that an adapter runs under."""
    return str(peers.PYTHON) if one.peer else sys.executable


def arguments_of(one: Known) -> list[str]:
    """What its worker is told first."""
    return [one.place, "separate" if one.separate else "shared"]
