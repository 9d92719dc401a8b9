"""
The rules about Python: all rows, in the order of their codes. What finds them is in the modules that `checks.py` names.
"""

from __future__ import annotations

from typing import Final

from onceward.lint.findings import Rule
from onceward.lint.python.guard_rules import GUARD_RULES
from onceward.lint.python.key_rules import KEY_RULES
from onceward.lint.python.retry_rules import RETRY_RULES

RULES: Final[tuple[Rule, ...]] = (*KEY_RULES, *RETRY_RULES, *GUARD_RULES)
