"""
`onceward contract --profile NAME`: what an HTTP API with this profile promises, and why.

The document is the one that `/.well-known/idempotency` serves; the reasons stand beside the fields in the source.
"""

from __future__ import annotations

from dataclasses import fields
from types import ModuleType
from typing import Any, Protocol

from onceward._core.terms import DEFAULT_TERMS, agree
from onceward.cli.printing import say, say_document
from onceward.cli.tables import table
from onceward.http import PROFILES, Profile
from onceward.http.serving import profile as source
from onceward.http.serving.publishing import contract_in_force
from onceward.http.serving.running import gate_options


class Reasons(Protocol):
    """The text that stands under each member of a class."""

    def __call__(self, module: ModuleType, name: str, /) -> dict[str, str]:
        """By the member's name."""


def tell_profile(name: str, reasons: Reasons, *, as_json: bool) -> None:
    """Print a profile, for an app that changes nothing about it."""
    chosen = PROFILES[name]
    terms = agree(DEFAULT_TERMS, gate_options(chosen))
    document = contract_in_force(chosen, terms)
    if as_json:
        say_document(document)
        return
    why = reasons(source, "Profile")
    rows = [(field.name, _shown(chosen, field.name), why.get(field.name, "")) for field in fields(Profile)]
    refusals = [(one["code"], one["status"], one["retry"], one["meaning"]) for one in document["refusals"]]
    say(f"Profile {name}: a keyed request runs once, and its answer is replayed.\n")
    say(table(("FIELD", "VALUE", "WHAT IT SAYS"), rows, limit=None))
    say("\nHeaders of an answer that are stored: " + ", ".join(chosen.stored_headers))
    say("\nRefusals\n\n" + table(("CODE", "STATUS", "RETRY", "MEANING"), refusals, limit=None))


def _shown(chosen: Profile, name: str) -> str:
    value: Any = getattr(chosen, name)
    if name == "stored_headers":
        return "see below"
    if value is None:
        return "none" if name in ("probe", "retry", "breaker", "budget") else "as the gate says"
    return ", ".join(value) or "none" if isinstance(value, tuple) else str(value)
