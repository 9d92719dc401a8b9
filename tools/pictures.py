"""Draw the pictures in docs/images from the simulations: `make pictures`."""

from __future__ import annotations

from pathlib import Path

from onceward.testing.simulator import simulate_collapse, simulate_jitter, simulate_storm
from onceward.testing.simulator.chart import picture

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"


def main() -> None:
    """Draw them all."""
    IMAGES.mkdir(exist_ok=True)
    for name, plots in {
        "jitter": simulate_jitter().plots[:1],
        "collapse": simulate_collapse().plots[:1],
        "storm": simulate_storm().plots[:1],
    }.items():
        (IMAGES / f"{name}.svg").write_text(picture(*plots), encoding="utf-8")


if __name__ == "__main__":
    main()
