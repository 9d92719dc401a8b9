"""
Draw the pictures in docs/images anew: from the simulations, the rules, real runs and kept measurements.

    python tools/pictures.py                    write docs/images/*.svg
    python tools/pictures.py --check            exit code 1 if a picture is not what would be drawn
    python tools/pictures.py --check storm ...  the same of these; with --but, of all others
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from drawings import crashes, failover, guarantee, keyed_request, life_of_a_key, one_call

from onceward.testing.simulator import simulate_collapse, simulate_jitter, simulate_storm
from onceward.testing.simulator.chart import picture
from onceward.testing.simulator.report import SimulationReport

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"


def _plot(simulate: Callable[[], SimulationReport]) -> str:
    return picture(simulate().plots[0])


PICTURES: dict[str, Callable[[], str]] = {
    "life-of-a-key": life_of_a_key.draw,
    "keyed-request": keyed_request.draw,
    "one-call": one_call.draw,
    "which-guarantee": guarantee.draw,
    "crashes": crashes.draw,
    "failover": failover.draw,
    "jitter": partial(_plot, simulate_jitter),
    "collapse": partial(_plot, simulate_collapse),
    "storm": partial(_plot, simulate_storm),
}


def main(arguments: list[str]) -> int:
    """Draw or compare them all, or those that are named."""
    check = "--check" in arguments
    named = [one for one in arguments if not one.startswith("--")] or list(PICTURES)
    if "--but" in arguments:
        named = [one for one in PICTURES if one not in named]
    IMAGES.mkdir(exist_ok=True)
    stale = 0
    for name in named:
        file, drawn = IMAGES / f"{name}.svg", PICTURES[name]()
        if file.is_file() and file.read_text(encoding="utf-8") == drawn:
            continue
        stale += 1
        print(f"{file.name}: not as it would be drawn; make pictures" if check else f"{file.name}: drawn")
        if not check:
            file.write_text(drawn, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
