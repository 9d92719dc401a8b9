"""What the package offers is listed, described and documented; both colours offer the same."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from onceward.service import access

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "tokens.md").read_text(encoding="utf-8")


def methods(shell: Any) -> dict[str, list[tuple[str, Any]]]:
    """Public methods, with what they take."""
    return {
        name: [(one.name, one.default) for one in inspect.signature(getattr(shell, name)).parameters.values()]
        for name in vars(shell)
        if not name.startswith("_")
    }


def mentions(name: str) -> bool:
    """Whether the page has a name, as a word of its own."""
    return re.search(rf"(?<!\w){name}(?!\w)", PAGE) is not None


def test_every_name_is_described_and_documented() -> None:
    """
    On the reference page, and with a docstring.
    """
    assert [name for name in access.__all__ if not mentions(name)] == []
    assert [name for name in methods(access.Access) if not mentions(name)] == []
    assert [name for name in access.__all__ if not inspect.getdoc(getattr(access, name))] == []
    assert not mentions("Acces")


def test_both_colours_offer_the_same() -> None:
    """
    The same methods, taking the same.
    """
    assert methods(access.Access) == methods(access.AsyncAccess)
