"""
For how long keys are remembered, and what a late retry gets: the part of a gate's options that a service publishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from onceward._core.errors import ConfigurationError


class KeyTerms(TypedDict, total=False):
    """Options of keys. Durations are in seconds; the defaults are the library's."""

    retain: float
    """How long a result is replayed."""
    tombstone: float
    """How long after that a retry is refused as expired."""
    after_expiry: Literal["refuse", "run"]
    """What a retry past retention gets."""


def key_options(terms: Mapping[str, Any]) -> dict[str, Any]:
    """The terms as plain data. What they mean is checked where gates are made."""
    unknown = terms.keys() - KeyTerms.__annotations__.keys()
    if unknown:
        raise ConfigurationError(
            f"{', '.join(sorted(unknown))} is not an option for keys; the options are retain, tombstone and "
            f"after_expiry"
        )
    return dict(terms)
