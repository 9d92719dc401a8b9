"""The tools of the site and of the pictures, which are in `tools/` and not in the package."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT / "tools") not in sys.path:
    sys.path.append(str(ROOT / "tools"))

from site_builder import navigation, outside, page_links, reference, source_names, staging  # noqa: E402

__all__ = ["ROOT", "navigation", "outside", "page_links", "reference", "source_names", "staging"]
