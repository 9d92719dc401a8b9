"""
Keys: made, made again, and looked at before they do harm; and the canonical form that requests are compared by.
"""

from onceward._core.canonical import canonical, parse_json
from onceward._core.fingerprint import text_fields
from onceward._core.key_derivation import derive, derive_colon, input_hash
from onceward._core.key_lint import KeyFinding, KeyReport, explain_key, lint_key, lint_recipe
from onceward._core.key_recipes import Recipe, recipe
from onceward._core.keys import mint_from as _mint_from
from onceward._core.tool_call_keys import tool_call_key
from onceward.runtime.environment import REAL as _REAL

__all__ = [
    "KeyFinding",
    "KeyReport",
    "Recipe",
    "canonical",
    "derive",
    "derive_colon",
    "explain_key",
    "input_hash",
    "lint_key",
    "lint_recipe",
    "mint",
    "parse_json",
    "recipe",
    "text_fields",
    "tool_call_key",
]


def mint() -> str:
    """A new key nobody else has (36 characters, a random UUID). Store it before the first send, or a crash loses it."""
    return _mint_from(_REAL.random(16))
