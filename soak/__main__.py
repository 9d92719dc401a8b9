"""
Two scenarios. `kills`: fifty clients retry while the service is killed with `kill -9`: nothing acknowledged is lost,
nothing is done twice. `neighbours`: eight attackers beside two honest tenants, who must hardly notice.

    python -m soak                                      kills, three minutes
    python -m soak --seconds 15
    python -m soak --keys new                           its control: a new key for every attempt; must end with
                                                        doubled > 0 and exit 1
    python -m soak --scenario neighbours                attackers, three minutes
    python -m soak --scenario neighbours --accounts off its control: nobody's use is limited; must exit 1
    python -m soak --scenario all                       both

See docs/how-to/soak-the-service.md.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from soak.neighbours import report as neighbours
from soak.neighbours.attacks import ATTACKS
from soak.neighbours.rounds import Neighbours
from soak.neighbours.rounds import Settings as NeighbourSettings
from soak.running import Outcome, Settings, Soak
from soak.subject import Keys
from soak.subjects import SUBJECTS

BUILD = Path(__file__).resolve().parent.parent / "build"
SHOWN = 5


class Chosen(NamedTuple):
    """What the command line says."""

    kills: Settings | None
    neighbours: NeighbourSettings | None


def parse(arguments: Sequence[str] | None = None) -> Chosen:
    """From the command line."""
    defaults, beside = Settings(), NeighbourSettings()
    parser = argparse.ArgumentParser(prog="python -m soak", description="Clients retry while what they call is killed.")
    parser.add_argument("--scenario", choices=("kills", "neighbours", "all"), default="kills")
    parser.add_argument("--seconds", type=float, default=defaults.seconds, help="how long, either (default 180)")
    kills = parser.add_argument_group("kills")
    kills.add_argument("--clients", type=int, default=defaults.clients, help="how many (default 50)")
    kills.add_argument("--every", type=float, default=defaults.every, help="seconds between kills (default 3)")
    kills.add_argument("--only", nargs="+", choices=SUBJECTS, default=list(SUBJECTS), metavar="SUBJECT")
    kills.add_argument(
        "--keys", type=Keys, default=Keys.KEPT, choices=list(Keys), metavar="kept|new|none", help="new, none: controls"
    )
    kills.add_argument("--seed", type=int, default=1, help="which answers are thrown away, and when to kill")
    others = parser.add_argument_group("neighbours")
    others.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS), metavar="ATTACK")
    others.add_argument("--rate", type=float, default=beside.rate, help="requests a second of a tenant (default 16)")
    others.add_argument("--pairs", type=int, default=beside.pairs, help="rounds of each kind (default 6)")
    others.add_argument("--ratio", type=float, default=beside.ratio_max, help="of p99, at most (0: not judged)")
    others.add_argument(
        "--cpu-burst", type=float, default=beside.cpu_burst, help="processor seconds each has saved up (default 20)"
    )
    others.add_argument("--clients-each", type=int, default=beside.clients, help="of every tenant (default 8)")
    others.add_argument("--accounts", choices=("on", "off"), default="on", help="off: the control")
    chosen = parser.parse_args(arguments)
    counts = (chosen.clients, chosen.clients_each, chosen.pairs)
    if min(chosen.seconds, chosen.every, chosen.rate, chosen.cpu_burst, *counts) <= 0:
        parser.error("--seconds, --clients, --clients-each, --every, --rate, --pairs and --cpu-burst are above zero")
    killing = Settings(chosen.seconds, chosen.clients, chosen.every, tuple(chosen.only), chosen.keys, chosen.seed)
    attacking = NeighbourSettings(
        pairs=chosen.pairs,
        seconds=chosen.seconds / (2 * chosen.pairs),
        rate=chosen.rate,
        clients=chosen.clients_each,
        attacks=tuple(chosen.attacks),
        accounts=chosen.accounts == "on",
        ratio_max=chosen.ratio,
        cpu_burst=chosen.cpu_burst,
    )
    return Chosen(
        killing if chosen.scenario != "neighbours" else None, attacking if chosen.scenario != "kills" else None
    )


def report(outcome: Outcome) -> None:
    """What came of it, in words."""
    kills = ", ".join(f"{many} {name}" for name, many in sorted(outcome.kills.items()))
    errors = ", ".join(f"{many} {name}" for name, many in outcome.errors.most_common(4))
    print(f"\nkilled: {kills}")
    print(
        f"acknowledged {outcome.acknowledged}, sent again {outcome.sent_again} times; seen on the way: {errors or '-'}"
    )
    print(
        f"unknown at the end {outcome.unknown} (of these {outcome.had_run} had been done), "
        "all of them settled by asking again"
    )
    for what, verdict in outcome.verdicts.items():
        for kind, found in verdict._asdict().items():
            if found:
                print(f"  {what}: {kind} {len(found)}, such as {', '.join(found[:SHOWN])}")
    if outcome.changed:
        print(f"  answered in two ways: {len(outcome.changed)}, such as {', '.join(outcome.changed[:SHOWN])}")
    if outcome.memory is None:
        print("memory: not judged, the time without a kill was too short")
    else:
        first, last = outcome.memory
        print(
            f"memory, first and last third of the time without a kill: service {first.parent:.1f} -> "
            f"{last.parent:.1f} MB, workers {first.workers:.1f} -> {last.workers:.1f} MB: "
            + ("flat" if outcome.memory.flat else "GROWING")
        )
    if len(outcome.peaks) > 1:
        early, late = outcome.peaks[0], outcome.peaks[-1]
        print(
            f"memory at most, life 1 and life {len(outcome.peaks)}: "
            f"service {early.parent:.1f} and {late.parent:.1f} MB, "
            f"workers {early.workers:.1f} and {late.workers:.1f} MB"
        )
    print(f"lost={outcome.lost} doubled={outcome.doubled} changed={len(outcome.changed)} strange={outcome.strange}")
    print("held" if outcome.holds else "DID NOT HOLD")


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak; 1 if anything did not hold."""
    chosen = parse(arguments)
    held = True
    if chosen.kills is not None:
        held = _soak_kills(chosen.kills)
    if chosen.neighbours is not None:
        held = _soak_neighbours(chosen.neighbours) and held
    return 0 if held else 1


def _soak_kills(settings: Settings) -> bool:
    """Whether nothing was lost or doubled, and memory did not grow."""
    print(
        f"# soak: {settings.clients} clients, {settings.seconds:g} s, a kill -9 every {settings.every:g} s or so, "
        f"subjects {', '.join(settings.subjects)}, keys {settings.keys.value}",
        flush=True,
    )
    logging.getLogger("onceward").setLevel(logging.ERROR)  # The clients tell of every attempt that a kill has ended.
    with _folder() as folder:
        outcome = asyncio.run(Soak(settings, Path(folder)).run())
    report(outcome)
    return outcome.holds


def _soak_neighbours(settings: NeighbourSettings) -> bool:
    """Whether the honest tenants have hardly noticed the attackers."""
    print(
        f"# soak: {settings.pairs} rounds of {settings.seconds:g} s beside honest neighbours and {settings.pairs} "
        f"beside attackers ({', '.join(settings.attacks)}), in turn; {settings.rate:g} requests a second of each "
        f"tenant; accounts {'on' if settings.accounts else 'off'}",
        flush=True,
    )
    with _folder() as folder:
        outcome = asyncio.run(Neighbours(settings, Path(folder)).run())
    neighbours.report(outcome)
    return outcome.holds


def _folder() -> tempfile.TemporaryDirectory[str]:
    """Next to the project and not in the system's temporary folder, which may be in memory."""
    BUILD.mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="soak-", dir=BUILD)


if __name__ == "__main__":
    sys.exit(main())
