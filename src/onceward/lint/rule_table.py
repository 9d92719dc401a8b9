"""
Every rule of the linter, by its code: what `lint rules` lists, `lint explain` explains and settings may name.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache

from onceward._core.errors import ConfigurationError
from onceward.lint.findings import LINTER_RULES, Rule
from onceward.lint.python.rules import RULES as PYTHON_RULES
from onceward.lint.sql.rules import RULES as SQL_RULES


@cache
def all_rules() -> dict[str, Rule]:
    """Code -> rule, in the order of the codes."""
    rules = sorted((*PYTHON_RULES, *SQL_RULES, *LINTER_RULES), key=lambda rule: rule.code)
    return {rule.code: rule for rule in rules}


def matching_codes(names: Iterable[str], where: str) -> frozenset[str]:
    """The codes that are named, or begin like this: OW101, OW1. A name that matches none is an error."""
    found: set[str] = set()
    for name in names:
        matches = [code for code in all_rules() if name and code.startswith(name)]
        if not matches:
            near = get_close_matches(name.upper(), all_rules(), n=1)
            question = f" Did you mean {near[0]}?" if near else ""
            raise ConfigurationError(
                f"{where}: there is no rule {name!r}.{question} `onceward lint rules` lists the codes"
            )
        found.update(matches)
    return frozenset(found)
