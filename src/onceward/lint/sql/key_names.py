"""
Which columns are keys, and which say whose key it is.

Names are only where to look: whether a key protects is decided by constraints. `--key` and `--scope` add names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_KEY: Final = re.compile(
    r"(^|_)(idempoten(cy|t)|idem|dedup|dedupe|deduplication)"
    r"(_?(key|token|id|uuid|hash|digest|ref|reference|nonce|value|code))?$|^(request|operation|command)_key$"
)
_SCOPE: Final = re.compile(r"^(worker|tenant|organi[sz]ation|org|workspace|merchant|shop)(_?(id|uuid|key|name))?$")
_COUNTS: Final = re.compile(r"(^|_)(attempts?|tries|retries|retry_count|seen|hits|version|revision|deliveries)(_|$)")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True)
class KeyNames:
    """Which names are looked for."""

    keys: frozenset[str] = frozenset()
    """Besides the usual ones."""
    scopes: frozenset[str] = frozenset()

    def is_key(self, column: str) -> bool:
        """Whether a column holds keys, by its name."""
        return column.lower() in self.keys or bool(_KEY.search(_snake(column)))

    def is_scope(self, column: str) -> bool:
        """Whether a column says whose key it is."""
        return column.lower() in self.scopes or bool(_SCOPE.match(_snake(column)))

    def keys_of(self, columns: Iterable[str]) -> list[str]:
        """Those of the columns that hold keys; of an expression, the column in it."""
        return [one for one in columns if any(self.is_key(word) for word in re.findall(r"\w+", one))]


def counts_attempts(column: str) -> bool:
    """Whether a column is meant to count attempts, so that adding to it at each of them is right."""
    return bool(_COUNTS.search(_snake(column)))


def _snake(name: str) -> str:
    return _CAMEL.sub("_", name).lower()
