"""What the tests of this folder share."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Distributions(NamedTuple):
    """The two files of a release, and the wheel that pip makes of the source archive."""

    wheel: Path
    sdist: Path
    wheel_of_sdist: Path
