"""Forms, fingerprints, ids and keys never change: users have stored them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
VECTORS = json.loads((GOLDEN / "vectors.json").read_text(encoding="utf-8"))


def recomputed(*arguments: str, seed: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(GOLDEN / "recompute.py"), *arguments],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("seed", ["0", "4242"])
@pytest.mark.parametrize("arguments", [(), ("--without-orjson",)], ids=["fast", "plain"])
@pytest.mark.requirement("B05", "B07")
def test_every_vector_is_the_same_in_a_new_process(seed: str, arguments: tuple[str, ...]) -> None:
    """
    Another process, another hash seed, orjson or none: the same bytes.
    """
    actual = recomputed(*arguments, seed=seed)

    assert actual == VECTORS


@pytest.mark.parametrize("part", sorted(VECTORS))
def test_every_part_has_vectors(part: str) -> None:
    """
    No part of the file can become empty unnoticed.
    """
    assert VECTORS[part]
    assert all("gives" in vector for vector in VECTORS[part])
