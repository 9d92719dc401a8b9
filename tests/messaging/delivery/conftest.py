"""An authority for certificates, and the way to the examples' mail server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from servers.certificates import Authority

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Issues certificates that only its believers believe."""
    return Authority(tmp_path)
