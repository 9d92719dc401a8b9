"""
Runs proofs one after the other, each with its control, and seals what they came to. Leaves nothing behind.
"""

from __future__ import annotations

import os
import platform
import signal
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from onceward import __version__
from onceward._core.errors import OncewardError
from onceward.drill.bench import Bench, DrillSetting
from onceward.drill.bundle import FORMAT, sealed
from onceward.drill.drill_gate import erase_scope, open_gate
from onceward.drill.nursery import NurseryKeeper
from onceward.drill.proof import FORK, PROCESSES, Proof
from onceward.drill.proofs import PROOFS
from onceward.drill.proofs.environments import live_twin
from onceward.drill.proofs.store_away import STORE_AWAY, cannot_be_cut
from onceward.runtime.environment import REAL
from onceward.runtime.progress import Progress, silent
from onceward.stores import open_store
from onceward.stores._store_kinds import kind_of, scheme_of

Tell = Callable[[str], None]
"""Told what is going on, a line at a time."""


class DrillOrder(NamedTuple):
    """What somebody wants to be proved, and where."""

    names: Sequence[str]
    """Of proofs."""
    url: str = ""
    """Of the store; empty: a SQLite file of our own."""
    seed: int = 1
    times: int = 3
    racers: int = 50
    guarded: bool = True


def run_drill(order: DrillOrder, tell: Tell, progress: Progress = silent) -> dict[str, Any]:
    """Run the proofs; the sealed document."""
    with (
        ending_politely(),
        tempfile.TemporaryDirectory(prefix="onceward-drill-") as name,
        _drill_store(order.url, folder := Path(name), tell) as (url, scope),
        closing(NurseryKeeper(scheme_of(url))) as nurseries,
    ):
        setting = DrillSetting(url, scope, folder, nurseries, *order[2:])
        document = heading("embedded sqlite" if not order.url else scheme_of(order.url), order.seed)
        began = REAL.monotonic()
        left_out = {name: why for name in order.names if (why := why_left_out(PROOFS[name], url))}
        chosen = [PROOFS[name] for name in order.names if name not in left_out]
        entries = []
        for number, proof in enumerate(chosen):
            progress(number / len(chosen), f"{number + 1} of {len(chosen)}: {proof.name}")
            entries.append(run_proof(proof, setting))
        document |= {
            "guard": "on" if order.guarded else "off",
            "chosen": list(order.names),
            "milliseconds": round((REAL.monotonic() - began) * 1000),
            "proofs": entries,
            "leftOut": left_out,
        }
    return sealed(document, PROOFS)


def run_proof(proof: Proof, setting: DrillSetting) -> dict[str, Any]:
    """Run one proof and its control; its entry in the bundle. A proof that raises is an entry, too."""
    began = REAL.monotonic()
    numbers: dict[str, Mapping[str, Any]] = {"guarded": {}, "control": {}}
    where: list[str] = []
    broke = None
    try:
        for side, guarded in (("guarded", setting.guarded), ("control", False)):
            name = proof.name if side == "guarded" else f"{proof.name}-bare"
            with Bench(setting, name, guarded=guarded) as bench:
                numbers[side] = proof.run(bench)
            where += [one for one in bench.said if one not in where]
    except Exception as error:  # Whatever a proof meets, the others are run.
        broke = f"{type(error).__name__}: {error}"[:500]
    about = {"name": proof.name, "shows": proof.shows, "without": proof.without, "where": where, "broke": broke}
    return {**about, "milliseconds": round((REAL.monotonic() - began) * 1000), **numbers}


def why_left_out(proof: Proof, url: str) -> str:
    """Why a proof cannot be run on a store; empty if it can."""
    if PROCESSES in proof.needs and not kind_of(url).processes:
        return "no other process can open this store"
    if FORK in proof.needs and not hasattr(os, "fork"):
        return "processes cannot be forked and killed on this system"
    return cannot_be_cut(url) if proof is STORE_AWAY else ""


def heading(store: str, seed: int) -> dict[str, Any]:
    """The beginning of a bundle: which versions, when, on what. No address and no password."""
    versions = {
        "onceward": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
    }
    started = datetime.fromtimestamp(REAL.wall_us() // 1_000_000, UTC).isoformat()
    return {"format": FORMAT, "versions": versions, "store": store, "seed": seed, "startedAt": started}


@contextmanager
def ending_politely() -> Iterator[None]:
    """Take a SIGTERM for a Ctrl-C: whoever is asked to end tidies up first."""
    before = None
    if threading.current_thread() is threading.main_thread():

        def leave(*_: object) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _drill_store(given: str, folder: Path, tell: Tell) -> Iterator[tuple[str, str]]:
    """The store's URL and a random scope in it; every record of that scope is deleted afterwards."""
    url = given or f"sqlite:///{folder / 'store.db'}"
    if scheme_of(url) == "memory":
        url = f"memory://{folder.name}"
    scope = f"test:drill-{REAL.random(12).hex()}"
    with closing(open_store(url)) as store:
        try:
            with closing(open_gate(url, scope)) as gate:
                gate.run("may-we", lambda: True)  # A store that we may not use says so now, and not in every proof.
            yield url, scope
        finally:
            try:
                for one in (scope, live_twin(scope)):
                    erase_scope(store, one)
            except OncewardError as error:
                tell(f"the drill's records could not be deleted; they are in the scope {scope}: {error}")
