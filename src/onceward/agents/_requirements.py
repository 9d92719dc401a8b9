"""
A clear error where a framework is missing or too old, before its import fails in words of its own.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def require(package: str, floor: str, extra: str) -> None:
    """Refuse to go on without this package, at least at this version; `extra` is what brings it."""
    advice = f"pip install --upgrade 'onceward[{extra}]'"
    try:
        found = version(package)
    except PackageNotFoundError:
        raise ImportError(f"this needs {package} {floor} or later, which is not installed: {advice}") from None
    if _numbers(found) < _numbers(floor):
        raise ImportError(f"this needs {package} {floor} or later, and {found} is installed: {advice}")


def _numbers(text: str) -> tuple[int, ...]:
    """A version's three numbers; one that it leaves out is zero, and what follows them is left out."""
    found = _NUMBERS.match(text)
    numbers = [int(number) for number in found[0].split(".")] if found else []
    return (*numbers, 0, 0, 0)[:3]
