"""What is published, built once for all workers of a run."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

import pytest
from distribution_support import ROOT, Distributions


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """As `make build` makes them: the source archive of the clone, the wheel of the source archive."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "distributions"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            _run("build", "--no-isolation", "--outdir", str(place), str(ROOT))
            [sdist] = place.glob("*.tar.gz")
            pip = ("pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
            _run(*pip, "--wheel-dir", str(place / "by-pip"), str(sdist))
            (place / "ready").touch()
    [wheel], [sdist], [other] = place.glob("*.whl"), place.glob("*.tar.gz"), (place / "by-pip").glob("*.whl")
    return Distributions(wheel, sdist, other)


def _run(*module: str) -> None:
    done = subprocess.run([sys.executable, "-m", *module], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
