"""
Which numbered requirements a test proves.

A test says so with `@pytest.mark.requirement("A01", ...)`. Here each number is checked against the list in
`docs/reference/requirements.md` and written on the test's reports, where `tools/spec.py` reads it, also when
the tests ran in another process.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest

LIST = Path(__file__).resolve().parent.parent / "docs" / "reference" / "requirements.md"
KNOWN = frozenset(re.findall(r"^- ([A-E]\d\d): ", LIST.read_text(encoding="utf-8"), re.MULTILINE))


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Any:
    """Refuse an unknown number while collecting; write the known ones on the test."""
    made = yield
    for item in made if isinstance(made, list) else [made]:
        if isinstance(item, pytest.Item):
            numbers = [number for mark in item.iter_markers("requirement") for number in mark.args]
            if unknown := [number for number in numbers if number not in KNOWN]:
                raise collector.CollectError(f"{item.nodeid}: no such requirement: {', '.join(map(str, unknown))}")
            item.user_properties.extend(("requirement", number) for number in numbers)
    return made


def pytest_configure(config: pytest.Config) -> None:
    """
    Let Ctrl-C be heard.

    A process that a shell starts in the background ignores it, and some tests are about what an interrupt leaves.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
