"""The rules about SQL, in words."""

from __future__ import annotations

from typing import Final

from onceward.lint.findings import Rule
from onceward.lint.sql.insert_rules import INSERT_RULES
from onceward.lint.sql.routine_rules import ROUTINE_RULES
from onceward.lint.sql.table_rules import TABLE_RULES

RULES: Final[tuple[Rule, ...]] = (*INSERT_RULES, *ROUTINE_RULES, *TABLE_RULES)

MIGRATION_CODES: Final = frozenset({"OW222", "OW223", "OW225", "OW226"})
"""Rules about an order: `lint migration` looks for them, and `lint sql` does not."""
