"""What Python and TypeScript agree on: one file of vectors, which the suites of both languages read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))

import recompute_shared  # noqa: E402 - found by the line above

SHARED = recompute_shared.json.loads(recompute_shared.SHARED.read_text(encoding="utf-8"))


@pytest.mark.requirement("B09", "C21")
@pytest.mark.parametrize("part", sorted(recompute_shared.COMPUTE))
def test_every_shared_vector_is_what_python_computes(part: str) -> None:
    """
    A vector that Python computes otherwise would break clients in other languages without a word.
    """
    assert SHARED[part]
    assert recompute_shared.recompute({part: SHARED[part]}) == {part: SHARED[part]}


def test_the_file_is_written_as_the_tool_writes_it() -> None:
    """
    In ASCII, a line for each vector: nothing on the way can change it, and a change can be read.
    """
    text = recompute_shared.SHARED.read_bytes().decode("ascii")

    assert text == recompute_shared.as_text(SHARED)
    assert sorted(SHARED) == sorted(recompute_shared.COMPUTE)
