"""
`onceward contract --profile NAME`: what an HTTP API with this profile promises, and why.

The document is the one that `/.well-known/idempotency` serves; the reasons are the docstrings of the fields.
"""

from __future__ import annotations

from dataclasses import fields
from types import ModuleType
from typing import Any, Protocol

from onceward._core.terms import DEFAULT_TERMS, apply_options
from onceward.cli.output import print_json, print_text
from onceward.cli.text_tables import format_table
from onceward.http import PROFILES, Profile
from onceward.http.server import profile as source
from onceward.http.server.handler_outcomes import gate_options
from onceward.http.server.published_contract import contract_in_force


class FieldDocs(Protocol):
    """Reads the docstring of each field of a class."""

    def __call__(self, module: ModuleType, name: str, /) -> dict[str, str]:
        """The docstrings, by the field's name."""


def print_profile(name: str, reasons: FieldDocs, *, as_json: bool) -> None:
    """Print a profile, for an app that changes nothing about it."""
    chosen = PROFILES[name]
    terms = apply_options(DEFAULT_TERMS, gate_options(chosen))
    document = contract_in_force(chosen, terms)
    if as_json:
        print_json(document)
        return
    why = reasons(source, "Profile")
    rows = [(field.name, _shown(chosen, field.name), why.get(field.name, "")) for field in fields(Profile)]
    refusals = [(one["code"], one["status"], one["retry"], one["meaning"]) for one in document["refusals"]]
    print_text(f"Profile {name}: a request with a key runs once, and retries get its response.\n")
    print_text(format_table(("FIELD", "VALUE", "WHAT IT SAYS"), rows, limit=None))
    print_text("\nResponse headers that are stored and replayed: " + ", ".join(chosen.stored_headers))
    print_text("\nRefusals\n\n" + format_table(("CODE", "STATUS", "RETRY", "MEANING"), refusals, limit=None))


def _shown(chosen: Profile, name: str) -> str:
    value: Any = getattr(chosen, name)
    if name == "stored_headers":
        return "see below"
    if value is None:
        return "none" if name in ("probe", "retry", "breaker", "budget") else "as the gate says"
    return ", ".join(value) or "none" if isinstance(value, tuple) else str(value)
