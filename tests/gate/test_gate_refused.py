"""A gate that is refused leaves nothing behind: no file, no connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncGate, ConfigurationError, Gate

GATES = pytest.mark.parametrize("gate", [Gate, AsyncGate], ids=lambda one: one.__name__)


def open_files(folder: Path) -> list[Path]:
    """Files of a folder that this process has open."""
    there = (Path(one).resolve() for one in Path("/proc/self/fd").iterdir())
    return [one for one in there if one.is_relative_to(folder.resolve())]


@GATES
@pytest.mark.parametrize(
    "wrong",
    [
        {"scope": None},
        {"scope": "test:a\0b"},
        {"lease": -1},
        {"guarantee": "atomic"},
        {"sealed_only": True},
        {"seal": "a key"},
    ],
    ids=repr,
)
@pytest.mark.fault("a-refused-gate-has-opened-its-store")
def test_what_no_store_could_serve_is_refused_before_one_is_opened(tmp_path: Path, gate: Any, wrong: Any) -> None:
    """
    A scope, an option or a seal that cannot work: the store of the URL is not even made.
    """
    with pytest.raises(ConfigurationError):
        gate(f"sqlite:///{tmp_path}/agent.db", **{"scope": "test:refused", **wrong})

    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault("a-refused-gate-leaves-its-store-open")
def test_what_this_store_cannot_serve_leaves_it_closed(tmp_path: Path) -> None:
    """
    Only an open store can say what it offers; the one that the gate opened by itself is closed again.
    """
    with pytest.raises(ConfigurationError) as refused:
        Gate(f"sqlite:///{tmp_path}/agent.db", scope="test:refused", relaxed_settle=True)

    assert refused.tb is not None  # It holds the frames, and what is in them: nothing is collected.
    assert open_files(tmp_path) == []
