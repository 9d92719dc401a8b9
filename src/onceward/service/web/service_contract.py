"""
What a service publishes about itself at `/.well-known/idempotency`: app by app, from what really runs.

Each app states its part (`AppContract`): the profile of its keys, the limits in force, and, through its endpoints, what
it may refuse. Nothing is stated here that an app does not hand over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from onceward import __version__
from onceward._core.terms import DEFAULT_TERMS, apply_options
from onceward.http.server.handler_outcomes import gate_options
from onceward.http.server.profile import PROFILES, Profile
from onceward.http.server.published_contract import key_contract
from onceward.service.web.endpoints import ANYWHERE, ApiEndpoint, refusals_of
from onceward.service.web.problems import published_refusals

Number = int | float


class AppContract(NamedTuple):
    """What one app of a service promises."""

    name: str
    endpoints: list[ApiEndpoint]
    profile: Profile | None = None
    """Of the keys that requests may carry; None: there are no keys."""
    limits: Mapping[str, Number] = {}
    """Numbers in force, by their published names."""

    @property
    def refusal_profile(self) -> Profile:
        """The profile that says which status a refusal has."""
        return self.profile or PROFILES["default"]

    def document(self) -> dict[str, Any]:
        """As it is published."""
        kinds = dict.fromkeys(kind for end in self.endpoints for kind in refusals_of(end))
        return {
            "name": self.name,
            "endpoints": [f"{end.method} {end.path}" for end in self.endpoints],
            "keys": None if self.profile is None else self._keys(self.profile),
            "limits": _plain(self.limits),
            "refusals": published_refusals(kinds, self.refusal_profile),
        }

    def _keys(self, profile: Profile) -> dict[str, Any]:
        promised = key_contract(profile, apply_options(DEFAULT_TERMS, gate_options(profile)))
        return {"endpoints": [f"{end.method} {end.path}" for end in self.endpoints if end.keyed], **promised}


def service_contract(apps: Iterable[AppContract], *, retain: Number, limits: Mapping[str, Number]) -> dict[str, Any]:
    """The whole document: what holds everywhere, and then app by app."""
    return {
        "service": "onceward",
        "version": __version__,
        **_plain({"retainSeconds": retain}),
        "limits": _plain(limits),
        "refusals": published_refusals(ANYWHERE, PROFILES["default"]),
        "apps": [one.document() for one in apps],
    }


def _plain(numbers: Mapping[str, Number]) -> dict[str, Number]:
    """Whole numbers as such: 86400, not 86400.0."""
    return {name: int(value) if value == int(value) else value for name, value in numbers.items()}


def all_refusals(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every refusal that a contract lists, of all its apps."""
    return [*document["refusals"], *(one for app in document["apps"] for one in app["refusals"])]
