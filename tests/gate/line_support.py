"""What the tests of both straight lines share: the flows that were made, and Ctrl-C before any one line."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest


def flows_made(monkeypatch: pytest.MonkeyPatch, name: str, *modules: ModuleType) -> list[Any]:
    """A list that grows by the arguments of each flow that one of these modules makes with the function so named."""
    made: list[Any] = []
    for module in modules:
        right = getattr(module, name)

        def counted(*arguments: Any, right: Any = right) -> Any:
            made.append(arguments)
            return right(*arguments)

        monkeypatch.setattr(module, name, counted)
    return made


@contextmanager
def struck_at(number: int, module: ModuleType) -> Iterator[list[int]]:
    """Ctrl-C before that line of a module is run; the list has the lines that were passed."""
    passed: list[int] = []
    file = str(module.__file__)

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != file:
            return None
        if event == "line" and linecache.getline(file, frame.f_lineno).strip() != "try:":
            # Nothing is carried out in such a line, so that no signal is heard there.
            passed.append(frame.f_lineno)
            if len(passed) == number:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        yield passed
    finally:
        sys.settrace(None)
