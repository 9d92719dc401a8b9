"""The source, parsed once for all of the house rules that read it."""

from __future__ import annotations

import ast
from functools import cache


@cache
def parsed(source: str) -> ast.Module:
    """The tree of a text. Nobody changes it: others look at the same."""
    return ast.parse(source)
