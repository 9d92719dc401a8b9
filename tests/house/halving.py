"""The tool that makes the blocking halves: it is a script and no package, so it is loaded from its file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("halves", ROOT / "tools" / "halves.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["halves"] = module
    spec.loader.exec_module(module)
    return module


halves = _load()
NOTHING = halves.Twins(frozenset(), {})
"""A world in which nothing has a twin."""


def turned(text: str, **given: str) -> str:
    """What becomes of a text, where nothing has a twin."""
    return str(halves.turned(text, given, NOTHING, set()))
