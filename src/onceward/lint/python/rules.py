"""
The rules about Python, in words. What finds them is in the modules that `checks.py` names.
"""

from __future__ import annotations

from typing import Final

from onceward.lint.findings import Rule

RULES: Final[tuple[Rule, ...]] = ()
