"""
Fifty clients retry while the service is killed with `kill -9`: nothing acknowledged is lost, nothing is done twice.

    python -m soak                     three minutes
    python -m soak --seconds 15
    python -m soak --keys new          the control: a new key for every attempt; must end with doubled > 0 and exit 1

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

from soak.running import Outcome, Settings, Soak
from soak.subject import Keys
from soak.subjects import SUBJECTS

BUILD = Path(__file__).resolve().parent.parent / "build"
SHOWN = 5


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """From the command line."""
    defaults = Settings()
    parser = argparse.ArgumentParser(prog="python -m soak", description="Clients retry while what they call is killed.")
    parser.add_argument("--seconds", type=float, default=defaults.seconds, help="how long (default 180)")
    parser.add_argument("--clients", type=int, default=defaults.clients, help="how many (default 50)")
    parser.add_argument("--every", type=float, default=defaults.every, help="seconds between kills (default 3)")
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=list(SUBJECTS), metavar="SUBJECT")
    parser.add_argument(
        "--keys", type=Keys, default=Keys.KEPT, choices=list(Keys), metavar="kept|new|none", help="new, none: controls"
    )
    parser.add_argument("--seed", type=int, default=1, help="which answers are thrown away, and when to kill")
    chosen = parser.parse_args(arguments)
    if chosen.seconds <= 0 or chosen.clients < 1 or chosen.every <= 0:
        parser.error("--seconds, --clients and --every are above zero")
    return Settings(chosen.seconds, chosen.clients, chosen.every, tuple(chosen.only), chosen.keys, chosen.seed)


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
    """Soak; 1 if anything was lost or doubled, or if memory grew."""
    settings = parse(arguments)
    print(
        f"# soak: {settings.clients} clients, {settings.seconds:g} s, a kill -9 every {settings.every:g} s or so, "
        f"subjects {', '.join(settings.subjects)}, keys {settings.keys.value}",
        flush=True,
    )
    logging.getLogger("onceward").setLevel(logging.ERROR)  # The clients tell of every attempt that a kill has ended.
    # Next to the project and not in the system's temporary folder, which may be in memory.
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-", dir=BUILD) as folder:
        outcome = asyncio.run(Soak(settings, Path(folder)).run())
    report(outcome)
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    sys.exit(main())
