"""
The versions in the environment that runs this, as constraints for pip: `make constraints`.

Every package, also those that only others need: what `make test` passed with is what the next machine installs.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions

HEAD = """\
# The newest versions that the tests have passed with: pip install -c requirements/constraints.txt ...
# Written by `make constraints`. They bind this repository, and nobody who installs the package.
"""
NOT_PINNED = {"onceward", "pip", "setuptools", "wheel"}
"""Ourselves, and what an environment comes with."""


def pins() -> list[str]:
    """A line for each package."""
    found = {normalised(one.metadata["Name"]): one.version for one in distributions()}
    return [f"{name}=={version}" for name, version in sorted(found.items()) if name not in NOT_PINNED]


def normalised(name: str) -> str:
    """A package's name as its index has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.stdout.write(HEAD + "\n".join(pins()) + "\n")
